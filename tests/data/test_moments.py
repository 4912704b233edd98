"""Times and the moment of a query: what may be given, and what a model is asked."""

from datetime import UTC, date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pyarrow
import pytest
import torch

import abaca
from abaca.data.database import Database
from abaca.data.moments import iso_moment, now_of, times_of
from abaca.errors import QueryError
from abaca.nn.encoders import Encoder
from abaca.nn.encoders.encoder import EncoderOptions, Inputs
from models import Asked, asked_of_rankers, untrained

NOON = 1_704_110_400  # 2024-01-01T12:00:00Z


def test_what_a_model_is_asked_holds_the_times_of_known_items_and_the_moment(tmp_path: Path) -> None:
    model = untrained(tmp_path)
    with asked_of_rankers() as asked:
        model.recommend(["i3", "new", "i5"], times=[10, 20.5, 30], now=40)
        model.recommend(["i3"])
        model.recommend(["i3"], now="2024-01-01T12:00Z")
    assert asked == [Asked([3, 5], [10, 30], 40), Asked([3], None, None), Asked([3], None, NOON)]


def test_each_history_may_have_times_or_none(tmp_path: Path) -> None:
    """They are answered together, in their order, each as if it were alone."""
    model = untrained(tmp_path)
    histories = [["i1"], ["i2", "i3"], ["i4"], []]
    with asked_of_rankers() as asked:
        found = model.recommend_many(histories, 5, times=[None, [2, 1], [3], []], now=[9, None, 8, None])
    assert sorted(asked) == [Asked([1], None, 9), Asked([2, 3], [2, 1], None), Asked([4], [3], 8)]
    assert [answer.ids for answer in found] == [model.recommend(history, 5).ids for history in histories]


@pytest.mark.parametrize(
    ("moment", "expected"),
    [
        ("2024-01-01T12:00:00Z", NOON),
        ("2024-01-01 12:00:00", NOON),
        ("2024-01-01T13:30:00.25+01:30", NOON + 0.25),
        ("2024-01-01", NOON - 43_200),
        ("1969-12-31T23:59:59Z", -1),
        (datetime(2024, 1, 1, 12), NOON),
        (datetime(2024, 1, 1, 11, tzinfo=timezone(timedelta(hours=-1))), NOON),
        (date(2024, 1, 1), NOON - 43_200),
        (pandas.Timestamp("2024-01-01T12:00"), NOON),
        (np.datetime64("2024-01-01T12:00"), NOON),
        (np.float32(0.5), 0.5),
        (7, 7),
    ],
)
def test_moments_are_numbers_or_dates(moment: Any, expected: float) -> None:
    assert now_of([moment], 1, "seconds") == [expected]
    (times,) = times_of([[moment, moment]], [2], "seconds")
    assert times is not None
    assert times.tolist() == [expected, expected]


@pytest.mark.parametrize(("unit", "scale"), [("milliseconds", 1e3), ("microseconds", 1e6), ("nanoseconds", 1e9)])
def test_dates_are_in_the_unit_of_the_log_and_numbers_stay(unit: str, scale: float) -> None:
    assert now_of([7, "2024-01-01T12:00:00.123Z"], 2, unit) == [7, round((NOON + 0.123) * 1000) * (scale / 1000)]


def test_times_may_be_a_series_of_dates() -> None:
    series = pandas.Series(pandas.to_datetime(["2024-01-01T12:00", "2024-01-01T12:01"]))
    for given in (series, series.dt.tz_localize("UTC"), list(series), series.to_numpy()):
        (times,) = times_of([given], [2], "seconds")
        assert times is not None
        assert times.tolist() == [NOON, NOON + 60]


@pytest.mark.parametrize(
    "text", ["2024-02-29", "2024-01-01T12:00:00Z", "2024-01-01 12:00:00.123456", "2024-06-01T12:00+02:00", "1901-05-05"]
)
def test_iso_dates_are_those_of_a_log(text: str) -> None:
    """A log's dates are read by DuckDB."""
    database = Database()
    expected = database.value(f"SELECT epoch('{text}'::TIMESTAMPTZ)")
    database.close()
    assert now_of([text], 1, "seconds") == [expected]


