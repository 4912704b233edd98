"""Times and moments of a file of histories reach the model."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abaca.batch import recommend_file
from abaca.data.queries import HistorySource
from abaca.errors import LogError, QueryError
from abaca.policy import Policy
from models import Asked, asked_of_rankers, untrained

NOON = 1_704_110_400  # 2024-01-01T12:00:00Z
Rows = list[dict[str, Any]]

ROWS: Rows = [
    {"user": "a", "history": ["i1", "new", "i2"], "times": [NOON, NOON + 1, NOON + 2], "now": NOON + 3},
    {"user": "b", "history": ["i3"], "times": None, "now": NOON + 4},
    {"user": "c", "history": ["i4"], "times": [NOON + 5], "now": None},
]
KNOWN = [Asked([1, 2], [NOON, NOON + 2], NOON + 3), Asked([3], None, NOON + 4), Asked([4], [NOON + 5], None)]


def write(rows: Rows, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(rows), path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def asked(path: Path, unit: str | None = "seconds", **options: Any) -> list[Asked]:
    """What the model was asked about the histories of a file, by their first item."""
    model = untrained(path.parent / "model", time_unit=unit)
    to = path.parent / "answers.parquet"
    with asked_of_rankers() as found:
        recommend_file(model, HistorySource(path, **options), to, Policy(n=2), overwrite=True)
    return sorted(found)


@pytest.mark.parametrize("name", ["in.parquet", "in.jsonl"])
def test_each_row_may_have_times_and_a_moment(tmp_path: Path, name: str) -> None:
    assert asked(write(ROWS, tmp_path / name)) == KNOWN


def dated(seconds: float, text: bool, zone: bool = False) -> Any:
    found = datetime.fromtimestamp(seconds, UTC)
    found = found if zone else found.replace(tzinfo=None)
    return found.isoformat() if text else found


@pytest.mark.parametrize("zone", [False, True])
@pytest.mark.parametrize(("name", "text"), [("in.parquet", False), ("in.parquet", True), ("in.jsonl", True)])
def test_dates_of_rows_are_in_the_unit_of_the_training_log(tmp_path: Path, name: str, text: bool, zone: bool) -> None:
    rows = [
        {
            **row,
            "times": row["times"] and [dated(time, text, zone) for time in row["times"]],
            "now": row["now"] and dated(row["now"], text, zone),
        }
        for row in ROWS
    ]
    path = write(rows, tmp_path / name)
    assert asked(path) == KNOWN
    in_milliseconds = [
        Asked(items, times and [1000 * time for time in times], now and 1000 * now) for items, times, now in KNOWN
    ]
    assert asked(path, "milliseconds") == in_milliseconds
    with pytest.raises(
        LogError, match=rf"{name} \w+ 1: column '(times|now)' .* is a date, but the log of this model has no"
    ):
        asked(path, None)


def test_another_column_may_hold_the_moments(tmp_path: Path) -> None:
    path = write([{"history": ["i1"], "at": 5, "now": "nonsense"}], tmp_path / "in.parquet")
    assert asked(path, now="at") == [Asked([1], None, 5)]


@pytest.mark.parametrize("now", [NOON, str(NOON), "2024-01-01T12:00:00Z", datetime(2024, 1, 1, 12)])
def test_one_moment_may_be_that_of_all_rows_without_their_own(tmp_path: Path, now: Any) -> None:
    assert asked(write(ROWS, tmp_path / "in.parquet"), now=now) == [*KNOWN[:2], KNOWN[2]._replace(now=NOON)]


def test_a_moment_far_down_a_file_counts(tmp_path: Path) -> None:
    """The first lines, from which columns are found, have none."""
    rows: Rows = [{"history": ["i1"]} for _ in range(1500)]
    rows.append({"history": ["i2"], "times": [3], "now": 4})
    assert asked(write(rows, tmp_path / "in.jsonl"))[-1] == Asked([2], [3], 4)


@pytest.mark.parametrize("name", ["in.parquet", "in.jsonl"])
@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"times": [1]}, "it has 2 items and 1 times; fix the"),
        ({"times": [1, None]}, "column 'times' takes numbers .* got None"),
        ({"times": ["x", "y"]}, "column 'times' takes numbers .* got 'x'"),
        ({"times": 7}, "column 'times' takes numbers .* got 7"),
        ({"now": "x"}, "column 'now' takes numbers .* got 'x'"),
        ({"now": True}, "column 'now' takes numbers .* got "),
    ],
)
def test_a_row_whose_times_do_not_fit_is_named(tmp_path: Path, name: str, row: dict[str, Any], said: str) -> None:
    path = write([{"history": ["i1", "i2"], **row}], tmp_path / name)
    with pytest.raises(LogError, match=rf"{name} (row|line) 1: {said}"):
        asked(path)


def test_a_moment_that_is_neither_a_time_nor_a_column_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    path = write(ROWS, tmp_path / "in.parquet")
    with pytest.raises(
        QueryError, match=r"`now` takes numbers.*nor is it a column of in.parquet: user, history, times"
    ):
        asked(path, now="when")
    with pytest.raises(QueryError, match="soon after 1970; write a date"):
        asked(path, now="2024")
    assert {path.name for path in tmp_path.iterdir()} == {"in.parquet", "model"}


@pytest.mark.parametrize(
    ("times", "unit", "expected"),
    [
        ([NOON, NOON + 60], "seconds", [NOON, NOON + 60]),
        ([NOON, NOON + 60], "milliseconds", [NOON * 1000, (NOON + 60) * 1000]),
        ([NOON * 1000, NOON * 1000 + 500], "seconds", [NOON, NOON + 0.5]),
        (["2024-01-01T12:00", "2024-01-01T12:01"], "milliseconds", [NOON * 1000, (NOON + 60) * 1000]),
        ([3, 5], "seconds", [3, 5]),
        ([3, 5], None, [3, 5]),
    ],
)
def test_the_times_of_a_log_are_in_the_unit_of_the_training_log(
    tmp_path: Path, times: list[Any], unit: str | None, expected: list[float]
) -> None:
    log = pa.table({"user": ["u", "u"], "item": ["i1", "i2"], "time": times})
    pq.write_table(log, tmp_path / "log.parquet")
    assert asked(tmp_path / "log.parquet", unit) == [Asked([1, 2], expected, None)]


def test_a_log_has_one_moment_for_all_users(tmp_path: Path) -> None:
    (tmp_path / "log.csv").write_text("user,item,now\na,i1,5\nb,i2,6\n")
    assert asked(tmp_path / "log.csv", now="9") == [Asked([1], None, 9), Asked([2], None, 9)]
    with pytest.raises(QueryError, match="`now` takes numbers"):
        asked(tmp_path / "log.csv", now="now")


def test_a_run_with_another_moment_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, model = write(ROWS, tmp_path / "in.parquet"), untrained(tmp_path / "model")
    monkeypatch.setattr("abaca.batch.parts.Parts.finish", lambda *_: None)
    to = tmp_path / "out.parquet"
    recommend_file(model, HistorySource(path, now=5), to, Policy())
    recommend_file(model, HistorySource(path, now=5), to, Policy(), resume=True)
    with pytest.raises(QueryError, match="another histories;"):
        recommend_file(model, HistorySource(path, now=6), to, Policy(), resume=True)
