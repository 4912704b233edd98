"""The files of a log: their formats, their columns, and how DuckDB reads them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow
import pyarrow.parquet

from abaca.data.database import text
from abaca.data.reading import lines as textlines
from abaca.errors import LogError
from abaca.shapes import loads

FORMATS = {
    ".csv": "csv",
    ".txt": "csv",
    ".tsv": "tsv",
    ".tab": "tsv",
    ".inter": "recbole",
    ".item": "recbole",
    ".jsonl": "json",
    ".ndjson": "json",
    ".json": "json",
    ".parquet": "parquet",
    ".pq": "parquet",
}
"""File endings and what they hold; the text formats may be followed by one of COMPRESSED."""

COMPRESSED = (".gz", ".zst")

PACKED = (*COMPRESSED, ".bz2", ".xz", ".zip", ".lz4", ".br", ".snappy", ".7z")
"""Endings of packed files, whether or not they can be read."""

CONTENTS = {
    b"\x1f\x8b": ("gzip", "name it with .gz at the end"),
    b"\x28\xb5\x2f\xfd": ("Zstandard", "name it with .zst at the end"),
    b"PK\x03\x04": ("a ZIP archive or a spreadsheet", "unpack it, or save it as CSV"),
    b"PAR1": ("Parquet", "name it with .parquet at the end"),
    b"\xff\xfe": ("UTF-16 text", "save it as UTF-8"),
    b"\xfe\xff": ("UTF-16 text", "save it as UTF-8"),
}
"""First bytes of files that are not plain text whatever their ending, and what to do."""

SAMPLE = 1000
"""This many first rows decide the keys of JSON lines, and whether times are dates."""


@dataclass(frozen=True)
class LogFile:
    """One file of a log, with its format."""

    path: Path
    name: str
    format: str
    columns: tuple[str, ...]
    delimiter: str = ","
    header_line: int = 1

    @property
    def unit(self) -> str:
        """What a row is called in a message: text has lines, Parquet has rows."""
        return "row" if self.format == "parquet" else "line"

    def sql(self) -> str:
        """A query for all columns of the file, in the file's order, named `c0`, `c1`, …"""
        path = text(str(self.path))
        if self.format == "parquet":
            return f"SELECT * FROM read_parquet({path}, hive_partitioning = false) AS file({self._places()})"
        if self.format == "json":
            return self.json_sql(_json_lines_sql(path))
        listed = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(len(self.columns)))
        return (
            f"SELECT * FROM read_csv({path}, auto_detect = false, header = true, delim = {text(self.delimiter)}, "
            f"quote = '\"', escape = '\"', nullstr = '', columns = {{{listed}}})"
        )

    def _places(self) -> str:
        return ", ".join(f"c{place}" for place in range(len(self.columns)))

    def json_sql(self, lines: str, beside: str = "") -> str:
        """The columns `c0`, `c1`, … of JSON lines, and `broken` where a line is no JSON object.

        `beside` is a column of the lines that goes on as it is.
        """
        pointers = [text("/" + key.replace("~", "~0").replace("/", "~1")) for key in self.columns]
        fields = [f"json_extract(document, {pointer}) AS c{place}" for place, pointer in enumerate(pointers)]
        broken = "json_type(document) IS DISTINCT FROM 'OBJECT' AS broken"
        kept = [beside] if beside else []
        document = "CASE WHEN json_valid(line) THEN line::JSON END AS document"
        documents = f"SELECT {', '.join([document, *kept])} FROM ({lines})"
        return f"SELECT {', '.join([*fields, broken, *kept])} FROM ({documents})"

    def rows(self, used: list[int]) -> Iterator[textlines.Row]:
        """The rows of a text file with line numbers and faults, read by Python."""
        if self.format == "json":
            return textlines.json_rows(self.path)
        return textlines.delimited_rows(self.path, self.delimiter, len(self.columns), used)

    def sample(self, column: str) -> list[object]:
        """Values of one column in the first JSON lines, without those that are null."""
        found = [
            document.get(column)
            for _, document in _first_documents(textlines.json_rows(self.path))
            if isinstance(document, dict)
        ]
        return [value for value in found if value is not None]

    def refusal(self, error: Exception) -> LogError:
        """The error for a file that DuckDB refuses: its first bad line, or DuckDB's message."""
        if not self.path.stat().st_size:
            return LogError(f"{self.name}: is empty; write the names of its columns, and rows")
        for row in self.rows(list(range(len(self.columns)))) if self.format != "parquet" else ():
            if row.fault is not None:
                return LogError(f"{self.name} line {row.line}: {row.fault[1]}; fix the line")
        return LogError(f"{self.name}: cannot be read ({str(error).splitlines()[0]}); write the file again")

    def locate(self, ordinal: int) -> int:
        """The line (for Parquet, the row) of the row with this ordinal, from 0."""
        if self.format == "parquet":
            return ordinal + 1
        sound = (row for row in self.rows([]) if row.fault is None)
        return next(islice(sound, ordinal, None)).line


