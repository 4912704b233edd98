"""Recommending with Spark: each executor process loads the model once and answers partitions as they come."""

import hashlib
import os
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import pyarrow

from abaca.batch.answers import schema_of
from abaca.batch.run import BatchReport, answers_to, known_lists
from abaca.data.lists import NOW, ListColumns, Place, RowReader, history_column
from abaca.data.log import OnBadRow
from abaca.data.moments import Moment, now_of, parse_moment
from abaca.data.prepare import PrepareOptions
from abaca.data.queries import history_sql, time_factor
from abaca.data.reading.columns import recognise
from abaca.data.temporary import Temporary
from abaca.errors import LogError, ModelError, QueryError
from abaca.policy import Policy
from abaca.recommender import Recommender, load
from abaca.spark.files import Files, open_files
from abaca.spark.log import FRAME, active_session, own_error, read_log
from abaca.types import Id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MODEL = "model"
"""The folder in the archive that executors are sent."""

INTEGERS = ("tinyint", "smallint", "int", "bigint")
MANY = 4
"""With this many partitions for each core, those without rows matter little."""


def recommend(
    model: str | Path | Recommender,
    frame: "DataFrame | str",
    n: int = 10,
    *,
    policy: Policy | None = None,
    history: str | None = None,
    user: str | None = None,
    item: str | None = None,
    time: str | None = None,
    order: str | None = None,
    now: Moment | None = None,
    on_bad_row: OnBadRow | None = None,
    exact: bool = False,
    **rules: Any,
) -> "DataFrame":
    """The next items after each history of a frame, a row each: `user`, `ids`, `probabilities`, `reasons` and others.

    The frame, or the path that Spark reads, has one history per row in a column of lists, with columns of rules beside
    it, or is a log, read like the training log. Rules are those of `Recommender.recommend`, or one `policy`. `model` is
    a model directory of the driver, which is sent to the executors, or a trained recommender.
    """
    return _recommended(
        model, frame, Policy(n=n, **rules) if policy is None else _alone(policy, rules), history, now,
        {"user": user, "item": item, "time": time, "order": order, "on_bad_row": on_bad_row}, exact=exact,
    ).answers  # fmt: skip


class Recommended(NamedTuple):
    """Answers, not computed yet, and what was left out."""

    answers: "DataFrame"
    missing: tuple[Id, ...]
    """Unknown ids of the exclude or the candidate list."""
    bad_rows: dict[str, int]


def _alone(policy: Policy, rules: dict[str, Any]) -> Policy:
    if rules:
        raise QueryError(f"{', '.join(rules)} belongs to the policy: give `policy` or rules, not both")
    return policy


def recommend_path(
    model: str | Path,
    source: str,
    to: str,
    policy: Policy,
    *,
    history: str | None = None,
    now: Moment | None = None,
    exact: bool = False,
    overwrite: bool = False,
    **reading: Any,
) -> BatchReport:
    """Recommend for every history of a path that Spark reads, and let Spark write the answers as Parquet files."""
    found = _recommended(model, source, policy, history, now, {"order": None, **reading}, exact=exact)
    from pyspark.errors import AnalysisException, PythonException

    try:
        found.answers.write.mode("overwrite" if overwrite else "errorifexists").parquet(to)
    except AnalysisException as error:
        raise QueryError(
            f"{to} cannot be written ({str(error).splitlines()[0]}); pass --overwrite to replace"
        ) from error
    except PythonException as error:
        raise own_error(error) from error
    answers = found.answers.sparkSession.read.parquet(to)
    popular = "contains(element_at(reasons, 1), 'popular: ')"
    counts = answers.selectExpr(
        "count(*)", "sum(size(unknown))", "count_if(size(unknown) > 0)", f"count_if(size(reasons) > 0 AND {popular})"
    ).take(1)[0]
    named = answers.where("size(unknown) > 0").selectExpr("explode(unknown)").limit(100).collect()
    examples = tuple(dict.fromkeys(row[0] for row in named))[:5]
    return BatchReport(counts[0], 0, counts[1] or 0, counts[2], counts[3], examples, found.missing, found.bad_rows)


