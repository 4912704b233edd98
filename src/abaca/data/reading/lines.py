"""Reading text files row by row with line numbers: slower than DuckDB, but it locates faults.

DuckDB reads a file without faults. This reads a file that DuckDB refuses, and finds lines.
"""

import csv
import io
import re
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow

from abaca.data.reading.values import BAD
from abaca.errors import LogError

RAGGED, ENCODING, QUOTES = (BAD[number] for number in (5, 6, 7))

BROKEN_QUOTES = "a quote is opened and not closed, or text follows a closing quote"

LONGEST = 2_000_000
"""Signs that a row has at most: DuckDB reads as many bytes, and a file may be packed a thousandfold."""

DELIMITERS = (",", "\t", ";", "|")
SPACED_QUOTES = re.compile(r'\s+"(.*)"', re.DOTALL)


class Row(NamedTuple):
    """One row of a text file; `fault` is None, or the kind of fault and its description."""

    line: int
    fields: list[str]
    fault: tuple[str, str] | None = None


def delimiter_of(line: str) -> str:
    """The delimiter that cuts a header into the most columns; a comma when none does."""
    return max(DELIMITERS, key=lambda sign: len(next(csv.reader([line], delimiter=sign), [])))


def read_header(path: Path, delimiter: str | None) -> tuple[list[str], str, int]:
    """The column names of a delimited file, its delimiter, and their line (0: empty file)."""
    return header_of(_lines(path), path.name, delimiter)


def header_of(lines: Iterable[str], name: str, delimiter: str | None) -> tuple[list[str], str, int]:
    """The same for the lines of a file of this name."""
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if _undecodable(line):
            raise LogError(f"{name} line {number}: the text is not UTF-8; save the file as UTF-8")
        try:
            sign = delimiter or delimiter_of(line)
            return next(csv.reader([line.rstrip("\r\n")], delimiter=sign)), sign, number
        except csv.Error as error:
            raise LogError(f"{name} line {number}: no line of column names ({error}); check the file") from error
    return [], delimiter or ",", 0


def delimited_rows(path: Path, delimiter: str, width: int, used: list[int]) -> Iterator[Row]:
    """Every row after the header; it has `width` fields, and those at `used` must be UTF-8."""
    lines = _Lines(path)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    header = True
    while True:
        lines.begin()
        try:
            fields = next(reader)
        except StopIteration:
            return
        except csv.Error:
            yield Row(lines.first, [], (QUOTES, BROKEN_QUOTES))
            lines.back_to_second()
            continue
        if not fields:
            continue
        if header:
            header = False
        else:
            yield _row(lines.first, fields, width, used)


def delimited_row(number: int, line: str, delimiter: str, width: int, used: list[int]) -> Row | None:
    """The row of one line alone, None for a blank line; a field that goes on in the next line is a fault."""
    if '"' not in line:
        return _row(number, line.split(delimiter), width, used) if line else None
    try:
        fields = next(csv.reader([line], delimiter=delimiter, strict=True), [])
    except csv.Error:
        return Row(number, [], (QUOTES, BROKEN_QUOTES))
    return _row(number, fields, width, used) if fields else None


def json_rows(path: Path) -> Iterator[Row]:
    """Every line of a JSON lines file that is not blank, as one field."""
    for number, line in enumerate(_lines(path), start=1):
        row = json_row(number, line)
        if row is not None:
            yield row


def json_row(number: int, line: str) -> Row | None:
    """A line of JSON as one field; None for a blank line."""
    stripped = line.strip()
    return Row(number, [stripped], _encoding_fault([stripped])) if stripped else None


class _Lines:
    """Physical lines that can go back to the second line of the row after a broken quote."""

    def __init__(self, path: Path) -> None:
        self._source = _lines(path)
        self._pending: deque[str] = deque()
        self._row: list[str] = []
        self._path, self._length = path, 0
        self._next = 1
        self.first = 1

    def begin(self) -> None:
        self._row, self._length = [], 0
        self.first = self._next

    def back_to_second(self) -> None:
        self._pending.extendleft(reversed(self._row[1:]))
        self._next = self.first + 1

    def __iter__(self) -> "_Lines":
        return self

    def __next__(self) -> str:
        line = self._pending.popleft() if self._pending else next(self._source)
        self._row.append(line)
        self._length += len(line)
        if self._length > LONGEST:
            raise _too_long(self._path, self.first)
        self._next += 1
        return line


def _lines(path: Path) -> Iterator[str]:
    with pyarrow.input_stream(str(path), compression="detect") as raw, io.BufferedReader(raw) as buffered:
        first = True
        text = io.TextIOWrapper(buffered, encoding="utf-8", errors="surrogateescape", newline="")
        number = 0
        while line := text.readline(LONGEST):
            number += 1
            if len(line) >= LONGEST:
                raise _too_long(path, number)
            yield line.removeprefix("\ufeff") if first else line
            first = False


def _too_long(path: Path, line: int) -> LogError:
    return LogError(f"{path.name} line {line}: it has {LONGEST:,} signs and more; is this a log? Give each row a line")


def _row(line: int, fields: list[str], width: int, used: list[int]) -> Row:
    if len(fields) != width:
        return Row(line, fields, (RAGGED, f"{len(fields)} fields where the first line names {width}"))
    joined = "".join(fields)
    if '"' in joined:
        fields = [_unspaced(field) for field in fields]
    return Row(line, fields, None if joined.isascii() else _encoding_fault([fields[place] for place in used]))


def _encoding_fault(fields: list[str]) -> tuple[str, str] | None:
    return (ENCODING, "the text is not UTF-8") if any(_undecodable(field) for field in fields) else None


def _undecodable(field: str) -> bool:
    return not field.isascii() and any("\udc80" <= sign <= "\udcff" for sign in field)


def _unspaced(field: str) -> str:
    """DuckDB leaves out blanks before an opening quote; so that both read alike, so does this."""
    match = SPACED_QUOTES.fullmatch(field) if field[:1].isspace() else None
    return match.group(1).replace('""', '"') if match else field
