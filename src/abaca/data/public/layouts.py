"""Publishers' log formats, converted to `log.parquet` (user_id, item_id, timestamp in seconds).

Rows stay in the file's order: it decides between interactions at the same time.
"""

import ast
import io
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import duckdb
import pyarrow
import pyarrow.parquet

from abaca.data.database import Database, text
from abaca.data.log import read_log
from abaca.data.public.sources import Origin
from abaca.data.reading.columns import Wanted
from abaca.errors import FetchError, LogError


class Lines(NamedTuple):
    """A file whose lines have fields `f[1]`, `f[2]`, …; user, item and time are SQL over them."""

    delimiter: str
    user: str
    item: str
    time: str
    header: bool = False
    keep: str = "true"
    """Lines that are of the log; others are none of its rows."""


def _number(field: str) -> str:
    return f"try_cast({field} AS DOUBLE)"


def _date(field: str) -> str:
    return f"epoch(try_cast({field} AS TIMESTAMPTZ))"


LINES = {
    "movielens": Lines("::", "f[1]", "f[2]", _number("f[4]")),
    "amazon": Lines(",", "f[1]", "f[2]", _number("f[4]")),
    "gowalla": Lines("\t", "f[1]", "f[5]", _date("f[2]")),
    "yoochoose": Lines(",", "f[1]", "f[3]", _date("f[2]")),
    "twitch": Lines(",", "f[1]", "f[2]", f"600 * {_number('f[4]')}"),
    "tmall-buy": Lines(",", "f[1]", "f[3]", "epoch(try_strptime(f[6], '%Y%m%d'))", header=True, keep="f[5] = '1'"),
    "kdd2010": Lines("\t", "f[2]", "f[4] || '<' || f[6]", f"coalesce({_date('f[7]')}, {_date('f[8]')})", header=True),
}
"""Twitch counts periods of ten minutes. Tmall's fifth field is 0 for a click, 1 for a purchase.
An item of KDD Cup 2010 is a step of a problem; its time is its start or first transaction."""

TABLES = {"recbole": Wanted(), "yelp": Wanted(item="business_id", time="date"), "amazon-reviews": Wanted()}
"""Files that name their columns, and those names that are not recognised."""

PYTHON = "steam"
"""Lines that are Python literals, not JSON."""

CHUNK = 100_000
LONGEST = 1 << 20
"""Characters of a line that are read as a Python literal."""


def convert(file: Path, layout: str, origin: Origin, to: Path) -> dict[str, int]:
    """Write a publisher's log as Parquet; returns the numbers of unreadable rows, by fault."""
    if layout in TABLES:
        return _convert_table(file, _columns(layout, origin), to)
    database = Database()
    try:
        if layout == PYTHON:
            _load_literals(database, file)
        else:
            _load_lines(database, file, LINES[layout])
        bad = database.value("SELECT count(*) FROM raw WHERE NOT good")
        _write(database, "SELECT user_id, item_id, timestamp FROM raw WHERE good", to, file)
    except duckdb.Error as error:
        raise FetchError(
            f"{file.name}: cannot be read ({str(error).splitlines()[0]}); is it the right file?"
        ) from error
    finally:
        database.close()
    return {"unreadable": bad} if bad else {}


def write_titles(file: Path, to: Path) -> None:
    """Write MovieLens' films (id::title::genres) as an item table."""
    raw = file.read_bytes()
    try:
        lines = raw.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        lines = raw.decode("latin-1").splitlines()
    rows = [line.split("::") for line in lines if line.count("::") >= 2]
    columns = {"item_id": [row[0] for row in rows], "title": ["::".join(row[1:-1]) for row in rows]}
    pyarrow.parquet.write_table(pyarrow.table(columns), to)


def count(log: Path) -> dict[str, int]:
    """How many users, items and interactions a `log.parquet` holds."""
    database = Database()
    try:
        users, items, interactions = database.row(
            f"SELECT count(DISTINCT user_id), count(DISTINCT item_id), count(*) FROM read_parquet({text(str(log))})"
        )
    finally:
        database.close()
    return {"users": users, "items": items, "interactions": interactions}


def _columns(layout: str, origin: Origin) -> Wanted:
    usual = TABLES[layout]
    return Wanted(origin.user or usual.user, origin.item or usual.item, origin.time or usual.time)


def _convert_table(file: Path, wanted: Wanted, to: Path) -> dict[str, int]:
    try:
        with read_log(file, user=wanted.user, item=wanted.item, time=wanted.time, on_bad_row="skip") as log:
            listed = '"user" AS user_id, item AS item_id, "time" AS timestamp'
            _write(log.database, f'SELECT {listed} FROM log ORDER BY "row"', to, file)
            return {fault: number for fault, number in log.bad_rows.items() if number}
    except LogError as error:
        raise FetchError(f"{error}: is it the right file?") from error


def _load_lines(database: Database, file: Path, layout: Lines) -> None:
    """Make `raw(user_id, item_id, timestamp, good)`; the delimiter \\x01 occurs in no line."""
    path = text(str(database.without_wildcards(file)))
    lines = (
        f"SELECT string_split(line, {text(layout.delimiter)}) AS f FROM read_csv({path}, auto_detect = false, "
        f"header = {str(layout.header).lower()}, delim = '\x01', quote = '', escape = '', nullstr = '', "
        "columns = {'line': 'VARCHAR'}) WHERE line IS NOT NULL"
    )
    _load(
        database,
        f"SELECT {layout.user} AS u, {layout.item} AS i, {layout.time} AS t FROM ({lines}) WHERE {layout.keep}",
    )


def _load_literals(database: Database, file: Path) -> None:
    database.run("CREATE TABLE literals (u VARCHAR, i VARCHAR, d VARCHAR)")
    with file.open(encoding="utf-8", errors="replace") as stream, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in reviews
        rows = _literals(stream)
        while chunk := list(islice(rows, CHUNK)):
            columns = dict(zip(("u", "i", "d"), zip(*chunk, strict=True), strict=True))
            table = pyarrow.table({name: pyarrow.array(column, pyarrow.string()) for name, column in columns.items()})
            with database.registered("arrow_part", table):
                database.run("INSERT INTO literals SELECT u, i, d FROM arrow_part")
    _load(database, f"SELECT u, i, {_date('d')} AS t FROM literals")


def _literals(lines: io.TextIOBase) -> Iterator[tuple[str | None, ...]]:
    """User, item and date of each line of Steam's reviews; of an unreadable line, nothing."""
    while line := lines.readline(LONGEST):
        if not line.strip():
            continue
        try:
            review = ast.literal_eval(line.strip())
            fields = [review[key] for key in ("username", "product_id", "date")]
        except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError):
            fields = []
        yield tuple(fields) if len(fields) == 3 and all(isinstance(f, str) for f in fields) else (None, None, None)


def _load(database: Database, rows: str) -> None:
    good = "coalesce(u, '') <> '' AND coalesce(i, '') <> '' AND t IS NOT NULL"
    database.replace("raw", f"SELECT u AS user_id, i AS item_id, t AS timestamp, {good} AS good FROM ({rows})")


def _write(database: Database, rows: str, to: Path, file: Path) -> None:
    database.run(f"COPY ({rows}) TO {text(str(to))} (FORMAT parquet, COMPRESSION zstd)")
    with pyarrow.parquet.ParquetFile(to) as written:
        if not written.metadata.num_rows:
            raise FetchError(f"{file.name}: no line of it can be read; is it the right file?")
