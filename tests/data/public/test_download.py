"""Downloads over real HTTP: going on, verifying, and servers that do not help."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from abaca.data.public import download as module
from abaca.data.public.download import Expected, download
from abaca.durable import locked
from abaca.errors import FetchError
from data.public.web import Site, served

BODY = bytes(range(256)) * 2000
OTHER = BODY[::-1]
NOTHING = Expected()


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


@pytest.fixture
def site() -> Iterator[Site]:
    with served(Site({"log.csv": BODY})) as site:
        yield site


@pytest.fixture
def once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broken connection is not taken up again by itself."""
    monkeypatch.setattr(module, "ATTEMPTS", 1)


def get(site: Site, to: Path, expected: Expected = NOTHING) -> Path:
    file = to / "log.csv"
    download(f"{site.address}/log.csv", file, expected)
    return file


def broken_off(site: Site, to: Path, after: int) -> None:
    """Leave the first bytes of a download."""
    site.cuts.append(after)
    with pytest.raises(FetchError, match="run the command again to go on"):
        get(site, to)


def test_a_file_arrives_whole_and_leaves_nothing_beside_it(site: Site, tmp_path: Path) -> None:
    said: list[tuple[int, int | None]] = []
    file = tmp_path / "new" / "log.csv"
    download(f"{site.address}/log.csv", file, NOTHING, lambda done, total: said.append((done, total)))
    assert file.read_bytes() == BODY
    assert [path.name for path in file.parent.iterdir()] == ["log.csv"]
    assert said[-1] == (len(BODY), len(BODY))
    assert [done for done, _ in said] == sorted({done for done, _ in said})


def test_what_came_is_kept_and_only_the_rest_is_asked_for(site: Site, tmp_path: Path, once: None) -> None:
    broken_off(site, tmp_path, after=1000)
    assert not (tmp_path / "log.csv").exists()
    assert get(site, tmp_path).read_bytes() == BODY
    assert (site.asked[1]["Range"], site.asked[1]["If-Range"]) == ("bytes=1000-", '"v1"')


def test_a_broken_connection_is_taken_up_again(site: Site, tmp_path: Path) -> None:
    site.cuts = [1000, 2000, 3000]
    assert get(site, tmp_path).read_bytes() == BODY
    assert [asked.get("Range") for asked in site.asked] == [None, "bytes=1000-", "bytes=3000-", "bytes=6000-"]


def test_a_server_that_is_busy_is_asked_again(site: Site, tmp_path: Path) -> None:
    site.status = [503, 429]
    assert get(site, tmp_path).read_bytes() == BODY


def test_without_ranges_it_begins_anew(site: Site, tmp_path: Path, once: None) -> None:
    site.ranges = False
    broken_off(site, tmp_path, after=1000)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_date_will_do_where_there_is_no_strong_tag(site: Site, tmp_path: Path, once: None) -> None:
    site.etag, site.modified = 'W/"v1"', "Sun, 01 Feb 2015 10:00:00 GMT"
    broken_off(site, tmp_path, after=1000)
    assert get(site, tmp_path).read_bytes() == BODY
    assert site.asked[1]["If-Range"] == site.modified


def test_without_a_name_for_the_version_it_begins_anew(site: Site, tmp_path: Path, once: None) -> None:
    site.etag = None
    broken_off(site, tmp_path, after=1000)
    assert get(site, tmp_path).read_bytes() == BODY
    assert "Range" not in site.asked[1]


