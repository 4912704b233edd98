"""From a publisher's file to a log, over real HTTP, with files of the shapes that publishers give."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.public import download
from abaca.data.public.fetch import fetch
from abaca.data.public.sources import Recipe, find_recipe
from abaca.durable import LOCK, locked
from abaca.errors import FetchError
from data.public.web import Site, served
from data.samples import histories


def zip_of(**members: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in members.items():
            archive.writestr(f"folder/{name.replace('__', '.')}", content)
    return packed.getvalue()


def tar_of(name: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
    return packed.getvalue()


def lines(*rows: str) -> bytes:
    return "".join(f"{row}\n" for row in rows).encode()


RATINGS = zip_of(
    ratings__dat=lines(
        "1::1193::5::978300760", "1::661::3::978302109", "2::1193::4::978298413", "2::661::4::978298413"
    ),
    movies__dat="661::James and the Giant Peach (1996)::Animation\n1193::Amélie: Un destin::Drama\n".encode("latin-1"),
)
AMAZON = lines("A39HTATAQ9V7YF,0205616461,5.0,1369699200", "A3JM6GV9MNOF9X,0558925278,3.0,1355443200")
REVIEWS = gzip.compress(
    lines('{"reviewerID": "A1", "asin": "B1", "reviewText": "5 stars, \\"wow\\"", "unixReviewTime": 1369699200}')
)
GOWALLA = gzip.compress(
    lines(
        "0\t2010-10-19T23:55:27Z\t30.2359091167\t-97.7951395833\t22847",
        "0\t2010-10-18T22:17:43Z\t30.2691029532\t-97.7493953705\t420315",
    )
)
STEAM = gzip.compress(
    lines(
        "{u'username': u'Chaos Syren', u'product_id': u'725280', u'date': u'2017-12-17', u'text': u\"it's\"}",
        "{u'username': u'\\u2665 Ariman', u'product_id': u'328100', u'date': u'2017-08-02', u'early_access': False}",
        "{u'username': __import__('os').getcwd(), u'product_id': u'1', u'date': u'2017-08-02'}",
        "{u'username': u'cut off', u'product_id':",
    )
)
YOOCHOOSE = lines("1,2014-04-07T10:51:09.277Z,214536502,0", "1,2014-04-07T10:54:09.868Z,214536500,0")
TWITCH = lines("1,33842865744,mithrain,154,156", "1,33846768288,alptv,166,169")
TMALL = zip_of(
    ijcai2016_taobao__csv=lines(
        "use_ID,sel_ID,ite_ID,cat_ID,act_ID,time", "1980536,9666,1857899,1,1,20151112", "1980536,9666,77,1,0,20151113"
    )
)
ALGEBRA = zip_of(
    algebra_2008_2009_train__txt=lines(
        "Row\tAnon Student Id\tProblem Hierarchy\tProblem Name\tProblem View\tStep Name\tStep Start Time\t"
        "First Transaction Time\tCorrect Transaction Time",
        "1\tstu_de2777346f\tUnit CTA1_01, Section X-1\tREAL20B\t1\tR2C1\t2008-09-19 13:30:46.0\t2008-09-19 13:30:47.0",
        '2\tstu_de2777346f\tUnit CTA1_01, Section X-1\tREAL20B\t1\t3x + "1" = 2\t\t2008-09-19 13:30:52.0\t',
    )
)
YELP = lines('{"user_id": "bv2nCi5Qv5vroFiqKGopiw", "business_id": "AEx2SYEUJmTxVVB18LlCwA", "date": "2016-05-28"}')
INTER = lines(
    "user_id:token\titem_id:token\trating:float\ttimestamp:float", "1\t1193\t5\t978300760", "2\t661\t3\t978302109"
)
STEPS = lines(
    "raw:float\tstudent_id:token\tproblem_step_name:token\tstep_start_time:float",
    "1\ts1\tP<S\t5.0",
    '2\ts1\t"P<""S"""\t6.0',
)

