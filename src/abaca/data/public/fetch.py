"""Fetching a public data set: download it or take a local file, unpack it, convert it to a log.

A fetched folder holds `log.parquet`, perhaps `items.parquet`, and `source.json`, written last.
"""

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from abaca.data.public.download import Expected, Progress, download, verify
from abaca.data.public.layouts import convert, count, write_titles
from abaca.data.public.sources import Origin, Recipe
from abaca.data.public.unpack import unpack
from abaca.durable import LOCK, checksum, locked, put_in_place
from abaca.errors import FetchError, without_passwords
from abaca.shapes import loads

DOWNLOADS = "downloads"
"""The folder, within that of a data set, of the files as their publisher gives them."""

SOURCE = "source.json"


@dataclass(frozen=True)
class Fetched:
    """A data set on disk."""

    recipe: Recipe
    folder: Path
    facts: dict[str, Any]
    """The content of `source.json`: address, checksum, counts, licence, the paper's filters."""

    @property
    def log(self) -> Path:
        """The log, which `abaca prepare` reads."""
        return self.folder / "log.parquet"

    @property
    def items(self) -> Path | None:
        """The item table with titles, where the source has one."""
        path = self.folder / "items.parquet"
        return path if path.exists() else None

    @property
    def surprises(self) -> dict[str, tuple[int, int]]:
        """Counts that differ from the known ones: (found, expected)."""
        found: dict[str, int] = self.facts["counts"]
        due = self.recipe.counts.items()
        return {name: (found[name], count) for name, count in due if found.get(name, count) != count}

    def prepare_command(self) -> list[str]:
        """How to prepare the log as the paper did."""
        titles = [] if self.items is None else ["--items", str(self.items)]
        filters = ["--min-user", str(self.recipe.min_user), "--min-item", str(self.recipe.min_item)]
        return ["abaca", "prepare", str(self.log), str(self.folder / "sequences"), *filters, *titles]


def fetch(
    recipe: Recipe,
    to: Path,
    *,
    place: str = "publisher",
    address: str | None = None,
    verified: bool = True,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Fetched:
    """Make a data set's folder below `to`; a complete one is returned as it is.

    `address` replaces the recipe's. `verified=False` accepts a file of another size or checksum.
    """
    origin = recipe.origin(place)
    folder = to / (recipe.name if place == "publisher" else f"{recipe.name}-{place}")
    if (folder / SOURCE).exists() and not overwrite:
        return Fetched(recipe, folder, _read_facts(folder / SOURCE))
    expected = Expected(origin.bytes, origin.md5, origin.sha256) if verified else Expected()
    file = _obtain(recipe, origin, folder / DOWNLOADS, address, expected, progress)
    facts = {
        "name": recipe.name, "from": place, "address": _address_of(file), "file": file.name,
        "bytes": file.stat().st_size, "sha256": checksum(file), "page": recipe.page, "licence": recipe.licence,
        "cite": recipe.cite, "filters": {"min_user": recipe.min_user, "min_item": recipe.min_item},
    }  # fmt: skip
    _convert(file, origin, folder, facts)
    return Fetched(recipe, folder, facts)


def _obtain(
    recipe: Recipe, origin: Origin, downloads: Path, address: str | None, expected: Expected, progress: Progress | None
) -> Path:
    """The publisher's file: one that is there, or the download."""
    downloads.mkdir(parents=True, exist_ok=True)
    there = [downloads / name for name in origin.layouts if (downloads / name).is_file()]
    before = _address_of(there[0]) if there else None
    if before is not None and address is not None and without_passwords(address) != before:
        there = []  # it was downloaded from elsewhere
    if there:
        if there[0].name == origin.file:
            with _naming(there[0]):
                verify(there[0], expected)
        return there[0]
    place, address = downloads / origin.file, address or origin.address
    if address is None:
        raise FetchError(
            f"{recipe.title} has to be fetched by hand: {origin.by_hand} ({recipe.page}); put the file at {place} and "
            f"run this command again{_or_recbole(recipe, origin)}"
        )
    try:
        download(address, place, expected, progress)
    except FetchError as error:
        raise FetchError(
            f"{error}. You can also get it in another way ({recipe.page}), put it at {place} and run this command again"
            f"{_or_recbole(recipe, origin)}"
        ) from error
    _sidecar(place).write_text(without_passwords(address) + "\n", encoding="utf-8")
    return place


def _sidecar(file: Path) -> Path:
    """The file that holds the address of a downloaded one."""
    return file.with_name(f"{file.name}.address")


def _address_of(file: Path) -> str | None:
    """The address of a file; None if it was put there by hand."""
    return _sidecar(file).read_text(encoding="utf-8").strip() if _sidecar(file).exists() else None


@contextmanager
def _naming(file: Path) -> Iterator[None]:
    """Add to an error which file to delete."""
    try:
        yield
    except FetchError as error:
        raise FetchError(f"{error}. It is {file}: delete that file to download it again") from error


def _or_recbole(recipe: Recipe, origin: Origin) -> str:
    offered = recipe.recbole is not None and origin is recipe.publisher
    return "; or take RecBole's copy with --from recbole, under the publisher's terms" if offered else ""


def _convert(file: Path, origin: Origin, folder: Path, facts: dict[str, Any]) -> None:
    """Unpack and convert in a draft folder; put the files in their place, `source.json` last."""
    wanted = [origin.log or (file.name,), *([(origin.titles,)] if origin.titles else [])]
    with locked(folder / LOCK), tempfile.TemporaryDirectory(dir=folder, prefix=".draft-") as made:
        draft = Path(made)
        for left in folder.glob(".draft-*"):
            if left != draft:  # a process that was killed left it
                shutil.rmtree(left, ignore_errors=True)
        raw = draft / "raw"
        raw.mkdir()
        with _naming(file):
            log, *titles = unpack(file, wanted, raw)
        facts["bad_rows"] = convert(log, origin.layouts[file.name], origin, draft / "log.parquet")
        facts["counts"] = count(draft / "log.parquet")
        if titles:
            write_titles(titles[0], draft / "items.parquet")
        (draft / SOURCE).write_text(json.dumps(facts, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / SOURCE).unlink(missing_ok=True)
        for name in ("items.parquet", "log.parquet", SOURCE):
            if (draft / name).exists():
                put_in_place(draft / name, folder / name)


def _read_facts(file: Path) -> dict[str, Any]:
    try:
        facts = loads(file.read_text(encoding="utf-8"))
        return {"counts": {}, **facts}
    except (OSError, ValueError, TypeError) as error:
        raise FetchError(f"{file} cannot be read ({error}); fetch again with --overwrite") from error