def _recommended(
    model: str | Path | Recommender,
    frame: "DataFrame | str",
    policy: Policy,
    history: str | None,
    now: Moment | None,
    given: dict[str, Any],
    *,
    exact: bool,
) -> Recommended:
    recommender = model if isinstance(model, Recommender) else load(model, exact=exact)
    if recommender.saved is None:
        raise ModelError("this recommender is not trained yet; call fit, or load a saved one with abaca.load")
    chosen, missing = known_lists(recommender.saved, policy)
    if isinstance(frame, str):
        files = open_files(active_session(), frame)
        source: Any = active_session().read.parquet(*files.paths) if isinstance(files, Files) else frame
    else:
        source = frame
    lists, reader, bad_rows = _lists(recommender, source, history, now, given, files=source is not frame)
    schema = schema_of(recommender.saved.catalogue, "user", reader.key_kind)
    name = _sent(lists.sparkSession, model)
    answers = lists.mapInArrow(Answer(name, exact, chosen, reader, schema), _spelled(schema))
    return Recommended(answers, missing, bad_rows)


def _lists(
    recommender: Recommender,
    frame: "DataFrame | str",
    history: str | None,
    now: Moment | None,
    given: dict[str, Any],
    *,
    files: bool,
) -> "tuple[DataFrame, RowReader, dict[str, int]]":
    """One history per row, how a row is read, and the bad rows that were left out."""
    options, unit = recommender.learned, recommender.time_unit
    if isinstance(frame, str):  # text files, which are a log
        return _of_log(recommender, frame, _moment(now, unit), given)
    types = dict(frame.dtypes)
    arrays = [name for name, type in types.items() if type.startswith("array<")]
    if history is None and given["item"] is None:
        history = history_column(arrays, frame.columns, FRAME, typed=options.types)
    if history is None:
        return _of_log(recommender, frame, _moment(now, unit), given)
    if history not in arrays:
        raise LogError(f"{FRAME}: column {history!r} does not hold lists; leave `history` out for a log")
    user = given["user"] or recognise("user", [name for name in frame.columns if name != history], FRAME)
    if user is None:
        raise LogError(f"{FRAME}: no column looks like the user; pass `user=COLUMN`, which names each answer")
    moments = str(now) if isinstance(now, str) and now in frame.columns else NOW
    columns = ListColumns(history, user, moments, options.types)
    kind = "integer" if types[user] in INTEGERS else "text"
    reader = RowReader(columns, kind, unit, None if moments != NOW else _moment(now, unit))  # type: ignore[arg-type]
    lists = frame.select(*(f"`{name}`" for name in reader.own if name in frame.columns))
    return spread(lists) if files else lists, reader, {}


def spread(lists: "DataFrame") -> "DataFrame":
    """The rows of files over all cores. Spark cuts files by bytes, but a row group stays whole in one partition."""
    context = getattr(lists.sparkSession, "_sc", None)
    if context is None:
        return lists
    cores, partitions = context.defaultParallelism, lists.rdd.getNumPartitions()
    return lists if partitions >= MANY * cores else lists.repartition(max(cores, partitions))


def _moment(now: Moment | None, unit: str | None) -> float | None:
    return parse_moment(now, "`now`", unit) if isinstance(now, str) else now_of([now], 1, unit)[0]