SHAPES: dict[tuple[str, str], tuple[bytes, list[tuple[str, str, float]]]] = {
    ("ml-1m", "ml-1m.zip"): (
        RATINGS,
        [("1", "1193", 978300760), ("1", "661", 978302109), ("2", "1193", 978298413), ("2", "661", 978298413)],
    ),
    ("amazon-beauty", "ratings_Beauty.csv"): (
        AMAZON,
        [("A39HTATAQ9V7YF", "0205616461", 1369699200), ("A3JM6GV9MNOF9X", "0558925278", 1355443200)],
    ),
    ("amazon-books", "reviews_Books.json.gz"): (REVIEWS, [("A1", "B1", 1369699200)]),
    ("gowalla", "loc-gowalla_totalCheckins.txt.gz"): (
        GOWALLA,
        [("0", "22847", 1287532527), ("0", "420315", 1287440263)],
    ),
    ("steam", "steam_reviews.json.gz"): (
        STEAM,
        [("Chaos Syren", "725280", 1513468800), ("♥ Ariman", "328100", 1501632000)],
    ),
    ("yoochoose-clicks", "yoochoose-clicks.dat"): (
        YOOCHOOSE,
        [("1", "214536502", 1396867869.277), ("1", "214536500", 1396868049.868)],
    ),
    ("twitch-100k", "100k_a.csv"): (TWITCH, [("1", "33842865744", 92400), ("1", "33846768288", 99600)]),
    ("tmall-buy", "IJCAI16_data.zip"): (TMALL, [("1980536", "1857899", 1447286400)]),
    ("algebra", "algebra_2008_2009.zip"): (
        ALGEBRA,
        [
            ("stu_de2777346f", "REAL20B<R2C1", 1221831046),
            ("stu_de2777346f", 'REAL20B<3x + "1" = 2', 1221831052),
        ],
    ),
    ("yelp-2018", "yelp_dataset.tar"): (
        tar_of("yelp_academic_dataset_review.json", YELP),
        [("bv2nCi5Qv5vroFiqKGopiw", "AEx2SYEUJmTxVVB18LlCwA", 1464393600)],
    ),
    ("yelp-2018", "review.json"): (YELP, [("bv2nCi5Qv5vroFiqKGopiw", "AEx2SYEUJmTxVVB18LlCwA", 1464393600)]),
}
"""A publisher's file, and the rows of its log."""


def rows_of(log: Path) -> list[tuple[str, str, float]]:
    table = pyarrow.parquet.read_table(log)
    assert table.column_names == ["user_id", "item_id", "timestamp"]
    return list(zip(*(table.column(name).to_pylist() for name in table.column_names), strict=True))


def put(folder: Path, file: str, content: bytes) -> None:
    """What a person does by hand."""
    (folder / "downloads").mkdir(parents=True)
    (folder / "downloads" / file).write_bytes(content)


