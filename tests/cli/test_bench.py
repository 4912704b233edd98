"""`abaca bench`: what it prints and writes, on sizes that take no time."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from abaca.cli.bench import bench
from abaca.data.sequences import Sequences
from abaca.errors import SpecError

SMALL = ["--items", "600", "--rows", "20", "--history", "10", "--dim", "8", "--no-memory"]
STEP = ["--encoder", "gru4rec", "--output", "softmax", "--output", "softmax+CPR:5", "--no-memory"]


def run(*words: object) -> str:
    """What a command prints; its errors are raised here."""
    return CliRunner().invoke(bench, [str(word) for word in words], catch_exceptions=False).stdout


def test_json_is_a_list_with_cpu_wall_and_peak_of_every_contender() -> None:
    found = json.loads(run("loss", *SMALL, "--json"))
    assert [one["name"] for one in found] == [
        "gemm", "softmax", "softmax-materialised", "softmax-chunked", "C", "CP", "CPR:100", "CPR:20,100,500",
    ]  # fmt: skip
    for one in found:
        assert one["cpu_ms"] > 0
        assert one["wall_ms"] > 0
        assert len(one["runs_cpu_ms"]) == 5
        assert "peak_mb" in one
        assert one["targets"] == 20
    assert found[0]["cpu_to_gemm"] == 1


def test_without_json_there_is_a_table_and_a_folder_gets_three_files(tmp_path: Path) -> None:
    shown = run("loss", *SMALL, "--only", "gemm", "--only", "CP", "--to", tmp_path / "out")
    assert "gemm" in shown
    assert "CPR:100" not in shown
    document = json.loads((tmp_path / "out" / "loss.json").read_text())
    assert document["settings"] == {"items": 600, "rows": 20, "dim": 8, "history": 10}
    assert [one["name"] for one in document["results"]] == ["gemm", "CP"]
    assert (tmp_path / "out" / "loss.md").read_text().count("\n| ") == 3
    assert (tmp_path / "out" / "loss.svg").read_text().startswith("<svg")


def test_a_prepared_log_can_be_trained_on_and_ranked(small: Sequences) -> None:
    steps = json.loads(run("step", small.path, *STEP, "--batch-targets", 100, "--steps", 1, "--json"))
    assert [one["name"] for one in steps] == ["gru4rec softmax", "gru4rec softmax+CPR:5"]
    assert steps[1]["cpu_to_softmax"] > 0
    ranked = json.loads(run("evaluate", small.path, *STEP, "--json"))
    assert {one["targets"] for one in ranked} == {60}


def test_growth_takes_lists_of_sizes() -> None:
    sizes = ["--items", "40,60", "--histories", "5", "--threads", "1", "--rows", "20", "--middle", "60"]
    found = json.loads(run("growth", *sizes, "--encoder", "gru4rec", "--no-memory", "--json"))
    assert [one["name"] for one in found] == ["40 items, history 5, 1 thread", "60 items, history 5, 1 thread"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["loss", "--repetitions", "2"], "at least 5"),
        (["loss", "--threads", "0"], "--threads must be at least 1"),
        (["loss", *SMALL, "--only", "GEMM"], "no contender GEMM"),
        (["growth", "--items", "many"], "not a list of whole numbers"),
        (["step", "nothing"], "nothing is not a prepared folder; abaca prepare"),
        (["step", "SEQUENCES", "--encoder", "bert"], "'bert' is not one of"),
    ],
)
def test_mistakes_are_named(small: Sequences, words: list[str], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        run(*(small.path if word == "SEQUENCES" else word for word in words))


@pytest.mark.parametrize("command", ["loss", "step", "evaluate", "growth"])
def test_help_teaches(command: str) -> None:
    assert f"Example: abaca bench {command}" in " ".join(run(command, "--help").replace("│", " ").split())