def _of_log(
    recommender: Recommender, frame: "DataFrame | str", now: float | None, given: dict[str, Any]
) -> "tuple[DataFrame, RowReader, dict[str, int]]":
    """The history of each user of a log, in the order of its rows."""
    options: PrepareOptions = recommender.learned
    reading = {**recommender.reading, **{name: value for name, value in given.items() if value is not None}}
    log = read_log(frame, **reading)
    tables = log.tables()
    latest = tables.row(f"SELECT max(log.time) FROM {tables.named('log')} AS log")[0]
    factor = time_factor(log, latest, recommender.time_unit)
    typed = options.types and log.has_event
    entry = f"struct(time, rest, row, item, time * CAST({factor!r} AS DOUBLE) AS moment, type)"
    sorted_rows = (
        f"SELECT kept.user AS user, array_sort(collect_list({entry})) AS rows "
        f"FROM ({history_sql(log, tables, options)}) AS kept GROUP BY kept.user"
    )
    fields = ["sorted.user AS user", "sorted.rows.item AS history"]
    fields += ["sorted.rows.moment AS times"] if log.has_time else []
    fields += ["sorted.rows.type AS types"] if typed else []
    lists = tables.spark.sql(f"SELECT {', '.join(fields)} FROM ({sorted_rows}) AS sorted")
    kind = "integer" if dict(lists.dtypes)["user"] == "bigint" else "text"
    columns = ListColumns("history", "user", NOW, typed)
    reader = RowReader(columns, kind, recommender.time_unit, now)  # type: ignore[arg-type]
    return lists, reader, log.bad_rows


@dataclass(frozen=True)
class Answer:
    """What an executor does with batches of histories."""

    model: str
    exact: bool
    policy: Policy
    reader: RowReader
    schema: pyarrow.Schema

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        recommender = loaded(self.model, self.exact)
        for batch in batches:
            rows = (dict(zip(batch.schema.names, cells, strict=True)) for cells in zip(*_listed(batch), strict=True))
            queries = [self.reader.query(0, row, self._place(row)) for row in rows]
            if queries:
                yield from answers_to(recommender, queries, self.policy, self.schema).to_batches()

    def _place(self, row: dict[str, Any]) -> Place:
        return Place(FRAME, "row", lambda: f"of {row.get(self.reader.columns.user or '')!r}")


def _listed(batch: pyarrow.RecordBatch) -> list[list[Any]]:
    return [column.to_pylist() for column in batch.columns]


@lru_cache(maxsize=1)
def loaded(model: str, exact: bool) -> Recommender:
    """The model of an executor process, which answers on as many threads as a task has cores."""
    import torch
    from pyspark import SparkFiles, TaskContext

    task = TaskContext.get()
    torch.set_num_threads(1 if task is None else max(1, int(task.cpus())))
    return load(model if os.path.isabs(model) else Path(SparkFiles.get(model)) / MODEL, exact=exact)


def _sent(spark: "SparkSession", model: str | Path | Recommender) -> str:
    """Send a model directory to the executors, under a name that its content gives."""
    temporary = Temporary()
    folder = model
    if isinstance(model, Recommender):
        folder = temporary.path / "model"
        model.save(folder)
    context = getattr(spark, "_sc", None)
    if context is None:  # Spark Connect: a folder that all machines have
        return str(Path(str(folder)).resolve())
    packed = temporary.path / "model.tar"
    with tarfile.open(packed, "w") as archive:
        archive.add(str(folder), arcname=MODEL, filter=_plain)
    with packed.open("rb") as file:
        name = f"abaca-{hashlib.file_digest(file, 'sha256').hexdigest()[:16]}.tar"
    if name not in _SENT.setdefault(context.applicationId, {}):
        packed.rename(packed.with_name(name))
        context.addArchive(str(packed.with_name(name)))
        _SENT[context.applicationId][name] = temporary  # as long as executors may fetch it
    return name


_SENT: dict[str, dict[str, Temporary]] = {}
"""The models that an application's executors have been sent."""


def _plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    """Without what differs between copies of a folder."""
    entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
    return entry


def _spelled(schema: pyarrow.Schema) -> Any:
    """An Arrow schema as one of Spark."""
    from pyspark.sql.pandas.types import from_arrow_schema

    return from_arrow_schema(schema)