@pytest.fixture
def site(monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(download, "PAUSE_SECONDS", 0.0)
    with served(Site({"ml-1m.zip": RATINGS})) as site:
        yield site


def movielens(site: Site, **known: object) -> Recipe:
    """The recipe of MovieLens 1M with an address of this machine."""
    recipe = find_recipe("ml-1m")
    origin = replace(recipe.publisher, address=f"{site.address}/ml-1m.zip", md5=None, **known)
    return replace(recipe, publisher=origin)


@pytest.mark.parametrize(("name", "file"), SHAPES, ids=lambda part: part)
def test_a_publishers_file_becomes_a_log(name: str, file: str, tmp_path: Path) -> None:
    content, rows = SHAPES[name, file]
    put(tmp_path / name, file, content)
    made = fetch(find_recipe(name), tmp_path, verified=False)
    assert rows_of(made.log) == rows
    with read_log(made.log) as log:
        assert (log.columns.user, log.columns.item, log.columns.time) == ("user_id", "item_id", "timestamp")


def test_windows_line_ends_leave_no_trace(tmp_path: Path) -> None:
    content = gzip.compress(gzip.decompress(GOWALLA).replace(b"\n", b"\r\n"))
    put(tmp_path / "gowalla", "loc-gowalla_totalCheckins.txt.gz", content)
    assert (
        rows_of(fetch(find_recipe("gowalla"), tmp_path).log) == SHAPES["gowalla", "loc-gowalla_totalCheckins.txt.gz"][1]
    )


@pytest.mark.parametrize(
    ("name", "content", "rows"),
    [
        ("ml-1m", INTER, [("1", "1193", 978300760), ("2", "661", 978302109)]),
        ("algebra", STEPS, [("s1", "P<S", 5), ("s1", 'P<"S"', 6)]),
    ],
)
def test_a_recbole_archive_becomes_a_log(name: str, content: bytes, rows: list[object], tmp_path: Path) -> None:
    recipe = find_recipe(name)
    put(tmp_path / f"{name}-recbole", recipe.origin("recbole").file, zip_of(data__inter=content, data__item=b""))
    made = fetch(recipe, tmp_path, place="recbole")
    assert rows_of(made.log) == rows
    assert made.facts["from"] == "recbole"


def test_unreadable_rows_are_counted_and_nothing_of_them_is_run(tmp_path: Path) -> None:
    put(tmp_path / "steam", "steam_reviews.json.gz", STEAM)
    assert fetch(find_recipe("steam"), tmp_path).facts["bad_rows"] == {"unreadable": 2}


def test_from_the_server_to_prepared_sequences_with_titles(site: Site, tmp_path: Path) -> None:
    made = fetch(movielens(site), tmp_path)
    assert made.prepare_command()[4:] == ["--min-user", "5", "--min-item", "1", "--items", str(made.items)]
    with read_log(made.log) as log:
        sequences = prepare(log, tmp_path / "sequences", options=PrepareOptions(min_user=1), items=made.items)
    assert histories(sequences) == {"1": ["1193", "661"], "2": ["1193", "661"]}
    names = {sequences.catalogue.name(item) for item in range(2)}
    assert names == {"Amélie: Un destin", "James and the Giant Peach (1996)"}


def test_the_source_is_written_down(site: Site, tmp_path: Path) -> None:
    made = fetch(movielens(site), tmp_path)
    facts = json.loads((made.folder / "source.json").read_text(encoding="utf-8"))
    assert facts == made.facts
    assert facts["sha256"] == hashlib.sha256(RATINGS).hexdigest()
    assert facts["address"] == f"{site.address}/ml-1m.zip"
    assert facts["counts"] == {"users": 2, "items": 2, "interactions": 4}
    assert made.surprises == {"users": (2, 6040), "items": (2, 3706), "interactions": (4, 1000209)}
    assert sorted(path.name for path in made.folder.iterdir()) == [
        "downloads",
        "items.parquet",
        "log.parquet",
        "source.json",
    ]


def test_what_is_there_is_not_fetched_again(site: Site, tmp_path: Path) -> None:
    first = fetch(movielens(site), tmp_path)
    again = fetch(movielens(site), tmp_path)
    assert (len(site.asked), again.facts) == (1, first.facts)
    fetch(movielens(site), tmp_path, overwrite=True)
    assert len(site.asked) == 1, "the download is kept, only the log is made again"


def test_another_address_is_asked_and_what_came_by_hand_has_none(site: Site, tmp_path: Path) -> None:
    made = fetch(movielens(site), tmp_path, overwrite=True)
    site.files["mirror.zip"] = RATINGS
    mirror = f"{site.address}/mirror.zip"
    assert fetch(movielens(site), tmp_path, overwrite=True, address=mirror).facts["address"] == mirror
    assert len(site.asked) == 2
    shutil.rmtree(made.folder)
    put(made.folder, "ml-1m.zip", RATINGS)
    assert fetch(movielens(site), tmp_path, address=mirror).facts["address"] is None
    assert len(site.asked) == 2


def test_what_a_kill_left_is_taken_away(site: Site, tmp_path: Path) -> None:
    left = tmp_path / "ml-1m" / ".draft-old"
    left.mkdir(parents=True)
    (left / "raw").write_bytes(b"x")
    with ThreadPoolExecutor(1) as another:
        with locked(left.parent / LOCK) as alone:  # as a fetch that is at work holds it
            assert alone
            waiting = another.submit(fetch, movielens(site), tmp_path)
            with pytest.raises(TimeoutError):
                waiting.result(timeout=0.5)
            assert left.exists()
        assert waiting.result().log.exists()
    assert not left.exists()


def test_a_wrong_checksum_is_refused_unless_it_is_accepted(site: Site, tmp_path: Path) -> None:
    recipe = movielens(site, sha256="0" * 64)
    with pytest.raises(FetchError, match=r"sha256.*--no-verify.*put it at .*ml-1m\.zip"):
        fetch(recipe, tmp_path)
    assert not (tmp_path / "ml-1m" / "log.parquet").exists()
    assert fetch(recipe, tmp_path, verified=False).facts["counts"]["users"] == 2


def test_a_file_put_by_hand_is_verified_and_never_deleted(tmp_path: Path) -> None:
    put(tmp_path / "ml-1m", "ml-1m.zip", RATINGS)
    with pytest.raises(FetchError, match=r"md5.*ml-1m\.zip: delete that file to download it again"):
        fetch(find_recipe("ml-1m"), tmp_path)
    assert (tmp_path / "ml-1m" / "downloads" / "ml-1m.zip").read_bytes() == RATINGS


def test_offline_says_where_to_put_the_file(tmp_path: Path) -> None:
    with pytest.raises(FetchError) as caught:
        fetch(find_recipe("gowalla"), tmp_path, address="http://127.0.0.1:9/x.gz")
    place = tmp_path / "gowalla" / "downloads" / "loc-gowalla_totalCheckins.txt.gz"
    assert "cannot be reached" in str(caught.value)
    assert f"put it at {place} and run this command again" in str(caught.value)
    assert place.parent.is_dir()


def test_what_cannot_be_downloaded_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(FetchError, match=r"by hand: register .*tianchi.*put the file at .*IJCAI16_data\.zip.*recbole"):
        fetch(find_recipe("tmall-buy"), tmp_path)


@pytest.mark.parametrize("content", [b"not an archive", RATINGS[:-30], zip_of(users__dat=b"")])
def test_a_failure_leaves_what_was_fetched_before(site: Site, tmp_path: Path, content: bytes) -> None:
    before = fetch(movielens(site), tmp_path)
    rows = rows_of(before.log)
    (before.folder / "downloads" / "ml-1m.zip").write_bytes(content)
    with pytest.raises(
        FetchError, match=r"(archive holds no|cannot be unpacked).*delete that file to download it again"
    ):
        fetch(movielens(site), tmp_path, overwrite=True)
    assert rows_of(before.log) == rows
    assert fetch(movielens(site), tmp_path).facts == before.facts
    assert not list(before.folder.glob(".draft-*"))


def test_a_file_of_another_kind_is_not_a_log(tmp_path: Path) -> None:
    put(tmp_path / "amazon-beauty", "ratings_Beauty.csv", lines("<html>", "<p>Please log in</p>"))
    with pytest.raises(FetchError, match="no line of it can be read; is it the right file"):
        fetch(find_recipe("amazon-beauty"), tmp_path, verified=False)
    put(tmp_path / "yelp-2018", "review.json", lines('{"business": 1}'))
    with pytest.raises(FetchError, match="is it the right file"):
        fetch(find_recipe("yelp-2018"), tmp_path)
