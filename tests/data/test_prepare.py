"""From a log to sequences, on logs small enough to check by hand."""

import dataclasses
import datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.errors import LogError, SpecError

from .samples import (
    KEEP_ALL,
    histories,
    prepared,
    table,
    targets,
    write_csv,
    write_json,
    write_parquet,
    write_recbole,
    zipped,
)


def test_golden(tmp_path: Path) -> None:
    sequences = prepared(tmp_path / "s")
    # ann: jam 5, milk 10, bread 20, milk 20 · bob: tea 5, milk 6, milk 7 · cid: tea 1
    # training: jam milk · tea · tea, so tea has 2, jam and milk 1 (ties by id), bread 0
    assert sequences.catalogue.ids == ["tea", "jam", "milk", "bread"]
    assert sequences.catalogue.size == 4
    assert sequences.user_ids == ["ann", "bob", "cid"]
    assert sequences.items.tolist() == [1, 2, 3, 2, 0, 2, 2, 0]
    assert sequences.items.dtype == np.int32
    assert sequences.offsets.tolist() == [0, 4, 7, 8]
    assert sequences.train_end.tolist() == [2, 5, 8]
    assert sequences.times is not None
    assert sequences.times.tolist() == [5, 10, 20, 20, 5, 6, 7, 1]
    assert targets(sequences, "valid") == [("ann", "bread", ["jam", "milk"]), ("bob", "milk", ["tea"])]
    assert targets(sequences, "test") == [("ann", "milk", ["jam", "milk", "bread"]), ("bob", "milk", ["tea", "milk"])]
    assert sequences.training_targets == 1
    assert sequences.manifest["counts"] == {
        "users": 3,
        "interactions": 8,
        "read": 8,
        "bad_rows": {},
        "training_interactions": 4,
        "training_targets": 1,
        "valid_targets": 2,
        "test_targets": 2,
        "targets_without_history": 0,
        "valid_cold_targets": 0,
        "test_cold_targets": 0,
        "items": 4,
        "dropped": {},
    }
    assert sequences.manifest["source"]["order"] == "time, then file order"
    assert sequences.manifest["split"]["rule"].startswith("leave one out: ")
    sequences.verify()


def test_every_format_gives_equal_sequences(tmp_path: Path) -> None:
    writers = {"a.csv": write_csv, "a.parquet": write_parquet, "a.jsonl": write_json, "a.inter": write_recbole}
    sources: list[Any] = [table(), *(write(tmp_path / name) for name, write in writers.items())]
    sources.append(zipped(write_csv(tmp_path / "b.csv")))
    found = [prepared(tmp_path / f"s{place}", source) for place, source in enumerate(sources)]
    assert len({sequences.fingerprint for sequences in found}) == 1
    for sequences in found:
        assert histories(sequences) == histories(found[0])


def test_the_fingerprint_names_the_data(tmp_path: Path) -> None:
    rows = [("a", "x", 1), ("a", "y", 2)]
    changed = [[("a", "x", 1), ("a", "z", 2)], [("b", "x", 1), ("b", "y", 2)], [("a", "x", 1), ("a", "y", 3)]]
    found = {prepared(tmp_path / str(place), log).fingerprint for place, log in enumerate([rows, *changed])}
    assert len(found) == 4


