"""`abaca fetch` against a server on this machine."""

import io
import json
import shlex
import zipfile
from pathlib import Path

import pytest

from commandline import Cli
from data.public.web import Site, served


@pytest.fixture(scope="module")
def archive() -> bytes:
    packed = io.BytesIO()
    ratings = "".join(f"{user}::{10 + (user + n) % 4}::5::{n}\n" for user in range(3) for n in range(6))
    with zipfile.ZipFile(packed, "w") as made:
        made.writestr("ml-1m/ratings.dat", ratings)
        made.writestr("ml-1m/movies.dat", "".join(f"{item}::Film {item}::Drama\n" for item in range(10, 14)))
    return packed.getvalue()


def test_the_next_command_that_it_prints_works(cli: Cli, archive: bytes, tmp_path: Path) -> None:
    with served(Site({"ml-1m.zip": archive})) as site:
        code, out, _ = cli(
            "fetch", "ml-1m", "--to", tmp_path / "my data", "--address", f"{site.address}/ml-1m.zip", "--no-verify"
        )
    assert code == 0
    assert "licence: research; no redistribution" in out
    assert "users: 3 where 6,040 are expected" in out
    following = shlex.split(out.splitlines()[-1].removeprefix("next: "))
    assert following[:2] == ["abaca", "prepare"]
    assert following[-6:-2] == ["--min-user", "5", "--min-item", "1"]
    code, out, err = cli(*following[1:])
    assert (code, err.strip()) == (0, "")
    assert "3 users, 4 items, 18 interactions" in out


def test_json_for_a_program(cli: Cli, archive: bytes, tmp_path: Path) -> None:
    with served(Site({"x": archive})) as site:
        code, out, _ = cli(
            "fetch", "ml-1m", "--to", tmp_path, "--address", f"{site.address}/x", "--no-verify", "--json"
        )
    facts = json.loads(out)
    assert code == 0
    assert facts["counts"] == {"users": 3, "items": 4, "interactions": 18}
    assert Path(facts["log"]).is_file()


def test_the_list_names_all_data_sets_and_how_they_are_had(cli: Cli) -> None:
    code, out, _ = cli("fetch", "--list")
    assert code == 0
    assert "7,793,069" in out
    assert "by hand" in out
    listed = cli("fetch", "--list", "--json").json
    assert len(listed) >= 12
    assert {"name", "licence", "publisher", "by_hand", "recbole", "filters"} <= set(listed[0])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["ml1m"], "did you mean ml-1m?"),
        ([], "give its NAME, or --list"),
        (["ml-1m", "--from", "kaggle"], "can be had from publisher or recbole"),
        (["tmall-buy"], "by hand"),
        (["ml-1m", "--address", "http://127.0.0.1:9/x"], "put it at"),
    ],
)
def test_a_mistake_is_one_message(cli: Cli, tmp_path: Path, arguments: list[str], said: str) -> None:
    code, _, err = cli("fetch", *arguments, "--to", tmp_path)
    assert code == 2
    assert said in err
    assert "Traceback" not in err
