"""Answers to a file of histories: as one by one, in every format, and the same after any crash."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abaca.batch import recommend_file, run
from abaca.data.log import read_log
from abaca.data.queries import HistorySource
from abaca.errors import LogError, QueryError, SpecError
from abaca.policy import Policy
from abaca.recommender import Recommender
from models import untrained

HISTORIES = 70
PART = 16


@pytest.fixture(scope="module")
def recommender(tmp_path_factory: pytest.TempPathFactory) -> Recommender:
    return untrained(tmp_path_factory.mktemp("batch") / "model")


@pytest.fixture(autouse=True)
def small_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "PART", PART)


def write_lists(path: Path) -> list[list[str]]:
    """Histories of 0 to 14 ids, some unknown to the model, as Parquet."""
    rng = np.random.default_rng(0)
    lists = [[f"i{item}" for item in rng.integers(0, 33, length)] for length in rng.integers(0, 15, HISTORIES)]
    pq.write_table(pa.table({"user": [f"u{i}" for i in range(HISTORIES)], "history": lists}), path)
    return lists


def answers(recommender: Recommender, folder: Path, name: str = "out.parquet", **options: Any) -> list[dict[str, Any]]:
    recommend_file(recommender, HistorySource(folder / "in.parquet"), folder / name, Policy(n=5), **options)
    return pq.read_table(folder / name).to_pylist()


@pytest.mark.parametrize(
    "policy",
    [{}, {"repeats": "exclude"}, {"max_repeat_share": 0.4, "exclude": ("i3", "nope")}, {"candidates": ("i1",)}],
)
def test_the_file_holds_what_recommend_says(recommender: Recommender, tmp_path: Path, policy: dict[str, Any]) -> None:
    lists = write_lists(tmp_path / "in.parquet")
    source, to = HistorySource(tmp_path / "in.parquet"), tmp_path / "out.parquet"
    report = recommend_file(recommender, source, to, Policy(n=5, **policy))
    found = pq.read_table(to).to_pylist()
    assert [row["user"] for row in found] == [f"u{i}" for i in range(HISTORIES)]
    for row, history in zip(found, lists, strict=True):
        expected = recommender.recommend(history, 5, **policy)
        assert row["ids"] == expected.ids
        assert row["probabilities"] == [
            None if item.probability is None else pytest.approx(item.probability, rel=1e-5) for item in expected
        ]
        assert row["reasons"] == [item.reason for item in expected]
        assert set(row["unknown"]) == set(expected.unknown) - {"nope"}
        assert (row["repeat_probability"] is None) == (expected.repeat_probability is None)
    unknown = [set(history) - {f"i{i}" for i in range(30)} for history in lists]
    assert report.histories == HISTORIES
    assert report.resumed == 0
    assert report.unknown == sum(map(len, unknown)) > 0
    assert report.with_unknown == sum(bool(ids) for ids in unknown)
    assert report.without_known == sum(not set(history) - ids for history, ids in zip(lists, unknown, strict=True))
    assert set(report.examples) <= {"i30", "i31", "i32"}
    assert report.unknown_in_lists == (("nope",) if "exclude" in policy else ())


def test_a_history_without_the_times_that_its_cooldown_needs_is_named(recommender: Recommender, tmp_path: Path) -> None:
    rows = {"user": ["a", "b"], "history": [["i1"], ["i2"]], "times": [[1.0], None], "cooldown": ["2 units", "2 units"]}
    pq.write_table(pa.table(rows), tmp_path / "in.parquet")
    with pytest.raises(QueryError, match="the history of 'b' has no times"):
        answers(recommender, tmp_path)


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_each_row_may_have_lists_of_its_own(recommender: Recommender, tmp_path: Path, ending: str) -> None:
    """They add to the lists of the policy; a row without a list has the policy's."""
    rows = [
        {"user": "a", "history": ["i1", "i2"], "exclude": ["i4"], "candidates": ["i3", "i4", "i5", "i6"]},
        {"user": "b", "history": ["i1", "i2"], "exclude": None, "candidates": None},
        {"user": "c", "history": ["i1", "i2"], "exclude": [], "candidates": []},
    ]
    if ending == "parquet":
        pq.write_table(pa.Table.from_pylist(rows), tmp_path / "in.parquet")
    else:
        (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source, to = HistorySource(tmp_path / f"in.{ending}"), tmp_path / "out.parquet"
    recommend_file(recommender, source, to, Policy(n=9, exclude=["i5"], candidates=["i3", "i4", "i5", "i7"]))
    found = pq.read_table(to).to_pylist()
    assert [set(row["ids"]) for row in found] == [{"i3"}, {"i3", "i4", "i7"}, set()]


def test_rules_in_a_log_are_refused_instead_of_ignored(recommender: Recommender, tmp_path: Path) -> None:
    pq.write_table(pa.table({"user": ["a"], "item": ["i1"], "exclude": [["i2"]]}), tmp_path / "log.parquet")
    with pytest.raises(LogError, match="'exclude' cannot be used, a log has no rules"):
        recommend_file(recommender, HistorySource(tmp_path / "log.parquet"), tmp_path / "out.parquet", Policy(n=3))


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
@pytest.mark.parametrize("column", ["exclude", "candidates"])
def test_a_rule_that_is_no_list_is_refused_instead_of_ignored(
    recommender: Recommender, tmp_path: Path, ending: str, column: str
) -> None:
    row = {"user": "a", "history": ["i1", "i2"], column: "i4"}
    pq.write_table(pa.Table.from_pylist([row]), tmp_path / "in.parquet")
    (tmp_path / "in.jsonl").write_text(json.dumps(row) + "\n")
    with pytest.raises(LogError, match=r'"i4" is not a list of ids'):
        recommend_file(recommender, HistorySource(tmp_path / f"in.{ending}"), tmp_path / "out.parquet", Policy())


def test_a_rule_far_down_a_file_counts(recommender: Recommender, tmp_path: Path) -> None:
    """The first lines, from which columns are found, have none."""
    rows: list[dict[str, Any]] = [{"user": f"u{number}", "history": ["i1"]} for number in range(1500)]
    rows.append({"user": "last", "history": ["i1"], "candidates": ["i4"]})
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    recommend_file(recommender, HistorySource(tmp_path / "in.jsonl"), tmp_path / "out.parquet", Policy())
    assert pq.read_table(tmp_path / "out.parquet").to_pylist()[-1]["ids"] == ["i4"]


def test_json_lines_and_csv_say_the_same(recommender: Recommender, tmp_path: Path) -> None:
    write_lists(tmp_path / "in.parquet")
    expected = answers(recommender, tmp_path)
    source = HistorySource(tmp_path / "in.parquet")
    recommend_file(recommender, source, tmp_path / "out.jsonl", Policy(n=5))
    assert [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()] == expected
    recommend_file(recommender, source, tmp_path / "out.csv", Policy(n=5))
    with (tmp_path / "out.csv").open(newline="") as file:
        lines = list(csv.DictReader(file))
    flat = [
        {"user": row["user"], "place": str(place + 1), "id": row["ids"][place], "reason": row["reasons"][place]}
        for row in expected
        for place in range(len(row["ids"]))
    ]
    assert [{key: line[key] for key in flat[0]} for line in lines] == flat
    chances = [chance for row in expected for chance in row["probabilities"]]
    assert [float(line["probability"]) if line["probability"] else None for line in lines] == chances


def test_lists_of_a_policy_may_be_numpy_s(tmp_path: Path) -> None:
    numbered = untrained(tmp_path / "numbers", ids=list(range(30)))
    pq.write_table(pa.table({"h": [[3, 5, 3]]}), tmp_path / "in.parquet")
    policy = Policy(exclude=np.array([3, 4, 99]))  # type: ignore[arg-type]
    report = recommend_file(numbered, HistorySource(tmp_path / "in.parquet"), tmp_path / "out.parquet", policy)
    (only,) = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert only["ids"] == numbered.recommend([3, 5, 3], exclude=[3, 4]).ids
    assert report.unknown_in_lists == (99,)


def test_a_log_is_read_as_the_log_the_model_learned_from(tmp_path: Path) -> None:
    """Newest first in the file, a column of times that nobody would guess, views that do not count, doubles."""
    rows = [(f"u{u}", "x", f"i{(u + k) % 7}", 100 * u + k, "buy") for u in range(12) for k in range(8)]
    rows += [(user, "x", item, clock + 0.5, "buy") for user, _, item, clock, _ in rows[::3]]  # at once again
    rows += [(user, "x", "i0", clock + 0.25, "view") for user, _, _, clock, _ in rows[::2]]
    names = ["user", "item", "product", "clock", "event"]
    shown = pa.table(dict(zip(names, map(list, zip(*rows[::-1], strict=True)), strict=True)))
    pq.write_table(shown, tmp_path / "log.parquet")
    log = read_log(tmp_path / "log.parquet", item="product", time="clock")
    options = {"events": ("buy",), "drop_consecutive": True, "epochs": 1, "dim": 4, "hidden": 4}
    model = Recommender("gru4rec", "softmax+C", **options).fit(log)
    recommend_file(model, HistorySource(tmp_path / "log.parquet"), tmp_path / "out.parquet", Policy(n=3))
    for row in pq.read_table(tmp_path / "out.parquet").to_pylist():
        user = int(row["user"][1:])
        assert row["ids"] == model.recommend([f"i{(user + k) % 7}" for k in range(8)], 3).ids
        assert row["unknown"] == []


def test_ids_of_another_kind_are_spelled_as_the_model_spells_them(tmp_path: Path) -> None:
    numbered = untrained(tmp_path / "numbers", ids=list(range(30)))
    texts = untrained(tmp_path / "texts", ids=[str(i) for i in range(30)])
    (tmp_path / "log.csv").write_text("user,item\n7,3\n7,5\n08,29\n7,3\n")
    pq.write_table(pa.table({"h": [[3, 5, 3]]}), tmp_path / "lists.parquet")
    recommend_file(numbered, HistorySource(tmp_path / "log.csv"), tmp_path / "a.parquet", Policy())
    first, second = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (first["user"], second["user"]) == ("08", "7")
    assert second["ids"] == numbered.recommend([3, 5, 3]).ids
    recommend_file(texts, HistorySource(tmp_path / "lists.parquet"), tmp_path / "b.parquet", Policy())
    (only,) = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert (only["row"], only["unknown"]) == (0, [])
    assert only["ids"] == texts.recommend(["3", "5", "3"]).ids


CRASH = """
import os, signal, sys
from pathlib import Path
import abaca.durable as durable
from abaca.batch import recommend_file, run
from abaca.data.queries import HistorySource
from abaca.data.log import read_log
from abaca.policy import Policy
from abaca.recommender import load
import torch

folder, survive, before = Path(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "before"
torch.set_num_threads(1)
run.PART = int(sys.argv[4])
put, calls = durable.put_in_place, 0

def dying(draft, path):
    global calls
    if path.name == "run.json":
        return put(draft, path)
    calls += 1
    if before and calls > survive:
        os.kill(os.getpid(), signal.SIGKILL)
    put(draft, path)
    if calls > survive:
        os.kill(os.getpid(), signal.SIGKILL)

durable.put_in_place = dying
source = HistorySource(folder / "in.parquet")
recommend_file(load(sys.argv[5]), source, folder / "out.parquet", Policy(n=5), resume=True)
"""


def crash(folder: Path, model: Path, survive: int, when: str) -> None:
    """Run until so many parts are in place, then die of SIGKILL just before or after the next is."""
    arguments = [sys.executable, "-c", CRASH, str(folder), str(survive), when, str(PART), str(model)]
    done = subprocess.run(arguments, env={**os.environ, "OMP_NUM_THREADS": "1"}, check=False, capture_output=True)
    assert done.returncode == -9, done.stderr.decode()


@pytest.mark.slow
@pytest.mark.parametrize(("survive", "when"), [(2, "before"), (3, "after"), (5, "after")])
def test_after_kill_9_a_run_goes_on_without_redoing_parts_and_ends_with_equal_bytes(
    tmp_path: Path, survive: int, when: str
) -> None:
    """There are 5 parts; the sixth file to be put in place is the whole."""
    recommender = untrained(tmp_path / "model")
    write_lists(tmp_path / "in.parquet")
    answers(recommender, tmp_path, "whole.parquet")
    crash(tmp_path, tmp_path / "model", survive, when)
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "out.parquet.parts").glob("part-*")}
    assert len(kept) == min(survive + (when == "after"), 5) + (when == "before" and survive < 5)  # a draft
    told: list[int] = []
    answers(recommender, tmp_path, resume=True, progress=lambda done, total: told.append(done))
    complete = min(survive + (when == "after"), 5)
    if (survive, when) != (5, "after"):  # then all was done
        assert told == [min(PART * part, HISTORIES) for part in range(complete, 6) if part <= 5]
    assert (tmp_path / "out.parquet").read_bytes() == (tmp_path / "whole.parquet").read_bytes()
    assert {path.name for path in tmp_path.iterdir()} == {"in.parquet", "model", "out.parquet", "whole.parquet"}


