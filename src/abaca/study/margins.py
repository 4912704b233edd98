"""Each row of a study beside the best baseline, over all targets and on each shelf."""

from typing import Any, NamedTuple

from abaca.evaluation.evaluate import Group, Shelf
from abaca.study.plan import RowKey
from abaca.study.significance import holm, mark
from abaca.study.state import MEASURED, StudyState
from abaca.study.table import Cell, Line, Table, plain

WORDS: dict[Group | Shelf, str] = {"all": "all targets", "buy again": "buy again", "discover": "discover"}
COLUMNS = ("NDCG", "best baseline", "difference", "95 %")
LEVEL = 0.05


class Margin(NamedTuple):
    """A test of a row against the best baseline; its p-value is corrected for the rows of the encoder."""

    test: dict[str, Any]
    p_value: float

    @property
    def difference(self) -> float:
        return float(self.test["difference"]["value"])


def margins(state: StudyState, data: str, group: Group | Shelf) -> dict[RowKey, Margin]:
    """The margin of each tested row of a data set over the best baseline of a group."""
    found: dict[RowKey, Margin] = {}
    for encoder in state.study.encoders:
        keys = state.study.rows_beside(RowKey(data, encoder, ""))
        tests = {
            key: entry["groups"][group]
            for key in keys
            if (entry := state.margin(key)) is not None and group in entry["groups"]
        }
        corrected = holm([test["p_value"] for test in tests.values()])
        found |= {key: Margin(tests[key], p_value) for key, p_value in zip(tests, corrected, strict=True)}
    return found


def margins_table(state: StudyState) -> Table:
    """Every row on every data set, beside the best baseline."""
    lines = []
    for data in state.data:
        by_group = {group: margins(state, data, group) for group in MEASURED}
        for key in by_group["all"]:
            cells = (cell for group in MEASURED for cell in _cells(by_group[group].get(key)))
            lines.append(Line(data, f"{key.encoder} {key.output}", tuple(cells)))
    return Table(
        "margins",
        "Test NDCG@10 (%) of each row, the baseline that is best on the same test targets, and the difference with "
        "its 95 % bootstrap interval over users. Buy again ranks repeats among the items of the history, discover new "
        "items among all others. ▲ △ above and ▼ ▽ below the baseline (p < 0.01, p < 0.05): paired sign-flip "
        "permutation test over users of each target's mean over seeds, Holm's correction over the rows of an encoder.",
        tuple((WORDS[group], COLUMNS) for group in MEASURED),
        tuple(lines),
    )


def margin_sentences(state: StudyState) -> list[str]:
    """How often each row is above the best baseline, over all targets and on each shelf."""
    found = {(data, group): margins(state, data, group) for data in state.data for group in MEASURED}
    models = dict.fromkeys(key[1:] for tests in found.values() for key in tests)
    sentences = []
    for model in models:
        parts = []
        for group in MEASURED:
            mine = [test for (_, which), tests in found.items() if which == group
                    for key, test in tests.items() if key[1:] == model]  # fmt: skip
            if mine:
                parts.append(f"{WORDS[group]} {_counted(mine)}")
        sentences.append(f"{' '.join(model)}: {'; '.join(parts)}.")
    return sentences


def _counted(found: list[Margin]) -> str:
    above = [test for test in found if test.difference > 0]
    sure = sum(test.p_value < LEVEL for test in above)
    below = sum(test.p_value < LEVEL for test in found if test.difference < 0)
    return f"above on {len(above)} of {len(found)}, {sure} of them significantly, significantly below on {below}"


def _cells(found: Margin | None) -> tuple[Cell, ...]:
    if found is None:
        return tuple(Cell(None, "–") for _ in COLUMNS)
    low, high = (100 * found.test["difference"][end] for end in ("low", "high"))
    return (
        plain(100 * found.test["value"], 2),
        Cell(None, found.test["baseline"]),
        plain(100 * found.difference, 2, mark(found.difference, found.p_value), sign=True),
        Cell(None, f"{low:+.2f} to {high:+.2f}"),
    )
