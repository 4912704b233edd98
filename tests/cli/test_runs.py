"""`abaca runs`, and `abaca train --track`, as commands."""

import re
from pathlib import Path

import pytest

from abaca.data.sequences import Sequences
from commandline import Cli

QUICK = ["--encoder", "gru4rec", "--output", "softmax", "--dim", "8", "--epochs", "2", "--batch-targets", "200"]


def test_runs_are_tracked_and_shown_side_by_side(cli: Cli, small: Sequences, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    models, page = tmp_path / "models", tmp_path / "runs.html"
    track = ["--track", f"tensorboard:{tmp_path / 'logs'}"]
    for name, rate in (("slow", "0.001"), ("fast", "0.02")):
        assert cli("train", small.path, models / name, *QUICK, "--lr", rate, *track).code == 0
    assert sorted(path.name for path in (tmp_path / "logs").iterdir()) == ["fast", "slow"]

    shown = cli("runs", models, "--page", page).done
    rows = [line for line in shown.splitlines() if "2 epochs" in line]
    found = cli("runs", models, "--json").json
    assert [run["options"]["lr"] for run in found] == [0.02, 0.001]
    for row, run in zip(rows, found, strict=True):
        assert run["name"] in row
        assert f"{run['best']:.4f}" in row
        assert re.search(r"[▁-█]{2}", row)
    assert "dropout" not in shown  # it is the same in both
    assert "the same in all: encoder gru4rec, output softmax" in shown

    html = page.read_text(encoding="utf-8")
    assert "<svg" in html
    assert all(f"<td>{run['best']:.4f}</td>" in html for run in found)
    assert not re.search(r"<(?:script|link|img)[^>]*(?:src|href)=", html)  # it loads nothing
