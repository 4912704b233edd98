"""Archives of others: what is wanted comes out, and nothing gets out of the folder."""

import gzip
import io
import stat
import tarfile
import zipfile
from pathlib import Path

import pytest

from abaca.data.public.unpack import unpack
from abaca.errors import FetchError

LOG = b"1::2::5::3\n" * 1000


def zipped(path: Path, members: dict[str, bytes], mode: int = 0) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name)
            member.external_attr = mode << 16
            member.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(member, content)
    return path


def tarred(path: Path, members: dict[str, bytes], **changes: object) -> Path:
    with tarfile.open(path, "w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, content in members.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            for field, value in changes.items():
                setattr(member, field, value)
            archive.addfile(member, io.BytesIO(content))
    return path


@pytest.fixture
def to(tmp_path: Path) -> Path:
    folder = tmp_path / "raw"
    folder.mkdir()
    return folder


@pytest.mark.parametrize("pack", [zipped, tarred])
def test_only_what_is_wanted_is_unpacked_and_folders_are_left_out(pack, tmp_path: Path, to: Path) -> None:
    name = "set.zip" if pack is zipped else "set.tgz"
    packed = pack(tmp_path / name, {"set/ratings.dat": LOG, "set/movies.dat": b"films", "set/README": b"hello"})
    found = unpack(packed, [("ratings.dat",), ("movies.dat",)], to)
    assert [path.read_bytes() for path in found] == [LOG, b"films"]
    assert sorted(path.name for path in to.iterdir()) == ["movies.dat", "ratings.dat"]


def test_a_gzipped_file_loses_its_ending(tmp_path: Path, to: Path) -> None:
    packed = tmp_path / "checkins.txt.gz"
    packed.write_bytes(gzip.compress(LOG))
    assert unpack(packed, [("checkins.txt.gz",)], to) == [to / "checkins.txt"]
    assert (to / "checkins.txt").read_bytes() == LOG


def test_a_file_that_is_not_packed_is_given_as_it_is(tmp_path: Path, to: Path) -> None:
    plain = tmp_path / "ratings.csv"
    plain.write_bytes(LOG)
    assert unpack(plain, [("ratings.csv",)], to) == [plain]
    assert not list(to.iterdir())


@pytest.mark.parametrize("name", ["../evil", "set/../../evil", "/etc/evil", "C:\\evil", "..\\evil", "\\\\host\\evil"])
@pytest.mark.parametrize("pack", [zipped, tarred])
def test_a_path_that_leaves_the_folder_is_refused(pack, name: str, tmp_path: Path, to: Path) -> None:
    packed = pack(tmp_path / ("set.zip" if pack is zipped else "set.tar"), {"ratings.dat": LOG, name: b"x"})
    with pytest.raises(FetchError, match="leaves its folder"):
        unpack(packed, [("ratings.dat",)], to)
    assert not list(to.iterdir())


def test_a_wanted_file_under_a_hostile_path_is_refused_too(tmp_path: Path, to: Path) -> None:
    packed = zipped(tmp_path / "set.zip", {"../../ratings.dat": LOG})
    with pytest.raises(FetchError, match="leaves its folder"):
        unpack(packed, [("ratings.dat",)], to)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["raw", "set.zip"]


def test_links_and_devices_are_refused(tmp_path: Path, to: Path) -> None:
    link = zipped(tmp_path / "set.zip", {"ratings.dat": b"/etc/passwd"}, mode=stat.S_IFLNK | 0o777)
    for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
        packed = tarred(tmp_path / "set.tar", {"ratings.dat": b""}, type=kind, linkname="/etc/passwd")
        with pytest.raises(FetchError, match="a link or a device"):
            unpack(packed, [("ratings.dat",)], to)
    with pytest.raises(FetchError, match="a link or a device"):
        unpack(link, [("ratings.dat",)], to)
    assert not list(to.iterdir())


@pytest.mark.parametrize("ending", ["zip", "tgz", "gz"])
def test_a_bomb_stops_at_the_limit(ending: str, tmp_path: Path, to: Path) -> None:
    bomb, packed = bytes(5_000_000), tmp_path / f"ratings.dat.{ending}"
    if ending == "gz":
        packed.write_bytes(gzip.compress(bomb))
    else:
        (zipped if ending == "zip" else tarred)(packed, {"ratings.dat": bomb})
    with pytest.raises(FetchError, match="more than 2,000,000 bytes"):
        unpack(packed, [("ratings.dat",)], to, limit=2_000_000)
    assert sum(path.stat().st_size for path in to.iterdir()) <= 2_000_000


@pytest.mark.parametrize("ending", ["zip", "tgz", "gz"])
def test_a_cut_archive_is_an_error_in_words(ending: str, tmp_path: Path, to: Path) -> None:
    packed = tmp_path / f"ratings.dat.{ending}"
    content = bytes(range(256)) * 400
    if ending == "gz":
        packed.write_bytes(gzip.compress(content))
    else:
        (zipped if ending == "zip" else tarred)(packed, {"ratings.dat": content})
    packed.write_bytes(packed.read_bytes()[:-40])
    with pytest.raises(FetchError, match=r"cannot be unpacked .* delete it and fetch again"):
        unpack(packed, [("ratings.dat",)], to)


def test_a_member_that_was_tampered_with_fails_its_checksum(tmp_path: Path, to: Path) -> None:
    packed = tmp_path / "set.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("ratings.dat", LOG)
    packed.write_bytes(packed.read_bytes().replace(b"1::2", b"9::9", 1))
    with pytest.raises(FetchError, match="Bad CRC"):
        unpack(packed, [("ratings.dat",)], to)


def test_an_archive_without_the_log_says_what_it_holds(tmp_path: Path, to: Path) -> None:
    packed = zipped(tmp_path / "set.zip", {"notes.txt": b"", "two/a.inter": LOG, "two/b.inter": LOG})
    with pytest.raises(FetchError, match=r"holds no ratings\.dat; it holds notes\.txt, two/a\.inter"):
        unpack(packed, [("ratings.dat",)], to)
    with pytest.raises(FetchError, match=r"holds 2 files called \*\.inter"):
        unpack(packed, [("*.inter",)], to)