@pytest.mark.parametrize(
    "now",
    ["tomorrow", "", "2024", "20240131", "2024-13-01", "12:00", True, pandas.NaT, np.datetime64("NaT"), b"1", [1]],
)
def test_what_is_no_moment_is_refused(now: Any) -> None:
    with pytest.raises(QueryError, match=r"`now` takes numbers in the unit of the log's times, or ISO dates"):
        now_of([now], 1, "seconds")


def test_a_date_needs_a_log_whose_times_count_from_1970(tmp_path: Path) -> None:
    model = untrained(tmp_path, time_unit=None)
    with pytest.raises(QueryError, match=r"`now` '2024-01-31' is a date, but the log of this model has no times since"):
        model.recommend(["i1"], now="2024-01-31")
    with asked_of_rankers() as asked:
        model.recommend(["i1"], times=[3], now=5)
    assert asked == [Asked([1], [3], 5)]


def test_a_long_list_is_not_repeated_in_the_message() -> None:
    with pytest.raises(QueryError) as error:
        times_of([[float("nan")] * 5000], [5000], None)
    assert len(str(error.value)) < 200


def test_only_whole_dates_are_iso_text() -> None:
    assert iso_moment("2024-01-31") == datetime(2024, 1, 31)
    assert iso_moment("2024-01-31T01:00Z") == datetime(2024, 1, 31, 1, tzinfo=UTC)
    assert [iso_moment(text) for text in ("2024-W05", "20240131", "31/01/2024", "7")] == [None] * 4


@pytest.mark.parametrize(
    ("times", "unit"),
    [
        (np.arange(48) + 1_700_000_000, "seconds"),
        ((np.arange(48) + 1_700_000_000) * 1000.0, "milliseconds"),
        (pandas.date_range("2024-01-01", periods=48), "seconds"),
        (np.arange(48), None),
        (None, None),
    ],
)
def test_a_model_knows_the_unit_of_its_log(tmp_path: Path, times: Any, unit: str | None) -> None:
    log = pandas.DataFrame({"user": np.arange(48) // 8, "item": np.arange(48) % 5})
    if times is not None:
        log["time"] = times
    rule = abaca.Recommender(baseline="personal frequency").fit(log)
    rule.save(tmp_path)
    assert (rule.time_unit, abaca.load(tmp_path).time_unit) == (unit, unit)


class Clock(Encoder):
    """States are the hours since the latest item, if times and the moment are known; else zero."""

    name = "clock"
    Options = EncoderOptions

    def forward(self, inputs: Inputs) -> torch.Tensor:
        windows = inputs.windows
        states = inputs.embedded * 0
        if windows.times is not None and windows.now is not None:
            last = windows.times.gather(1, windows.positions.clamp(min=0))[:, -1]  # (B,)
            hours = (windows.now[:, -1] - last) / 3600
            states = states + hours[:, None, None].to(states.dtype)
        return states.unsqueeze(2)


def test_a_model_that_reads_times_answers_by_them() -> None:
    rng = np.random.default_rng(0)
    log = pyarrow.table(
        {"user": np.arange(200) // 10, "item": rng.integers(0, 12, 200), "time": np.arange(200) * 60 + NOON}
    )
    model = abaca.Recommender(encoder=Clock(), output="softmax", epochs=1, dim=4).fit(log)

    def chances(**moments: Any) -> dict[Any, float | None]:
        return {item.id: item.probability for item in model.recommend([1, 2], 12, **moments)}

    plain = chances()
    hour = chances(times=[NOON, NOON + 60], now=NOON + 3660)
    assert hour != plain
    assert hour == chances(times=["2024-01-01T11:00Z", datetime(2024, 1, 1, 12, 1)], now="2024-01-01T13:01:00Z")
    assert chances(times=[NOON, NOON + 60], now=NOON + 60) == pytest.approx(plain)
