"""README and docs are true: their code blocks run, their links lead somewhere."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "studies").rglob("README.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")


def blocks(page: Path, language: str) -> list[str]:
    """The page's code blocks in a language, in their order."""
    return [code for kind, code in BLOCK.findall(page.read_text(encoding="utf-8")) if kind == language]


def pages_with(language: str) -> list[Path]:
    return [page for page in PAGES if blocks(page, language)]


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the small log of purchases that the pages speak of."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    names = np.array(["milk", "bread", "tea", "rice", "soap", "jam", "salt", "oats"])
    customers = np.repeat([f"c{i}" for i in range(40)], 12)
    rows = {"customer": customers, "sku": rng.choice(names, len(customers)), "ts": np.arange(len(customers))}
    pq.write_table(pa.table(rows), tmp_path / "purchases.parquet")
    pq.write_table(pa.table({"id": names, "title": [name.title() for name in names]}), tmp_path / "products.parquet")
    return tmp_path


@pytest.mark.parametrize("page", pages_with("python"), ids=shown)
def test_python_blocks_run(shop: Path, page: Path) -> None:
    for code in blocks(page, "python"):
        done = subprocess.run([sys.executable, "-c", code], cwd=shop, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{code}\n{done.stderr}"


@pytest.mark.parametrize("page", pages_with("sh"), ids=shown)
def test_shell_blocks_run(shop: Path, page: Path) -> None:
    for line in "".join(blocks(page, "sh")).splitlines():
        words = shlex.split(line, comments=True)
        if not words or words[0] in ("make", "git", "pip", "cd"):
            continue
        assert words[0] == "abaca", f"{shown(page)}: what is {words[0]}?"
        done = subprocess.run([sys.executable, "-m", *words], cwd=shop, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {match for page in PAGES for match in re.findall(r"`?make ([a-z]+)`?", page.read_text(encoding="utf-8"))}
    assert {"demo", "test"} <= named
    assert {name for name in named if name in ("demo", "test", "check", "bench", "docs", "wheel", "setup")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"