def test_a_run_that_failed_halfway_goes_on(
    recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lists(tmp_path / "in.parquet")
    expected = answers(recommender, tmp_path, "whole.parquet")
    asked = recommender.recommend_many

    def fail_at(part: int) -> list[int]:
        sizes: list[int] = []

        def asking(histories: Any, *args: Any, **options: Any) -> Any:
            if len(sizes) == part:
                raise KeyboardInterrupt
            sizes.append(len(histories))
            return asked(histories, *args, **options)

        monkeypatch.setattr(recommender, "recommend_many", asking)
        return sizes

    fail_at(2)
    with pytest.raises(KeyboardInterrupt):
        answers(recommender, tmp_path)
    with pytest.raises(QueryError, match="stopped; pass --resume"):
        answers(recommender, tmp_path)
    with pytest.raises(QueryError, match="another policy"):
        recommend_file(
            recommender, HistorySource(tmp_path / "in.parquet"), tmp_path / "out.parquet", Policy(n=4), resume=True
        )
    sizes = fail_at(99)
    assert answers(recommender, tmp_path, resume=True) == expected
    assert sizes == [PART, PART, HISTORIES - 4 * PART]
    sizes = fail_at(0)
    assert answers(recommender, tmp_path, resume=True) == expected  # all is done
    with pytest.raises(QueryError, match="exists already; pass --overwrite"):
        answers(recommender, tmp_path)
    sizes = fail_at(99)
    assert answers(recommender, tmp_path, overwrite=True) == expected
    assert sum(sizes) == HISTORIES


def test_changed_histories_or_another_model_are_not_mixed_in(
    recommender: Recommender, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_lists(tmp_path / "in.parquet")
    monkeypatch.setattr("abaca.batch.parts.Parts.finish", lambda *_: None)
    source, to = HistorySource(tmp_path / "in.parquet"), tmp_path / "out.parquet"
    recommend_file(recommender, source, to, Policy())
    other = untrained(tmp_path / "other", "softmax")
    with pytest.raises(QueryError, match="another model;"):
        recommend_file(other, source, to, Policy(), resume=True)
    pq.write_table(pa.table({"history": [["i1"]]}), tmp_path / "in.parquet")
    with pytest.raises(QueryError, match="another histories;"):
        recommend_file(recommender, source, to, Policy(), resume=True)


def test_an_ending_that_is_not_known_is_refused(recommender: Recommender, tmp_path: Path) -> None:
    write_lists(tmp_path / "in.parquet")
    with pytest.raises(QueryError, match=r"\.parquet, \.jsonl, \.csv"):
        recommend_file(recommender, HistorySource(tmp_path / "in.parquet"), tmp_path / "out.xlsx", Policy())


def test_two_runs_do_not_write_one_file(recommender: Recommender, tmp_path: Path) -> None:
    write_lists(tmp_path / "in.parquet")

    def other(done: int, total: int) -> None:
        with pytest.raises(QueryError, match="being written by another process"):
            answers(recommender, tmp_path, overwrite=True)

    assert len(answers(recommender, tmp_path, progress=other)) == HISTORIES


def test_the_answers_stand_apart_from_what_is_read(recommender: Recommender, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    write_lists(tmp_path / "in" / "a.parquet")
    with pytest.raises(SpecError, match="must be separate"):
        recommend_file(recommender, HistorySource(tmp_path / "in"), tmp_path / "in" / "out.parquet", Policy())


def test_users_beyond_64_bits_are_refused(recommender: Recommender, tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"user": 99999999999999999999, "history": ["i1"]}\n', encoding="utf-8")
    with pytest.raises(LogError, match="line 1: the user 99999999999999999999 is beyond 64 bits; write users as text"):
        recommend_file(recommender, HistorySource(tmp_path / "in.jsonl"), tmp_path / "out.jsonl", Policy())
