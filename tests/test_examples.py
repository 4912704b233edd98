"""Every script in `examples/` runs; each checks its own results."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(FOLDER.glob("*.py"))
SECONDS = 300
"""Far more than an example takes, so that one that hangs fails."""


def test_there_are_examples() -> None:
    assert {"nightly", "ab_test", "tracking", "cold_items", "update", "rules"} <= {script.stem for script in SCRIPTS}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_says_how_to_run_it(script: Path) -> None:
    words = ast.get_docstring(ast.parse(script.read_text(encoding="utf-8"))) or ""
    assert f"python examples/{script.name}" in words


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_an_example_runs(script: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(script)], cwd=tmp_path, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing in the folder where it is run"