def open_files(source: Path) -> list[LogFile]:
    """The log files behind a path: the file itself, or every log file of a folder, by path."""
    if not source.exists():
        raise LogError(f"{source} does not exist; give a file, or a folder of files")
    if source.is_file():
        return [_open(source, source.name)]
    if not source.is_dir():
        raise LogError(f"{source} is a pipe or a device, which can be read only once; write it to a file first")
    parts = [path.relative_to(source) for path in source.rglob("*") if path.is_file()]
    shown = [part for part in parts if not any(step.startswith((".", "_")) for step in part.parts)]
    for part in shown:
        if part.suffix.lower() in PACKED and format_of(part) is None and format_of(part.with_suffix("")) is not None:
            raise LogError(f"{part}: cannot be read packed like this; unpack it, or move it out of the folder")
    paths = sorted(source / part for part in shown if format_of(source / part) is not None)
    if not paths:
        raise LogError(f"{source} holds no log file; known endings are {_endings()}")
    return [_open(path, path.relative_to(source).as_posix()) for path in paths]


def format_of(path: Path) -> str | None:
    """The format of a file by its ending, None when it is not known."""
    suffixes = [suffix.lower() for suffix in path.suffixes]
    if suffixes and suffixes[-1] in COMPRESSED:
        suffixes.pop()
    found = FORMATS.get(suffixes[-1]) if suffixes else None
    packed = path.suffix.lower() in COMPRESSED
    return None if packed and found == "parquet" else found


def _open(path: Path, shown: str) -> LogFile:
    kind = format_of(path)
    if kind is None:
        raise LogError(f"{shown}: the format cannot be recognised by the file ending; known endings are {_endings()}")
    if kind != "parquet" and path.suffix.lower() not in COMPRESSED:
        _check_text(path, shown)
    try:
        if kind == "parquet":
            return LogFile(path, shown, kind, tuple(pyarrow.parquet.read_schema(path).names))
        if kind == "json":
            return LogFile(path, shown, kind, json_columns(textlines.json_rows(path), path.name))
        columns, delimiter, line = textlines.read_header(path, None if kind == "csv" else "\t")
    except (OSError, pyarrow.ArrowInvalid) as error:
        raise LogError(f"{shown}: cannot be read as {kind} ({error}); check the file and its ending") from error
    if kind == "recbole":
        columns = [column.split(":")[0] for column in columns]
    return LogFile(path, shown, kind, tuple(columns), delimiter, line)


def _check_text(path: Path, shown: str) -> None:
    """Refuse a file that is no text, with what it is."""
    with path.open("rb") as stream:
        check_head(stream.read(4096), path, shown)


def check_head(head: bytes, path: Path, shown: str) -> None:
    """The same for the first bytes of a file."""
    for begin, (content, cure) in CONTENTS.items():
        if head.startswith(begin):
            raise LogError(f"{shown}: this is {content}, not {path.suffix}; {cure}")
    if b"\0" in head.split(b"\n")[0]:
        raise LogError(f"{shown} line 1: there are zero bytes in it, so it is not UTF-8 text; save it as UTF-8")


def json_columns(rows: Iterable[textlines.Row], name: str) -> tuple[str, ...]:
    """The keys in the first lines of a file of JSON lines."""
    keys: dict[str, None] = {}
    line = 0
    for line, document in _first_documents(rows):
        if line == 1 and isinstance(document, list):
            raise LogError(f"{name}: one JSON list; write JSON lines instead, one object per line")
        keys.update(dict.fromkeys(document if isinstance(document, dict) else ()))
    if line and not keys:
        raise LogError(f"{name}: its first lines are no JSON objects; write JSON lines, one object per line")
    return tuple(keys)


def _first_documents(rows: Iterable[textlines.Row]) -> Iterator[tuple[int, object]]:
    """The first JSON lines with their numbers, None for one that is not JSON."""
    for row in islice(rows, SAMPLE):
        try:
            yield row.line, loads(row.fields[0])
        except ValueError:
            yield row.line, None


def _json_lines_sql(path: str) -> str:
    """One row per line that is not blank; \\x01 cannot occur in JSON, so it never cuts a line."""
    return (
        f"SELECT trim(c0, chr(9) || ' ') AS line FROM read_csv({path}, auto_detect = false, header = false, "
        f"delim = '\x01', quote = '', escape = '', nullstr = '', columns = {{'c0': 'VARCHAR'}}) "
        "WHERE trim(c0, chr(9) || ' ') <> ''"
    )


def _endings() -> str:
    return ", ".join(FORMATS) + "; text also with .gz or .zst"
