"""Unpacking a downloaded file: only the wanted members, into one folder, up to a limit.

An archive with a path that leaves the folder, or with a link, is refused whole.
"""

import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO

from abaca.errors import FetchError

LIMIT = 16 << 30
"""Bytes that one archive may unpack to; the largest known log has 6 GB."""

CHUNK = 1 << 20
BROKEN = (zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, gzip.BadGzipFile, RuntimeError)


def unpack(packed: Path, wanted: Sequence[Sequence[str]], to: Path, limit: int = LIMIT) -> list[Path]:
    """Write each wanted file into a folder; returns their paths. Patterns name a wanted file.

    A file that is not packed is given as it is.
    """
    try:
        if packed.suffix == ".zip":
            return _unzip(packed, wanted, to, limit)
        if ".tar" in packed.suffixes or packed.suffix == ".tgz":
            return _untar(packed, wanted, to, limit)
        if packed.suffix == ".gz":
            return [_copy(gzip.open(packed), to / packed.stem, limit, packed.name)]
    except BROKEN as error:
        raise FetchError(
            f"{packed} cannot be unpacked ({error}): it is damaged or cut short; delete it and fetch again"
        ) from error
    return [packed]


def _unzip(packed: Path, wanted: Sequence[Sequence[str]], to: Path, limit: int) -> list[Path]:
    with zipfile.ZipFile(packed) as archive:
        members = archive.infolist()
        for member in members:
            kind = stat.S_IFMT(member.external_attr >> 16)
            _check(packed, member.filename, plain=kind in (0, stat.S_IFREG, stat.S_IFDIR))
        names = [member.filename for member in members if not member.is_dir()]
        chosen = _choose(packed, names, wanted)
        return [_copy(archive.open(name), to / _base(name), limit, packed.name) for name in chosen]


def _untar(packed: Path, wanted: Sequence[Sequence[str]], to: Path, limit: int) -> list[Path]:
    with tarfile.open(packed) as archive:
        members = archive.getmembers()
        for member in members:
            _check(packed, member.name, plain=member.isfile() or member.isdir())
        chosen = _choose(packed, [member.name for member in members if member.isfile()], wanted)
        opened = [(archive.extractfile(name), _base(name)) for name in chosen]  # never None: links were refused
        return [_copy(source, to / name, limit, packed.name) for source, name in opened if source is not None]


def _check(packed: Path, name: str, *, plain: bool) -> None:
    """Refuse what could write outside the folder, whether it is wanted or not."""
    for path in (PurePosixPath(name), PureWindowsPath(name)):
        if path.is_absolute() or path.drive or ".." in path.parts:
            raise FetchError(f"{packed}: the archive holds {name!r}, a path that leaves its folder; it is not unpacked")
    if not plain:
        raise FetchError(f"{packed}: the archive holds {name!r}, a link or a device; it is not unpacked")


def _choose(packed: Path, names: Sequence[str], wanted: Sequence[Sequence[str]]) -> list[str]:
    chosen = []
    for patterns in wanted:
        found = [n for n in names for p in patterns if fnmatch(_base(n), p) and not n.startswith("__MACOSX")]
        if len(found) != 1:
            held = ", ".join(sorted(names)[:8]) or "nothing"
            count = "no" if not found else f"{len(found)} files called"
            raise FetchError(f"{packed}: the archive holds {count} {' or '.join(patterns)}; it holds {held}")
        chosen.append(found[0])
    return chosen


def _base(name: str) -> str:
    return PurePosixPath(name).name


def _copy(source: IO[bytes] | gzip.GzipFile, to: Path, limit: int, packed: str) -> Path:
    """Copy and count: the sizes that an archive states may be wrong."""
    done = 0
    with source, to.open("xb") as target:
        while chunk := source.read(CHUNK):
            done += len(chunk)
            if done > limit:
                raise FetchError(
                    f"{packed}: {to.name} unpacks to more than {limit:,} bytes; it is not unpacked further"
                )
            target.write(chunk)
    return to
