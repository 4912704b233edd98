"""The files of a log that Spark lists and reads, wherever they are."""

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from abaca.data.database import Database
from abaca.data.log import check_stray
from abaca.data.reading import lines as textlines
from abaca.data.reading.columns import Wanted, choose
from abaca.data.reading.formats import SAMPLE, LogFile, check_head, format_of, json_columns
from abaca.data.reading.staging import Staging
from abaca.errors import LogError
from abaca.spark.rows import FILE_BITS, TextFile, line_numbers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Files:
    """Parquet files."""

    paths: tuple[str, ...]


@dataclass(frozen=True)
class TextLines:
    """Text files with their columns and first lines, in the order of their paths."""

    uris: tuple[str, ...]
    """As Spark's metadata spells them."""
    opened: tuple[LogFile, ...]
    first: tuple[tuple[str, ...], ...]
    """The first lines of each file."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(file.name for file in self.opened)

    def sampled(self, wanted: Wanted) -> Staging:
        """What the first lines say of columns, ids and times."""
        check_stray([file for file in self.opened if file.columns], wanted)
        database = Database(threads=1)
        staging = Staging(database, wanted, skip=True)
        for file, lines in zip(self.opened, self.first, strict=True):
            if file.columns:
                staging.add_rows(file, lambda used, file=file, lines=lines: _rows(file, lines, used))  # type: ignore[misc]
        database.close()
        if not staging.begun:
            shown = self.names[0] if len(self.names) == 1 else f"{len(self.names)} files"
            raise LogError(f"{shown}: the log is empty; it needs a first line that names the columns, and interactions")
        return staging

    def files(self, wanted: Wanted) -> dict[str, TextFile]:
        """How each file is read, by its URI."""
        found = {}
        for number, (uri, file) in enumerate(zip(self.uris, self.opened, strict=True)):
            chosen = choose(file.columns, wanted, file.name) if file.columns else ()
            named = [column for column in chosen if column is not None]
            if file.format == "json":
                file = replace(file, columns=tuple(named))
            used = tuple(None if column is None else file.columns.index(column) for column in chosen)
            found[uri] = TextFile(number, file, used or (None,) * 4)
        return found

    def frame(self, spark: "SparkSession") -> "DataFrame":
        """All lines: `file`, `start` of the block in its file, and `line`."""
        read = spark.read.text([_escaped(unquote(uri)) for uri in self.uris])
        return read.selectExpr("_metadata.file_path AS file", "_metadata.file_block_start AS start", BYTES)

    def place(self, spark: "SparkSession", files: dict[str, TextFile], row: int) -> tuple[str, str]:
        """The file and line of a row, and what it is called."""
        number = row >> FILE_BITS
        one = replace(self, uris=(self.uris[number],), opened=(self.opened[number],), first=(self.first[number],))
        placed = one.frame(spark).mapInArrow(line_numbers(files), "row bigint")
        return f"{self.names[number]} line {placed.where(f'row <= {row}').count()}", "line"


BYTES = "CAST(value AS BINARY) AS line"


def open_files(spark: "SparkSession", source: str) -> Files | TextLines:
    """The log files behind a path, with Spark's own access to it."""
    uris = _listed(spark, source)
    names = shown_names(uris, source)
    formats = {uri: format_of(Path(unquote(uri))) for uri in uris}
    known = [(uri, name) for uri, name in zip(uris, names, strict=True) if formats[uri] is not None]
    if not known:
        raise LogError(f"{source} holds no log file that Spark reads; give Parquet, CSV, TSV or JSON lines")
    if {formats[uri] for uri, _ in known} == {"parquet"}:
        return Files(tuple(_escaped(unquote(uri)) for uri, _ in known))
    for uri, name in known:
        if formats[uri] == "parquet":
            raise LogError(f"{name}: a log for Spark is Parquet or text, not both; convert one of them")
        if uri.endswith(".zst"):
            raise LogError(f"{name}: Spark does not read .zst; unpack it, or write Parquet")
    first = [_first_lines(spark, uri) for uri, _ in known]
    opened = [_opened(uri, name, lines) for (uri, name), lines in zip(known, first, strict=True)]
    return TextLines(tuple(uri for uri, _ in known), tuple(opened), tuple(map(tuple, first)))


def shown_names(uris: Sequence[str], source: str | None = None) -> tuple[str, ...]:
    """The names of files below the source, or below the folder that all are in."""
    paths = [unquote(urlsplit(uri).path) for uri in uris]
    if source is None:
        root = os.path.commonpath([os.path.dirname(path) for path in paths])
    else:
        root = urlsplit(source).path if urlsplit(source).scheme else os.path.abspath(source)
    root = root.rstrip("/") + "/"
    return tuple(path[len(root) :] if path.startswith(root) else PurePosixPath(path).name for path in paths)


def _listed(spark: "SparkSession", source: str) -> list[str]:
    """The URIs of all files below a path, in the order of their paths; hidden ones are left out."""
    from pyspark.errors import AnalysisException

    try:
        files = spark.read.format("binaryFile").option("recursiveFileLookup", "true").load(source)
        uris = [row[0] for row in files.selectExpr("_metadata.file_path").collect()]
    except AnalysisException as error:
        first = str(error).splitlines()[0]
        raise LogError(f"{source} cannot be read by Spark ({first}); give a file, or a folder of files") from error
    return sorted(uris, key=lambda uri: unquote(uri).split("/"))


def _first_lines(spark: "SparkSession", uri: str) -> list[str]:
    rows = spark.read.text(_escaped(unquote(uri))).selectExpr(BYTES).limit(SAMPLE + 100).collect()
    return [bytes(row[0]).decode("utf-8", "surrogateescape") for row in rows]


def _opened(uri: str, name: str, lines: list[str]) -> LogFile:
    """A text file by its first lines."""
    path = Path(unquote(uri))
    if path.suffix.lower() != ".gz" and lines:
        check_head(lines[0].encode("utf-8", "surrogateescape"), path, name)
    kind = format_of(path) or ""
    lines = [lines[0].removeprefix("\ufeff"), *lines[1:]] if lines else []
    if kind == "json":
        rows = (textlines.json_row(number, line) for number, line in enumerate(lines, start=1))
        return LogFile(path, name, kind, json_columns((row for row in rows if row is not None), name))
    columns, delimiter, number = textlines.header_of(lines, name, None if kind == "csv" else "\t")
    if kind == "recbole":
        columns = [column.split(":")[0] for column in columns]
    return LogFile(path, name, kind, tuple(columns), delimiter, number)


def _rows(file: LogFile, lines: Sequence[str], used: list[int]) -> Iterator[textlines.Row]:
    """The rows of a file's first lines."""
    for number, line in enumerate(lines, start=1):
        if number <= file.header_line and file.format != "json":
            continue
        if file.format == "json":
            row = textlines.json_row(number, line)
        else:
            row = textlines.delimited_row(number, line, file.delimiter, len(file.columns), used)
        if row is not None:
            yield row


def _escaped(path: str) -> str:
    """A path without signs that Spark would expand."""
    return re.sub(r"([\[\]{}*?\\])", r"\\\1", path)
