"""Downloading one file over HTTP: resumable, verified, and in its place only when it is whole.

`FILE.part` holds the bytes received so far. `FILE.part.json` holds the address, the size and
the server's name for its version (ETag or date), without which a download cannot resume.
"""

import http.client
import json
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit

from abaca.durable import checksum, locked, put_in_place
from abaca.errors import FetchError
from abaca.shapes import loads

Progress = Callable[[int, int | None], None]
"""Called with the bytes received so far, and with their total where the server states it."""

TIMEOUT_SECONDS = 60.0
ATTEMPTS = 5
"""How often a broken connection is tried; the bytes received are kept."""

PAUSE_SECONDS = 1.0
"""The pause before the second attempt; each later one is twice as long."""

CHUNK = 1 << 18
LARGEST = 1 << 37
"""Bytes of a file whose size neither the recipe nor the server states, at most."""
RESERVE = 1 << 28
"""Bytes of disk space that a download leaves free."""
BUSY = (408, 429, 500, 502, 503, 504)
"""HTTP status codes after which the request is repeated."""


@dataclass(frozen=True)
class Expected:
    """What is known of a file before it is downloaded."""

    bytes: int | None = None
    md5: str | None = None
    sha256: str | None = None


@dataclass(frozen=True)
class Version:
    """Which version of which file the bytes of a `.part` belong to."""

    address: str
    name: str | None
    """The server's ETag or date; None where it gives neither, and a download cannot resume."""
    total: int | None


class _Broken(Exception):
    """A connection broke off; the bytes received are kept and the rest can be requested."""


