"""README and docs are true: code blocks run, links lead somewhere, options are those of the code, prose is plain."""

import ast
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import abaca
import forked
from abaca.nn.encoders.gru4rec import GRU4RecOptions
from abaca.nn.encoders.hstu import HSTUOptions
from abaca.nn.encoders.sasrec import SASRecOptions
from abaca.options import training_defaults
from abaca.training.update import UpdateOptions

ROOT = Path(__file__).parent.parent
OWN = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
]
PAGES = [*OWN, *sorted((ROOT / "studies").rglob("README.md"))]
BLOCK = re.compile(r"^```(\w+)(?: title=\"([\w.]+)\")?\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
GENERATED = ("cli.md", "http.md")
NOT_RUN = ("make", "git", "pip", "cd", "pre-commit")

LONGEST_SENTENCE, LONGEST_LINE = 25, 100


def blocks(page: Path, *languages: str) -> list[tuple[str, str, str]]:
    """The page's code blocks in some languages, in their order: the language, the title and the code."""
    return [found for found in BLOCK.findall(page.read_text(encoding="utf-8")) if found[0] in languages]


def shown(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small log of purchases that the pages use, its item table, and a model of it."""
    folder = tmp_path_factory.mktemp("stock")
    rng = np.random.default_rng(0)
    names = np.array(["milk", "bread", "tea", "rice", "soap", "jam", "salt", "oats"])
    customers = np.repeat([f"c{i}" for i in range(40)], 12)
    times = 1_700_000_000 + 3600 * np.arange(len(customers))
    rows = {"customer": customers, "sku": rng.choice(names, len(customers)), "ts": times}
    pq.write_table(pa.table(rows), folder / "purchases.parquet")
    pq.write_table(pa.table({"id": names, "title": [name.title() for name in names]}), folder / "products.parquet")
    log = abaca.read_log(folder / "purchases.parquet", user="customer", item="sku", time="ts")
    abaca.Recommender("gru4rec", epochs=1).fit(log, items=folder / "products.parquet").save(folder / "model")
    return folder


@pytest.fixture
def shop(stock: Path, tmp_path: Path) -> Path:
    """A folder for the commands of one page."""
    shutil.copytree(stock, tmp_path, dirs_exist_ok=True)
    return tmp_path


def commands(language: str, code: str) -> list[tuple[dict[str, str], list[str]]]:
    """A block as commands: Python as one, a shell's line by line; what sets up an environment is left out."""
    if language == "python":
        return [({}, ["-c", code])]
    lines = [shlex.split(line, comments=True) for line in code.splitlines()]
    words = [line for line in lines if line and line[0] not in NOT_RUN]
    settings = [[word for word in line if word.startswith("ABACA_")] for line in words]
    words = [line[len(given) :] for line, given in zip(words, settings, strict=True)]
    assert all(line[0] == "abaca" for line in words), code
    named = [dict(word.split("=", 1) for word in given) for given in settings]
    return [(given, line[1:]) for line, given in zip(words, named, strict=True)]


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python", "sh")], ids=shown)
def test_code_blocks_run_in_their_order(shop: Path, page: Path) -> None:
    """A page that trains a model begins without one."""
    if "abaca train" in page.read_text(encoding="utf-8"):
        shutil.rmtree(shop / "model")
    for language, title, code in blocks(page, "python", "sh"):
        if title:  # a file that later blocks import
            (shop / title).write_text(code, encoding="utf-8")
            continue
        for environment, words in commands(language, code):
            status, printed = forked.run(words, shop, environment)
            assert status == 0, f"{code}\n{printed}"


def test_make_targets_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    named = {match for page in PAGES for match in re.findall(r"`?make ([a-z]+)`?", page.read_text(encoding="utf-8"))}
    assert {"demo", "test"} <= named
    assert {name for name in named if name in ("demo", "test", "check", "bench", "docs", "wheel", "setup")} <= targets


@pytest.mark.parametrize("page", PAGES, ids=shown)
def test_links_lead_to_files(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "mailto:")) and target not in GENERATED:
            assert (page.parent / target).exists(), f"{page.relative_to(ROOT)} links to {target}"


@pytest.mark.slow
def test_the_site_builds_strictly_and_asks_nobody_for_files(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    pages = list(tmp_path.rglob("*.html"))
    assert {"index.html", "api.html", "cli.html", "http.html", "options.html"} <= {page.name for page in pages}
    for page in pages:
        outside = re.findall(r"<(?:script|link|img)[^>]*(?:src|href)=\"https?:[^>]*>", page.read_text(encoding="utf-8"))
        assert not outside, page.name


def test_every_file_names_the_same_version() -> None:
    citation = re.search(r"^version: (\S+)$", (ROOT / "CITATION.cff").read_text(encoding="utf-8"), re.MULTILINE)
    newest = re.search(
        r"^## (\S+) \(\d{4}-\d\d-\d\d\)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"]
    assert citation is not None
    assert newest is not None
    assert {project, citation[1], newest[1]} == {abaca.__version__}


def table(heading: str) -> dict[str, str]:
    """The options under a heading of the page of options, each with its default as it is written there."""
    text = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    section = text.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    rows = [
        [cell.strip(" *`") for cell in line.strip("|").split("|")] for line in section.splitlines() if line[:1] == "|"
    ]
    return {name: default for name, default, *_ in rows[2:]}


def written(value: Any) -> str:
    """A default as the page writes it."""
    if value is None or value in ((), ""):
        return "none"
    return f"{value:g}" if isinstance(value, float) else str(value).lower() if isinstance(value, bool) else str(value)


@pytest.mark.parametrize(
    ("heading", "kind"),
    [
        ("Encoder: SASRec", SASRecOptions),
        ("Encoder: GRU4Rec", GRU4RecOptions),
        ("Encoder: HSTU", HSTUOptions),
        ("Preparing a log", abaca.PrepareOptions),
        ("Updating", UpdateOptions),
        ("Recommending", abaca.Policy),
    ],
)
def test_the_page_of_options_has_those_of_the_code(heading: str, kind: Any) -> None:
    defaults = {field.name: written(field.default) for field in fields(kind)}
    defaults |= {"valid_from": "80%", "test_from": "90%"} if "valid_from" in defaults else {}
    assert table(heading) == defaults


def test_the_page_of_options_has_those_of_training() -> None:
    each = [training_defaults(encoder) for encoder in ("sasrec", "gru4rec", "hstu")]
    defaults = {}
    for field in fields(abaca.TrainingOptions):
        found = [written(getattr(options, field.name)) for options in each]
        defaults[field.name] = found[0] if len(set(found)) == 1 else ", ".join(found)
    assert table("Training") == defaults


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    documented = {name.rsplit(".", 1)[-1] for name in re.findall(r"^::: (\S+)", page, re.MULTILINE)}
    if "errors" in documented:
        tree = ast.parse((ROOT / "src" / "abaca" / "errors.py").read_text(encoding="utf-8"))
        documented |= {node.name for node in tree.body if isinstance(node, ast.ClassDef)}
    assert set(abaca.__all__) - {"__version__"} <= documented


def paragraphs(text: str) -> list[str]:
    """The prose of a page: paragraphs, entries of lists and cells of tables, each on one line."""
    text = re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(?:#|:::|    |!\[|<).*$", "", text, flags=re.MULTILINE)
    text = re.sub(r"^\s*(?:[*-]|\d+\.|>) +", "\n", text, flags=re.MULTILINE)
    cells = [cell for line in re.findall(r"^\|(.*)\|$", text, re.MULTILINE) for cell in line.split("|")]
    prose = re.sub(r"^\|.*$", "\n", text, flags=re.MULTILINE)
    return [" ".join(part.split()) for part in [*re.split(r"\n\s*\n", prose), *cells]]


@pytest.mark.parametrize("page", OWN, ids=shown)
def test_prose_is_short_and_wrapped(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "!", "    "))]
    assert not [line for line in lines if len(line) > LONGEST_LINE]
    for paragraph in paragraphs(text):
        plain = re.sub(r"`[^`]*`", "code", re.sub(r"\]\([^)]*\)", "]", paragraph))
        for sentence in re.split(r"(?<=[.!?:;])[\"*_)\]]*\s+", plain):
            assert len(re.findall(r"\S*\w\S*", sentence)) <= LONGEST_SENTENCE, sentence
