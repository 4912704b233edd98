"""A table as Markdown, CSV and HTML."""

import csv
import io
from collections.abc import Callable, Iterable
from html import escape
from itertools import groupby
from typing import NamedTuple


class Cell(NamedTuple):
    """A value and its text."""

    value: float | None
    text: str
    best: bool = False
    mark: str = ""


class Line(NamedTuple):
    """A row of a table; rows of one group are adjacent."""

    group: str
    name: str
    cells: tuple[Cell, ...]


class Table(NamedTuple):
    """Rows in groups under two lines of heads: spanning heads, and the columns below them."""

    name: str
    caption: str
    heads: tuple[tuple[str, tuple[str, ...]], ...]
    lines: tuple[Line, ...]

    @property
    def columns(self) -> list[str]:
        """Each column's full name."""
        return [f"{head} {column}".strip() for head, below in self.heads for column in below]


def plain(value: float | None, digits: int = 2, mark: str = "", sign: bool = False) -> Cell:
    """A number with some digits; a dash for none."""
    if value is None:
        return Cell(None, "–")
    return Cell(value, f"{value:{'+' if sign else ''}.{digits}f}", mark=mark)


def bold_best(lines: Iterable[Line], skip: Callable[[int], bool] = lambda place: False) -> tuple[Line, ...]:
    """The lines with the highest value of each column marked, within each group of several rows."""
    done: list[Line] = []
    for _, members in groupby(lines, key=lambda line: line.group):
        group = list(members)
        best = [_highest(column) for column in zip(*(line.cells for line in group), strict=True)]
        for line in group:
            cells = (
                cell._replace(best=len(group) > 1 and cell.text == best[place] and not skip(place))
                for place, cell in enumerate(line.cells)
            )
            done.append(line._replace(cells=tuple(cells)))
    return tuple(done)


def _highest(cells: Iterable[Cell]) -> str | None:
    """The text of the highest value: equal texts are equally good."""
    known = [(cell.value, cell.text) for cell in cells if cell.value is not None]
    return max(known)[1] if known else None


def to_markdown(table: Table) -> str:
    """Markdown."""
    rows = [["", *table.columns], ["---", *("--:" for _ in table.columns)]]
    for group, members in groupby(table.lines, key=lambda line: line.group):
        rows.append([f"**{group}**", *("" for _ in table.columns)])
        rows += [[line.name, *(_emphasised(cell, "**{}**") + cell.mark for cell in line.cells)] for line in members]
    body = "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows)
    return f"{body}\n\n{table.caption}\n"


def to_csv(table: Table) -> str:
    """CSV: values in full, without marks."""
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(["group", "row", *table.columns])
    for line in table.lines:
        values = ("" if cell.text == "–" else cell.text if cell.value is None else repr(cell.value) for cell in line[2])
        writer.writerow([line.group, line.name, *values])
    return stream.getvalue()


def to_html(table: Table) -> str:
    """HTML."""
    spans = "".join(f"<th colspan='{len(below)}' class='span'>{escape(head)}</th>" for head, below in table.heads)
    columns = "".join(f"<th>{escape(column)}</th>" for _, below in table.heads for column in below)
    body = ""
    for group, members in groupby(table.lines, key=lambda line: line.group):
        body += f"<tr class='group'><th colspan='{1 + len(table.columns)}'>{escape(group)}</th></tr>"
        for line in members:
            cells = "".join(
                f"<td>{_emphasised(cell, '<b>{}</b>')}<sup>{escape(cell.mark)}</sup></td>" for cell in line.cells
            )
            body += f"<tr><th>{escape(line.name)}</th>{cells}</tr>"
    head = f"<thead><tr><th></th>{spans}</tr><tr><th></th>{columns}</tr></thead>"
    inside = f"<div class='scroll'><table>{head}<tbody>{body}</tbody></table></div>"
    return (
        f"<figure class='table' id='{escape(table.name)}'>{inside}"
        f"<figcaption>{escape(table.caption)}</figcaption></figure>"
    )


WRITERS: dict[str, Callable[[Table], str]] = {"md": to_markdown, "csv": to_csv}


def _emphasised(cell: Cell, frame: str) -> str:
    return frame.format(cell.text) if cell.best else cell.text
