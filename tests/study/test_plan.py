import re
from pathlib import Path

import pytest

from abaca.errors import SpecError
from abaca.options import AUTO, DEFAULT_OUTPUT
from abaca.study.plan import RowKey, Study, read_study

ROOT = Path(__file__).parents[2]
GOOD = """
title = "T"
outputs = ["softmax", "softmax+C"]
seeds = [3, 4]
[options]
epochs = 2
size = 8
[grid]
lr = [0.001, 0.002]
[encoders.sasrec]
grid = { dropout = [0.0, 0.1] }
[encoders.gru4rec]
also = ["repeatnet"]
options = { hidden = 12 }
[[data]]
name = "a"
log = "a.csv"
min_user = 2
[[data]]
name = "b"
synthetic = { rule = "never-copy", users = 9 }
outputs = ["softmax"]
grid = {}
options = { lr = 0.5 }
"""


def study(folder: Path, text: str) -> Study:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return read_study(path)


def test_rows_and_configurations(tmp_path: Path) -> None:
    found = study(tmp_path, GOOD)
    rows = found.rows()
    assert rows[0] == RowKey("a", "sasrec", "softmax")
    assert [row.output for row in rows if (row.data, row.encoder) == ("a", "gru4rec")] == [
        "softmax",
        "softmax+C",
        "repeatnet",
    ]
    assert [row for row in rows if row.data == "b"] == [RowKey("b", e, "softmax") for e in ("sasrec", "gru4rec")]
    tried = found.configurations(rows[0])
    assert [(c["lr"], c["dropout"]) for c in tried] == [(0.001, 0.0), (0.001, 0.1), (0.002, 0.0), (0.002, 0.1)]
    assert all(c["dim"] == 8 and c["epochs"] == 2 and "size" not in c for c in tried)
    assert found.configurations(RowKey("b", "gru4rec", "softmax")) == [{"dim": 8, "epochs": 2, "hidden": 12, "lr": 0.5}]
    assert found.data[0].prepare.min_user == 2
    assert found.data[0].log == tmp_path / "a.csv"
    assert found.data[1].synthetic["users"] == 9


def test_what_a_data_set_or_an_encoder_says_is_not_searched(tmp_path: Path) -> None:
    text = GOOD.replace("grid = {}\n", "").replace("{ hidden = 12 }", "{ hidden = 12, lr = 0.7 }")
    found = study(tmp_path, text)
    of = {row: found.configurations(row) for row in found.rows()}
    assert [c["lr"] for c in of[RowKey("a", "gru4rec", "softmax")]] == [0.7]
    assert [(c["lr"], c["dropout"]) for c in of[RowKey("b", "sasrec", "softmax")]] == [(0.5, 0.0), (0.5, 0.1)]


def test_an_empty_synthetic_log_has_the_defaults(tmp_path: Path) -> None:
    text = GOOD.replace('{ rule = "never-copy", users = 9 }', "{}")
    assert study(tmp_path, text).data[1].synthetic["rule"] == "mixed"


def test_logs_are_looked_for_where_told(tmp_path: Path) -> None:
    study(tmp_path, GOOD)
    assert read_study(tmp_path / "study.toml", Path("elsewhere")).data[0].log == Path("elsewhere/a.csv")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("title =", "tilte =", "unknown key 'tilte'; did you mean title"),
        ("epochs = 2", "epohcs = 2", "no option 'epohcs'; did you mean epochs"),
        ("epochs = 2", "epochs = 'two'", "epochs must be a whole number"),
        ("lr = [0.001, 0.002]", "lr = 0.001", "grid.lr must be a list of values"),
        ("encoders.sasrec", "encoders.sasrek", "unknown key 'sasrek'; did you mean sasrec"),
        ("'softmax+C'", "'softmax+X'", "'X' is not one of"),
        ("min_user = 2", "min_usr = 2", "unknown key 'min_usr'; did you mean min_user"),
        ("min_user = 2", "min_user = 'x'", "min_user must be a whole number"),
        ("seeds = [3, 4]", "seeds = 3", "seeds must be a list"),
        ("seeds = [3, 4]", "seeds = [3, 3]", "twice"),
        ("epochs = 2", "seed = 2", "use seeds"),
        ("epochs = 2", "min_user = 2", "option of preparing"),
        ('name = "b"', 'name = "a"', "same name"),
        ('name = "b"', 'name = "b/c"', "needs a name"),
        ('log = "a.csv"', "", "either a log"),
        ("users = 9", "usrs = 9", "unknown key 'usrs'"),
        ("hidden = 12", "heads = 2", "no option 'heads'"),
        ("title = ", "time_on = 'c'\ntitle = ", "unknown key 'c'"),
        ("title = ", "against = 'softmax+CP'\ntitle = ", "against: unknown key 'softmax\\+CP'"),
        ("title = ", "examples = ['mos:3']\ntitle = ", "examples: unknown key 'mos:3'"),
        ("seeds = [3, 4]", "seeds = [3, -1]", "seed must be from 0"),
        ("users = 9", "seed = -1", "seed must not be negative"),
        ("[options]", "[options", "study.toml"),
    ],
)
def test_a_mistake_is_refused_with_its_cure(tmp_path: Path, old: str, new: str, said: str) -> None:
    text = GOOD.replace('"softmax+C"', "'softmax+C'").replace(old, new)
    with pytest.raises(SpecError, match=said) as caught:
        study(tmp_path, text)
    assert "study.toml" in str(caught.value)


PAPER = ("softmax", "softmax+CPR:100+Mi")
ROWS = {
    "twelve": {(AUTO, DEFAULT_OUTPUT)},
    "long": {("sasrec", DEFAULT_OUTPUT), ("gru4rec", DEFAULT_OUTPUT)},
    "rows": {*((AUTO, output) for output in PAPER), ("gru4rec", "repeatnet")},
}
"""Encoder and output layer of the studies that do not train every row of the paper."""


@pytest.mark.parametrize("path", sorted(ROOT.glob("studies/*/study.toml")), ids=lambda path: path.parent.name)
def test_the_studies_that_come_along_are_good(path: Path) -> None:
    found = read_study(path)
    rows = {row[1:] for row in found.rows()}
    if path.parent.name in ROWS:
        assert rows == ROWS[path.parent.name]
    else:
        assert len(rows) == 19
    for row in found.rows():
        assert found.configurations(row)


def test_the_study_of_the_documentation_is_good(tmp_path: Path) -> None:
    text = (ROOT / "docs" / "study.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    found = study(tmp_path, blocks[0])
    assert len(found.rows()) == 9
    assert len(found.configurations(found.rows()[0])) == 6


def test_a_study_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="does not exist"):
        read_study(tmp_path / "none.toml")
