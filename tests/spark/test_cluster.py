"""On a cluster of one master and two workers, Spark gives what one process gives."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest

import abaca.spark
from abaca.batch import recommend_file
from abaca.cli import app, main
from abaca.data.log import read_log
from abaca.data.prepare import PrepareOptions, prepare
from abaca.data.queries import HistorySource
from abaca.data.sequences import Sequences
from abaca.errors import LogError
from abaca.evidence.transitions import Transitions
from abaca.policy import Policy
from abaca.search.index import build
from abaca.search.tune import write_index
from abaca.spark.recommending import spread
from abaca.training.checkpoint import weights_of
from models import untrained

from .samples import bad_csv, exact_log, tied_files

pytestmark = [
    pytest.mark.slow,
    pytest.mark.xdist_group("spark"),
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # sockets of py4j
]


def assert_same(ours: Sequences, spark: Sequences) -> None:
    """Row for row and statistic for statistic."""
    assert spark.manifest["counts"] == ours.manifest["counts"]
    assert spark.manifest["split"] == ours.manifest["split"]
    assert spark.manifest["options"] == ours.manifest["options"]
    assert spark.catalogue == ours.catalogue
    assert spark.user_ids == ours.user_ids
    for file in sorted(ours.path.glob("*.npy")):
        assert (spark.path / file.name).read_bytes() == file.read_bytes(), file.name
    assert spark.fingerprint == ours.fingerprint
    if spark.counted is not None:
        counted = vars(Transitions.count(ours.training(), ours.catalogue.size))
        assert spark.counted.keys() == counted.keys()
        for name, array in counted.items():
            np.testing.assert_array_equal(spark.counted[name], array, err_msg=name)


def test_a_frame_with_events_cuts_and_exact_times(cluster: Any, tmp_path: Path) -> None:
    options = PrepareOptions(
        min_user=2, min_item=3, targets_of=("buy", "it's"), split="time", target="all", since=2**60 + 50
    )
    items = {"id": ["i1", "茶"], "title": ["One", "Tea"]}
    with read_log(exact_log()) as log:
        ours = prepare(log, tmp_path / "duckdb", options=options, items=items)
    frame = cluster.createDataFrame(exact_log())
    spark = abaca.spark.prepare(frame, tmp_path / "spark", options=options, items=items, transitions=True)
    assert_same(ours, spark)


def test_ties_keep_the_order_of_files_and_rows(cluster: Any, tmp_path: Path) -> None:
    source = tied_files(tmp_path / "log")
    options = PrepareOptions(min_user=12, min_item=30, drop_consecutive=True, hold_out_items=0.1)
    with read_log(source) as log:
        ours = prepare(log, tmp_path / "duckdb", options=options)
    spark = abaca.spark.prepare(
        cluster.read.parquet(str(source)), tmp_path / "spark", options=options, transitions=True
    )
    assert_same(ours, spark)
    assert spark.manifest["source"] == ours.manifest["source"]


def test_bad_rows_are_counted_or_named_and_the_command_line_prepares(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "log" / "b c").mkdir(parents=True)
    for seed, folder in enumerate(("log", "log/b c", "log")):
        bad_csv(tmp_path / folder, 400, seed)
    source = tmp_path / "log"
    with read_log(source, on_bad_row="skip") as log:
        ours = prepare(log, tmp_path / "duckdb", options=PrepareOptions(min_user=3, events=("view",)))
    words = [
        "prepare", str(source), str(tmp_path / "spark"), "--engine", "spark", "--on-bad-row", "skip", "--min-user", "3",
        "--events", "view", "--json",
    ]  # fmt: skip
    monkeypatch.setattr(sys, "argv", ["abaca", *words])
    monkeypatch.setattr(app, "registered_commands", [])
    with pytest.raises(SystemExit) as stop:
        main()
    assert not stop.value.code
    assert json.loads(capsys.readouterr().out) == Sequences.open(tmp_path / "spark").manifest
    assert_same(ours, Sequences.open(tmp_path / "spark"))
    with pytest.raises(LogError) as error:
        read_log(source)
    with pytest.raises(LogError) as spark_error:
        abaca.spark.read_log(str(source), spark=cluster)
    assert str(spark_error.value) == str(error.value)


def test_recommendations_are_those_of_one_process(cluster: Any, tmp_path: Path) -> None:
    recommender = untrained(tmp_path / "model", "softmax+CPR:4+habits+followers")
    rng = np.random.default_rng(0)
    count = 300
    table = pyarrow.table(
        {
            "user": [f"u{i}" for i in range(count)],
            "history": [[f"i{item}" for item in rng.integers(0, 33, size)] for size in rng.integers(0, 15, count)],
            "now": 1_700_000_000 + rng.integers(0, 1000, count),
            "exclude": [[f"i{i % 30}"] for i in range(count)],
            "repeats": rng.choice(["auto", "exclude", "only"], count),
        }
    )
    policy = Policy(n=5, candidates=[f"i{i}" for i in range(25)], max_repeat_share=0.6)
    pyarrow.parquet.write_table(table, tmp_path / "in.parquet")
    recommend_file(recommender, HistorySource(tmp_path / "in.parquet"), tmp_path / "ours.parquet", policy)
    frame = cluster.read.parquet(str(tmp_path / "in.parquet")).repartition(4)
    answers = abaca.spark.recommend(tmp_path / "model", frame, policy=policy)
    assert_same_answers(pyarrow.parquet.read_table(tmp_path / "ours.parquet"), answers.toArrow())


def test_every_core_gets_rows_of_a_file_with_one_row_group(cluster: Any, tmp_path: Path) -> None:
    path = tmp_path / "in.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"user": range(1000)}), path)
    half = str(path.stat().st_size // 2 + 1)
    cut = {"spark.sql.files.maxPartitionBytes": half, "spark.sql.files.openCostInBytes": "0"}
    for name, value in cut.items():
        cluster.conf.set(name, value)
    try:
        frame = cluster.read.parquet(str(path))
        rows, spread_rows = (each.rdd.glom().map(len).collect() for each in (frame, spread(frame)))
        assert len(rows) > 1
        assert max(rows) == sum(rows) == sum(spread_rows) == 1000
        assert min(spread_rows) > 300
    finally:
        for name in cut:
            cluster.conf.unset(name)
    many = frame.repartition(8)
    assert spread(many) is many


def test_the_histories_of_a_log_are_those_of_one_process_and_an_index_is_used(cluster: Any, tmp_path: Path) -> None:
    """The index is of the negated table, so that its candidates are not the best items."""
    saved = untrained(tmp_path / "model").saved
    assert saved is not None
    wrong = build(-saved.model.table.detach().numpy(), "flat")
    write_index(tmp_path / "model", weights_of(tmp_path / "model"), wrong, {})
    rng = np.random.default_rng(1)
    log = pyarrow.table(
        {
            "user": rng.integers(0, 50, 600),
            "item": [f"i{item}" for item in rng.integers(0, 33, 600)],
            "time": 1_700_000_000_000 + 1000 * rng.integers(0, 40, 600),
        }
    )
    pyarrow.parquet.write_table(log, tmp_path / "log.parquet")
    recommender = abaca.load(tmp_path / "model")
    recommend_file(recommender, HistorySource(tmp_path / "log.parquet"), tmp_path / "ours.parquet", Policy(n=4))
    answers = abaca.spark.recommend(tmp_path / "model", str(tmp_path / "log.parquet"), n=4).toArrow()
    assert_same_answers(pyarrow.parquet.read_table(tmp_path / "ours.parquet"), answers)
    exact = abaca.spark.recommend(recommender, str(tmp_path / "log.parquet"), n=4, exact=True).toArrow()
    assert exact.sort_by("user")["ids"] != answers.sort_by("user")["ids"]


def assert_same_answers(ours: pyarrow.Table, spark: pyarrow.Table) -> None:
    """The same lists for the same users, probabilities up to rounding."""
    ours, spark = (table.sort_by("user") for table in (ours, spark))
    for name in ("user", "ids", "reasons", "estimated", "unknown", "rules"):
        assert spark[name].to_pylist() == ours[name].to_pylist(), name
    for name in ("probabilities", "repeat_probability"):
        lists = [column[name].combine_chunks() for column in (ours, spark)]
        flat = [column.flatten() if name == "probabilities" else column for column in lists]
        values = [np.array([np.nan if v is None else v for v in column.to_pylist()]) for column in flat]
        np.testing.assert_allclose(values[1], values[0], atol=1e-6)