def test_ties_are_in_file_order_across_files(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    write_csv(folder / "2.csv", [("a", "third", 7), ("a", "first", 1)])
    write_csv(folder / "1.csv", [("a", "second", 7), ("a", "last", 9)])
    assert histories(prepared(tmp_path / "s", folder)) == {"a": ["first", "second", "third", "last"]}


def test_without_times_there_is_no_times_file(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", [("a", "y"), ("b", "x"), ("a", "x")], ("user", "item"))
    sequences = prepared(tmp_path / "s", log)
    assert histories(sequences) == {"a": ["y", "x"], "b": ["x"]}
    assert sequences.times is None
    assert not (tmp_path / "s" / "times.npy").exists()
    assert sequences.manifest["source"]["order"] == "file order"


def test_filters_run_until_nothing_changes(tmp_path: Path) -> None:
    rows = [("a", "x", 1), ("a", "y", 2), ("b", "x", 1), ("b", "y", 2), ("c", "x", 1), ("c", "z", 2), ("d", "z", 1)]
    # d goes (one interaction), so z has one left and goes, so c has one left and goes
    sequences = prepared(tmp_path / "s", rows, PrepareOptions(min_user=2, min_item=2))
    assert histories(sequences) == {"a": ["x", "y"], "b": ["x", "y"]}
    assert sequences.manifest["counts"]["dropped"] == {"min-user": 2, "min-item": 1}


def test_single_precision_orders_as_recbole_does(tmp_path: Path) -> None:
    """Steps of 64 s from 2^29 on, the nearest one, file order within."""
    start = 978_300_800  # a multiple of 64
    rows = [("a", item, start + second) for item, second in (("w", 31), ("x", 90), ("y", 0), ("z", 33), ("v", -33))]
    exact = prepared(tmp_path / "exact", rows, PrepareOptions(min_user=1))
    assert histories(exact)["a"] == list("vywzx")
    single = prepared(tmp_path / "single", rows, PrepareOptions(min_user=1, time_precision="single"))
    assert histories(single)["a"] == list("vwyxz")
    by_numpy = sorted(rows, key=lambda row: np.float32(row[2]))
    assert histories(single)["a"] == [row[1] for row in by_numpy]


def test_consecutive_duplicates_also_those_that_a_filter_makes(tmp_path: Path) -> None:
    rows = [("a", item, time) for time, item in enumerate("xxyxzxx")] + [("b", "z", 1)]
    options = PrepareOptions(min_user=1, drop_consecutive=True)
    assert histories(prepared(tmp_path / "s", rows, options))["a"] == list("xyxzx")
    options = PrepareOptions(min_user=1, min_item=2, drop_consecutive=True)
    sequences = prepared(tmp_path / "t", rows, options)
    assert histories(sequences)["a"] == list("xzx")
    assert sequences.manifest["counts"]["dropped"] == {"consecutive duplicates": 3, "min-item": 1}


def test_time_range_and_events(tmp_path: Path) -> None:
    names = ("user", "item", "time", "event")
    rows = [("a", "w", 1, "buy"), ("a", "x", 2, "view"), ("a", "y", 3, "buy"), ("a", "z", 4, ""), ("a", "v", 5, "buy")]
    log = write_csv(tmp_path / "log.csv", rows, names)
    options = PrepareOptions(min_user=1, since=2, until="5", events=("buy", "view"))
    sequences = prepared(tmp_path / "s", log, options)
    assert histories(sequences) == {"a": ["x", "y"]}
    assert sequences.manifest["counts"]["dropped"] == {"events": 1, "time range": 2}
    dated = write_csv(tmp_path / "dated.csv", [("a", "x", "2020-01-01"), ("a", "y", "2020-01-02")])
    assert histories(prepared(tmp_path / "t", dated, PrepareOptions(min_user=1, since="2020-01-02"))) == {"a": ["y"]}


def test_when_nothing_is_left_the_filters_are_named(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"nothing is left of 8 interactions: min-user dropped 8; lower `min_user`"):
        prepared(tmp_path / "s", options=PrepareOptions(min_user=5))
    with pytest.raises(LogError, match=r"time range dropped 8; widen `since` or `until`$"):
        prepared(tmp_path / "s", options=PrepareOptions(since=99))
    assert list(tmp_path.iterdir()) == []


def test_when_no_event_matches_the_values_are_listed(tmp_path: Path) -> None:
    kinds = [*(f"e{kind:02}" for kind in range(12)), "buy", "view", "view"]
    log = write_csv(
        tmp_path / "log.csv",
        [("a", "x", place, kind) for place, kind in enumerate(kinds)],
        ("user", "item", "time", "event"),
    )
    with pytest.raises(LogError) as refusal:
        prepared(tmp_path / "s", log, PrepareOptions(min_user=1, events=("purchase",)))
    message = str(refusal.value)
    assert "events dropped 15; column 'event' has view (2), buy (1), e00 (1)," in message
    assert message.count("(1)") == 9
    assert "repeat `events` for several" in message
    assert "min_user" not in message


def test_the_paper_keeps_users_of_five_and_all_items(tmp_path: Path) -> None:
    assert (PrepareOptions().min_user, PrepareOptions().min_item) == (5, 1)
    rows = [("a", f"x{n}", n) for n in range(5)] + [("b", f"x{n}", n) for n in range(4)]
    assert histories(prepared(tmp_path / "s", rows, PrepareOptions())) == {"a": ["x0", "x1", "x2", "x3", "x4"]}


@pytest.mark.parametrize(
    ("rows", "trained", "tested"),
    [
        ([("a", "x", 1)], 1, 0),
        ([("a", "x", 1), ("a", "x", 2)], 2, 0),
        ([("a", "x", 1), ("a", "x", 2), ("a", "x", 3)], 1, 1),
        ([(n, "x", 1) for n in range(4)], 4, 0),
        ([("a", f"x{n}", n) for n in range(10_000)], 9_998, 1),
    ],
    ids=["one interaction", "two", "one user, one item", "users with one interaction", "a history of 10,000"],
)
def test_small_and_long_logs(rows: list[Any], trained: int, tested: int, tmp_path: Path) -> None:
    sequences = prepared(tmp_path / "s", rows)
    assert sequences.manifest["counts"]["training_interactions"] == trained
    assert len(sequences.test.users) == len(sequences.valid.users) == tested
    if tested:
        assert len(sequences.history(0, int(sequences.test.positions[0]))) == len(rows) - 1


def test_a_log_can_be_prepared_again_and_steps_are_told(tmp_path: Path) -> None:
    steps: list[str] = []
    with read_log(table()) as log:
        first = prepare(log, tmp_path / "a", options=KEEP_ALL, progress=steps.append)
        second = prepare(log, tmp_path / "b", options=KEEP_ALL)
    assert first.fingerprint == second.fingerprint
    assert steps[0] == "filtering 8 interactions"
    assert len(steps) == 3


def test_every_option_makes_a_difference(tmp_path: Path) -> None:
    items = "xxyzxyzx"
    rows = [
        (user, items[(place + user) % 8], place + user / 10, "buy" if place % 3 else "view")
        for user in range(6)
        for place in range(3 + user)
    ]
    log = write_csv(tmp_path / "log.csv", rows, ("user", "item", "time", "event"))
    timed = PrepareOptions(min_user=1, split="time")
    changes: dict[str, tuple[PrepareOptions, Any]] = {
        "min_user": (KEEP_ALL, 5),
        "min_item": (KEEP_ALL, 9),
        "drop_consecutive": (KEEP_ALL, True),
        "since": (KEEP_ALL, 2),
        "until": (KEEP_ALL, 3),
        "events": (KEEP_ALL, ("buy",)),
        "types": (KEEP_ALL, True),
        "targets_of": (dataclasses.replace(KEEP_ALL, types=True), ("buy",)),
        "time_precision": (KEEP_ALL, "single"),
        "split": (KEEP_ALL, "time"),
        "valid_from": (timed, 2.0),
        "test_from": (timed, "95%"),
        "target": (timed, "all"),
        "hold_out_items": (KEEP_ALL, 0.4),
        "rare_until": (dataclasses.replace(KEEP_ALL, min_user=5), 3.0),
    }
    assert set(changes) == {field.name for field in dataclasses.fields(PrepareOptions)}
    with read_log(log) as read:
        for place, (field, (options, value)) in enumerate(changes.items()):
            before = prepare(read, tmp_path / f"{place}a", options=options)
            after = prepare(read, tmp_path / f"{place}b", options=dataclasses.replace(options, **{field: value}))
            assert before.fingerprint != after.fingerprint, field


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"min_user": 0}, "at least 1"),
        ({"split": "random"}, "leave-one-out or time"),
        ({"time_precision": "double"}, "exact or single"),
        ({"target": "middle", "split": "time"}, "last, first or all"),
        ({"valid_from": 3}, "belong to `split='time'`"),
        ({"split": "time", "test_from": "100%"}, "between 0% and 100%"),
        ({"events": "buy"}, "list of at least one value"),
        ({"hold_out_items": 1}, "from 0 to below 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        PrepareOptions(**options)


def test_options_that_the_log_cannot_meet_are_refused(tmp_path: Path) -> None:
    log = write_csv(tmp_path / "log.csv", [("a", "x")], ("user", "item"))
    with pytest.raises(SpecError, match="`time=COLUMN`"):
        prepared(tmp_path / "s", log, PrepareOptions(split="time"))
    with pytest.raises(SpecError, match="`since` and `until` need times"):
        prepared(tmp_path / "s", log, PrepareOptions(since=1))
    with pytest.raises(SpecError, match="pass `event=COLUMN`"):
        prepared(tmp_path / "s", log, PrepareOptions(events=("buy",)))
    with pytest.raises(LogError, match="`since` 'soon' is not a number or an ISO date"):
        prepared(tmp_path / "s", options=PrepareOptions(since="soon"))


@pytest.mark.parametrize("unit", [1, 10**3, 10**6, 10**9])
def test_a_date_is_a_date_whatever_part_of_a_second_is_counted(tmp_path: Path, unit: int) -> None:
    days = [1_577_836_800, 1_577_923_200, 1_578_009_600]  # the first three of 2020
    log = write_csv(tmp_path / "l.csv", [("a", str(day), day * unit) for day in days])
    kept = prepared(tmp_path / "s", log, PrepareOptions(min_user=1, since="2020-01-02", until="2020-01-03"))
    assert histories(kept) == {"a": [str(days[1])]}


def test_a_date_is_refused_where_times_are_not(tmp_path: Path) -> None:
    with pytest.raises(LogError, match=r"`since` is a date, but the log's times, up to 20, are not"):
        prepared(tmp_path / "s", options=PrepareOptions(since="2020-01-02"))
    dated = [("a", "x", "1960-01-01"), ("a", "y", "1961-01-01")]
    for since in ("19601231", 1961):
        with pytest.raises(LogError, match=f"`since` {since} would be a time soon after 1970"):
            prepared(tmp_path / "s", dated, PrepareOptions(min_user=1, since=since))
    kept = prepared(tmp_path / "s", dated, PrepareOptions(min_user=1, since="1960-12-31"))
    assert histories(kept) == {"a": ["y"]}


@pytest.mark.parametrize("since", [np.int64(1577923200), np.float32(1577923200), datetime.date(2020, 1, 2)])
def test_a_moment_may_be_a_number_of_numpy_or_a_date(since: object, tmp_path: Path) -> None:
    log = [("a", "x", 1577836800), ("a", "y", 1577923300)]
    kept = prepared(tmp_path / "s", log, PrepareOptions(min_user=1, since=since))  # type: ignore[arg-type]
    assert histories(kept) == {"a": ["y"]}


@pytest.mark.parametrize(("with_event", "without"), [("a.csv", "b.csv"), ("b.csv", "a.csv")])
def test_events_need_their_column_in_every_file(with_event: str, without: str, tmp_path: Path) -> None:
    folder = tmp_path / "log"
    folder.mkdir()
    write_csv(folder / with_event, [("a", "x", 1, "buy"), ("a", "y", 2, "view")], ("user", "item", "time", "event"))
    write_csv(folder / without, [("a", "z", 3)])
    with pytest.raises(SpecError, match=f"`events` needs event types, and {without} has no such column"):
        prepared(tmp_path / "s", folder, PrepareOptions(min_user=1, events=("buy",)))
    assert histories(prepared(tmp_path / "s", folder)) == {"a": ["x", "y", "z"]}


def test_sequences_give_histories_with_their_times(tmp_path: Path) -> None:
    sequences = prepared(tmp_path / "s")
    found = sequences.histories(*sequences.test)
    expected = [sequences.history(user, position) for user, position in zip(*sequences.test, strict=True)]
    assert [items.tolist() for items in found] == [items.tolist() for items in expected]
    assert found.times is not None
    assert found.times.tolist() == [5, 10, 20, 5, 6]
    assert found.now is not None
    assert found.now.tolist() == [sequences.times[position] for position in sequences.test.positions]
    training = sequences.training()
    assert training.lengths.tolist() == [2, 1, 1]
    assert training.items.tolist() == [*sequences.history(0, 2), *sequences.history(1, 5), sequences.items[7]]


def test_histories_of_a_log_without_times_have_none(tmp_path: Path) -> None:
    sequences = prepared(tmp_path / "s", table().drop_columns(["time"]))
    assert sequences.histories(*sequences.valid).times is None
    assert sequences.training().times is None


@pytest.mark.parametrize("split", ["leave-one-out", "time"])
def test_held_out_items_are_targets_but_not_in_training(tmp_path: Path, split: str) -> None:
    random = np.random.default_rng(5)
    rows = [(f"u{user}", f"i{random.integers(12)}", 100 * place + user) for user in range(30) for place in range(8)]
    log = write_csv(tmp_path / "log.csv", rows, ("user", "item", "time"))
    with read_log(log) as read:
        whole = prepare(read, tmp_path / "whole", options=PrepareOptions(split=split))
        held = prepare(read, tmp_path / "held", options=PrepareOptions(split=split, hold_out_items=0.25))
        again = prepare(read, tmp_path / "again", options=PrepareOptions(split=split, hold_out_items=0.25))
    assert held.fingerprint == again.fingerprint
    cold = set(held.catalogue.ids[held.catalogue.size :])
    assert len(cold) == 3
    assert set(held.catalogue.ids) == set(whole.catalogue.ids)
    assert held.training().items.max() < held.catalogue.size
    for kind in ("valid", "test"):
        expected = [  # of a history only the part of training loses its cold items
            (user, item, [other for other in before[: ends[user]] if other not in cold] + before[ends[user] :])
            for ends in [dict(zip(whole.user_ids, whole.train_end - whole.offsets[:-1], strict=True))]
            for user, item, before in targets(whole, kind)
        ]
        assert targets(held, kind) == [row for row in expected if row[2]]
    removed = len(whole.items) - len(held.items)
    assert held.manifest["counts"]["dropped"]["interactions of held-out items"] == removed > 0
    assert held.times is not None
    assert len(held.times) == len(held.items)
