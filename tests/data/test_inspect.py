"""What `inspect` says of a log small enough to check by hand."""

import json
from pathlib import Path

import pytest

from abaca.data.inspect import epoch_seconds, inspect, prepared_bytes
from abaca.data.log import read_log

from .samples import prepared, table, write_csv


def test_golden() -> None:
    with read_log(table()) as log:
        summary = inspect(log)
    assert (summary.users, summary.items, summary.interactions) == (3, 4, 8)
    assert summary.lengths == {"min": 1, "25%": 1, "50%": 3, "75%": 4, "90%": 4, "99%": 4, "max": 4}
    assert summary.repeat_share == 2 / 8  # ann's and bob's second milk
    assert summary.last_repeat_share == 2 / 2  # cid has one interaction and does not count
    assert summary.tied_share == 2 / 8  # ann at 20
    assert summary.duplicates == 0
    assert summary.times == (1.0, 20.0)
    assert summary.dates is None
    assert json.loads(json.dumps(summary.to_json()))["lengths"]["max"] == 4


def test_the_last_item_is_by_time_then_file_order() -> None:
    rows = [("a", "x", 9), ("a", "y", 1), ("a", "x", 2), ("b", "x", 5), ("b", "x", 5), ("b", "y", 5)]
    with read_log(table(rows)) as log:
        summary = inspect(log)
    assert summary.last_repeat_share == 0.5
    assert summary.duplicates == 1
    assert summary.tied_share == 3 / 6


def test_dates_and_bad_rows(tmp_path: Path) -> None:
    rows = [("a", "x", "2020-01-01"), ("a", "", "2020-01-02"), ("a", "y", "2020-01-03")]
    with read_log(write_csv(tmp_path / "log.csv", rows), on_bad_row="skip") as log:
        summary = inspect(log)
    assert summary.dates == ("2020-01-01T00:00:00Z", "2020-01-03T00:00:00Z")
    assert summary.bad_rows == {"missing item": 1}


def test_events_are_counted_most_first(tmp_path: Path) -> None:
    rows = [("a", "x", "view"), ("a", "y", "buy"), ("a", "x", "view"), ("a", "z", "")]
    with read_log(write_csv(tmp_path / "log.csv", rows, ("user", "item", "event"))) as log:
        assert list(inspect(log).events.items()) == [("view", 2), ("buy", 1)]
    with read_log(table()) as log:
        assert inspect(log).events == {}


def test_without_times(tmp_path: Path) -> None:
    rows = [("a", "x"), ("a", "y"), ("a", "x")]
    with read_log(write_csv(tmp_path / "log.csv", rows, ("user", "item"))) as log:
        summary = inspect(log)
    assert (summary.times, summary.tied_share, summary.duplicates) == (None, None, 0)
    assert summary.last_repeat_share == 1.0


def test_estimates(tmp_path: Path) -> None:
    sequences = prepared(tmp_path / "s", [(user, place % 50, place) for user in range(100) for place in range(100)])
    real = sum((sequences.path / name).stat().st_size for name in sequences.manifest["files"])
    assert real == pytest.approx(prepared_bytes(10_000, 100, 50, timed=True), rel=0.1)
    assert epoch_seconds(2_000, 100, cores=1) == pytest.approx(2 * epoch_seconds(1_000, 100, cores=1))
    assert epoch_seconds(2_000, 100, cores=2) == pytest.approx(epoch_seconds(1_000, 100, cores=1))


def test_columns_and_blanks_around_ids(tmp_path: Path) -> None:
    """An id comes back as it went in, so blanks stay; but whoever looks is told."""
    path = tmp_path / "log.csv"
    path.write_text("user_id, item,session\na,7,s\na, 7,s\nb\t,7,s\n")
    with read_log(path) as log:
        summary = inspect(log)
    assert (summary.users, summary.items, summary.spaced) == (2, 2, 2)
    assert summary.columns == {"user": "user_id", "item": " item", "time": None, "event": None}
    assert summary.passed_over == {"user": ["session"]}
