"""`abaca index`: made, measured, used, taken away."""

from pathlib import Path

import pytest

from commandline import Cli
from models import untrained


def test_an_index_is_made_checked_used_and_removed(tmp_path: Path, cli: Cli) -> None:
    model = tmp_path / "model"
    untrained(model, ids=[f"i{i}" for i in range(600)])
    (tmp_path / "log.csv").write_text("user,item\n" + "".join(f"u{i % 9},i{i * i % 600}\n" for i in range(90)))

    made = cli("index", model, "--kind", "ivf", "--recall", "0.9", "--json").json
    assert made["kind"] == "ivf"
    assert made["recall@10"] > 0.7
    checked = cli("index", model, "--check", "--histories", tmp_path / "log.csv", "--json").json
    assert (checked["queries"], checked["effort"]) == (4, made["effort"])
    assert cli("recommend", model, "i1", "i2", "--json").json["estimated"]
    assert not cli("recommend", model, "i1", "i2", "--json", "--exact").json["estimated"]
    assert "(estimated)" in cli("recommend", model, "i1", "i2").done
    shown = cli("index", model, "--check").done
    assert "ivf over 600 items" in shown
    assert "batches of 64" in shown
    assert cli("index", model, "--remove").code == 0
    gone = cli("index", model, "--check")
    assert (gone.code, gone.out) == (2, "")
    assert "no search index" in gone.error


@pytest.mark.parametrize(
    ("output", "words", "message"),
    [
        ("repeatnet", [], "served by exact search only"),
        ("softmax", ["--kind", "tree"], "'tree' is not one of auto, ivf, hnsw, flat"),
        ("softmax", ["--recall", "1.2"], "at most 1"),
    ],
)
def test_what_cannot_be_indexed_is_refused(
    tmp_path: Path, cli: Cli, output: str, words: list[str], message: str
) -> None:
    untrained(tmp_path / "model", output)
    found = cli("index", tmp_path / "model", *words)
    assert (found.code, found.out) == (2, "")
    assert message in found.error