@pytest.mark.parametrize("heeds_if_range", [True, False])
@pytest.mark.parametrize("body", [OTHER, OTHER[:500], BODY + b"more"], ids=["same size", "shorter", "longer"])
def test_a_file_that_changed_meanwhile_is_never_mixed(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: bytes, heeds_if_range: bool
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(module, "ATTEMPTS", 1)
        broken_off(site, tmp_path, after=1000)
    site.files["log.csv"], site.etag, site.heeds_if_range = body, '"v2"', heeds_if_range
    assert get(site, tmp_path).read_bytes() == body


def test_a_crash_when_beginning_anew_leaves_no_bytes_of_the_old_version(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, once: None
) -> None:
    broken_off(site, tmp_path, after=1000)
    site.files["log.csv"], site.etag = OTHER, '"v2"'

    def crash(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "asdict", crash)
        with pytest.raises(KeyboardInterrupt):
            get(site, tmp_path)
    assert not list(tmp_path.iterdir())
    assert get(site, tmp_path).read_bytes() == OTHER


def test_another_address_does_not_go_on_with_these_bytes(site: Site, tmp_path: Path, once: None) -> None:
    broken_off(site, tmp_path, after=1000)
    site.files["mirror.csv"] = OTHER
    download(f"{site.address}/mirror.csv", tmp_path / "log.csv", NOTHING)
    assert (tmp_path / "log.csv").read_bytes() == OTHER


def test_a_download_that_was_complete_but_not_moved_is_not_asked_for_again(site: Site, tmp_path: Path) -> None:
    part = tmp_path / "log.csv.part"
    part.write_bytes(BODY)
    state = '{"address": "%s/log.csv", "name": "\\"v1\\"", "total": %d}'
    (tmp_path / "log.csv.part.json").write_text(state % (site.address, len(BODY)))
    assert get(site, tmp_path).read_bytes() == BODY
    assert not site.asked


def test_a_state_that_cannot_be_read_is_forgotten(site: Site, tmp_path: Path) -> None:
    (tmp_path / "log.csv.part").write_bytes(b"what is this")
    (tmp_path / "log.csv.part.json").write_text('["no"]')
    assert get(site, tmp_path).read_bytes() == BODY


def test_what_is_known_of_a_file_is_verified(site: Site, tmp_path: Path) -> None:
    known = Expected(len(BODY), hashlib.md5(BODY).hexdigest(), hashlib.sha256(BODY).hexdigest())
    assert get(site, tmp_path, known).exists()


@pytest.mark.parametrize(
    ("expected", "said"),
    [
        (Expected(bytes=7), "512,000 bytes where 7 are expected"),
        (Expected(md5="0" * 32), "has the md5 .* where 0{32} is expected"),
        (Expected(sha256="f" * 64), "has the sha256 .* where f{64} is expected"),
    ],
)
def test_a_wrong_file_is_refused_and_does_not_stay(site: Site, tmp_path: Path, expected: Expected, said: str) -> None:
    with pytest.raises(FetchError, match=said):
        get(site, tmp_path, expected)
    assert not list(tmp_path.iterdir())


def test_a_cut_file_whose_size_nobody_says_is_found_by_its_checksum(site: Site, tmp_path: Path) -> None:
    site.says_length, site.cuts = False, [1000]
    with pytest.raises(FetchError, match="sha256"):
        get(site, tmp_path, Expected(sha256=hashlib.sha256(BODY).hexdigest()))


def test_a_web_page_is_not_a_file(site: Site, tmp_path: Path) -> None:
    site.content_type = "text/html; charset=utf-8"
    with pytest.raises(FetchError, match="sends a web page"):
        get(site, tmp_path)


def test_an_answer_that_says_no(site: Site, tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="answers 404 Not Found"):
        download(f"{site.address}/gone.csv", tmp_path / "gone.csv", NOTHING)


def test_offline(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match="cannot be reached"):
        download("http://127.0.0.1:9/log.csv", tmp_path / "log.csv", NOTHING)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("address", ["nonsense", "file:///etc/hostname", "ftp://127.0.0.1/log.csv"])
def test_only_http_is_spoken(tmp_path: Path, address: str) -> None:
    with pytest.raises(FetchError, match="begins with http"):
        download(address, tmp_path / "log.csv", NOTHING)


def test_a_second_process_is_sent_away(site: Site, tmp_path: Path) -> None:
    with locked(tmp_path / "log.csv.lock"), pytest.raises(FetchError, match="by another process"):
        get(site, tmp_path)
    assert get(site, tmp_path).read_bytes() == BODY


def test_a_file_for_which_there_is_no_room(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda _: module.shutil._ntuple_diskusage(10, 10, 0))
    with pytest.raises(FetchError, match="more than the free disk space"):
        get(site, tmp_path)


@pytest.mark.parametrize("known", [True, False])
def test_a_publisher_that_streams_without_end_is_left(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, known: bool
) -> None:
    """It stops at the size that is expected; where none is known, at a limit."""
    site.says_length, site.endless = False, True
    monkeypatch.setattr(module, "LARGEST", 3_000_000)
    most = f"{len(BODY):,}" if known else "3,000,000"
    with pytest.raises(FetchError, match=rf"sends more than {most} bytes"):
        get(site, tmp_path, Expected(bytes=len(BODY)) if known else NOTHING)
    site.endless = False
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == []


def test_a_download_leaves_room_on_the_disk(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "RESERVE", 1 << 60)
    site.says_length = False
    with pytest.raises(FetchError, match="is nearly full"):
        get(site, tmp_path)
    assert [path.name for path in tmp_path.iterdir() if "lock" not in path.name] == []