def download(address: str, to: Path, expected: Expected, progress: Progress | None = None) -> None:
    """Download a file, resuming an earlier attempt, verify it, and put it in its place."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise FetchError(f"{address!r} is not an address that begins with http:// or https://")
    to.parent.mkdir(parents=True, exist_ok=True)
    with locked(to.with_name(to.name + ".lock"), wait=False) as alone:
        if not alone:
            raise FetchError(f"{to} is being downloaded by another process; wait for it")
        part = to.with_name(to.name + ".part")
        _receive_all(address, part, expected, progress or (lambda done, total: None))
        try:
            verify(part, expected)
        except FetchError:
            _discard(part)
            raise
        put_in_place(part, to)
        _state(part).unlink(missing_ok=True)


def _receive_all(address: str, part: Path, expected: Expected, progress: Progress) -> None:
    """Request the file until all of it is there."""
    for attempt in range(ATTEMPTS):
        try:
            return _receive(address, part, expected, progress)
        except _Broken as error:
            if attempt == ATTEMPTS - 1:
                raise FetchError(f"{address}: {error}; what came is kept, run the command again to go on") from error
            time.sleep(PAUSE_SECONDS * 2**attempt)
    return None


def verify(file: Path, expected: Expected) -> None:
    """Compare a file with the size and the checksums that are known of it."""
    size = file.stat().st_size
    if expected.bytes is not None and size != expected.bytes:
        raise FetchError(f"{file.name} has {size:,} bytes where {expected.bytes:,} are expected{_CURE}")
    for kind, wanted in (("md5", expected.md5), ("sha256", expected.sha256)):
        if wanted is not None and (found := checksum(file, kind)) != wanted:
            raise FetchError(f"{file.name} has the {kind} {found} where {wanted} is expected{_CURE}")


_CURE = ": it is damaged, or its publisher changed it; fetch again, or take it as it is with --no-verify"


def _receive(address: str, part: Path, expected: Expected, progress: Progress) -> None:
    """Request the file, or the rest of it, and write what arrives."""
    begun = _begun(address, part)
    if begun is not None and begun.total == part.stat().st_size:
        return
    with _ask(address, part, begun) as answer:
        version = _version(address, answer)
        done = _rest_begins(answer, part, begun, version)
        if version.total is not None and version.total - done > shutil.disk_usage(part.parent).free:
            raise FetchError(f"{address} has {version.total:,} bytes, more than the free disk space of {part.parent}")
        if not done:
            _discard(part)  # first: bytes of one version must never be beside the name of another
        _state(part).write_text(json.dumps(asdict(version)), encoding="utf-8")
        most = LARGEST if expected.bytes is None else expected.bytes
        if version.total is not None:
            most = max(version.total, 0)
        with part.open("ab" if done else "wb") as target:
            while chunk := _read(answer):
                done += target.write(chunk)
                progress(done, version.total)
                _check_room(address, part, done, most)
    if version.total is not None and done != version.total:
        if done > version.total:
            _discard(part)
        raise _Broken(f"the connection ended after {done:,} of {version.total:,} bytes")


def _check_room(address: str, part: Path, done: int, most: int) -> None:
    """Refuse a file that goes on beyond its size, or fills the disk; what came is deleted."""
    if done > most:
        _discard(part)
        raise FetchError(f"{address} sends more than {most:,} bytes: it is not the file that is expected{_CURE}")
    if shutil.disk_usage(part.parent).free < RESERVE:
        _discard(part)
        raise FetchError(f"{address} has {done:,} bytes and more, and the disk of {part.parent} is nearly full")


def _ask(address: str, part: Path, begun: Version | None) -> http.client.HTTPResponse:
    headers = {"User-Agent": "abaca", "Accept-Encoding": "identity"}
    if begun is not None and begun.name is not None:
        headers |= {"Range": f"bytes={part.stat().st_size}-", "If-Range": begun.name}
    try:
        answer: http.client.HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(address, headers=headers), timeout=TIMEOUT_SECONDS
        )
    except urllib.error.HTTPError as error:
        with error:
            if error.code == 416 and begun is not None:
                _discard(part)
                raise _Broken("the file became shorter since the download began") from error
            if error.code in BUSY:
                raise _Broken(f"the server answers {error.code} {error.reason}") from error
            raise FetchError(f"{address}: the server answers {error.code} {error.reason}") from error
    except (urllib.error.URLError, OSError, http.client.HTTPException) as error:
        if begun is not None and part.stat().st_size:
            raise _Broken(f"cannot be reached ({_reason(error)})") from error
        raise FetchError(f"{address} cannot be reached ({_reason(error)})") from error
    if answer.headers.get_content_type() == "text/html":
        answer.close()
        raise FetchError(f"{address}: the server sends a web page where the file should be")
    return answer


def _read(answer: http.client.HTTPResponse) -> bytes:
    try:
        return answer.read(CHUNK)
    except (OSError, http.client.HTTPException) as error:
        raise _Broken(f"the connection broke ({_reason(error)})") from error


def _version(address: str, answer: http.client.HTTPResponse) -> Version:
    tag = answer.headers.get("ETag")
    name = tag if tag and not tag.startswith("W/") else answer.headers.get("Last-Modified")
    if answer.status == 206:
        _, total = _range(answer)
    else:
        length = answer.headers.get("Content-Length", "")
        total = int(length) if length.isdecimal() else None
    return Version(address, name, total)


def _rest_begins(answer: http.client.HTTPResponse, part: Path, begun: Version | None, version: Version) -> int:
    """Where the bytes of an answer belong: after those received, or at the start."""
    if answer.status != 206:
        return 0
    have = part.stat().st_size
    if version != begun or _range(answer)[0] != have:
        _discard(part)
        raise _Broken("the file changed since the download began")
    return have


def _range(answer: http.client.HTTPResponse) -> tuple[int | None, int | None]:
    """The first byte of a partial answer, and the size of the whole file."""
    found = re.fullmatch(r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", ""))
    if found is None:
        return None, None
    return int(found[1]), int(found[2]) if found[2] != "*" else None


def _begun(address: str, part: Path) -> Version | None:
    """The version of which an earlier attempt left bytes, if it can resume."""
    try:
        begun = Version(**loads(_state(part).read_text(encoding="utf-8")))
        resumes = begun.address == address and begun.name is not None and part.stat().st_size > 0
    except (OSError, ValueError, TypeError):
        return None
    return begun if resumes else None


def _discard(part: Path) -> None:
    part.unlink(missing_ok=True)
    _state(part).unlink(missing_ok=True)


def _state(part: Path) -> Path:
    return part.with_name(part.name + ".json")


def _reason(error: BaseException) -> str:
    return str(getattr(error, "reason", None) or error or type(error).__name__)
