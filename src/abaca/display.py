"""How results are shown and handed on: JSON, Arrow and pandas tables, HTML in notebooks."""

import datetime
import decimal
import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any, TypeVar

import numpy as np

COLUMNS = ("user_id", "item_id", "score", "rank")
"""The columns of a table of recommendations, a row per item."""

SHOWN = 20
"""Answers that a notebook shows at most."""


def plain(value: Any) -> Any:
    """Values as JSON has them: text as keys, lists, dates in ISO format, None for a number that is not finite."""
    if isinstance(value, np.generic | np.ndarray):
        value = value.tolist()
    if isinstance(value, dict):
        return {str(key): plain(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple | set):
        return [plain(entry) for entry in value]
    if isinstance(value, decimal.Decimal):
        value = float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes):
        return value.hex()
    return value if value is None or isinstance(value, str | int) else str(value)


class AnswerTable:
    """Recommendations for one history, shown in notebooks and as a table."""

    items: Any

    def __repr__(self) -> str:
        named = [repr(item.id) for item in self.items]
        return f"Recommendations({', '.join(named[:5])}{', …' if len(named) > 5 else ''})"

    def _repr_html_(self) -> str:
        rows = [
            (rank, item.id, item.name, "" if item.probability is None else f"{item.probability:.2%}", item.reason)
            for rank, item in enumerate(self.items, 1)
        ]
        return html_table("Recommendations", ("rank", "item", "name", "probability", "reason"), rows)

    def to_arrow(self, user_id: Any = None) -> Any:
        """An Arrow table with the columns user_id, item_id, score (the probability) and rank."""
        return RecommendationBatch([self], [user_id]).to_arrow()

    def to_pandas(self, user_id: Any = None) -> Any:
        """A pandas data frame with the same columns."""
        return self.to_arrow(user_id).to_pandas()


Answer = TypeVar("Answer", bound=AnswerTable)


class RecommendationBatch(list[Answer]):
    """The answers to several histories, and the user of each; without users, the number of the history from 0."""

    def __init__(self, answers: Iterable[Answer], users: Iterable[Any]) -> None:
        super().__init__(answers)
        self.users = list(users)

    def __repr__(self) -> str:
        return f"RecommendationBatch({len(self)} answers)"

    def _repr_html_(self) -> str:
        rows = [
            (user, ", ".join(item.name for item in answer.items)) for user, answer in zip(self.users, self, strict=True)
        ]
        return html_table(f"{len(self)} answers", ("user", "items"), rows[:SHOWN])

    def to_arrow(self) -> Any:
        """An Arrow table with the columns user_id, item_id, score (the probability) and rank."""
        import pyarrow

        rows = [
            (user, item.id, item.probability, rank)
            for user, answer in zip(self.users, self, strict=True)
            for rank, item in enumerate(answer.items, 1)
        ]
        columns: list[Any] = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
        try:
            columns[0] = pyarrow.array(columns[0])
        except (pyarrow.ArrowException, OverflowError):  # ids that no one type of Arrow holds, such as 7 and "a"
            columns[0] = [str(user) for user in columns[0]]
        types = (None, None, pyarrow.float64(), pyarrow.int64())
        arrays = [pyarrow.array(column, type) for column, type in zip(columns, types, strict=True)]
        return pyarrow.table(dict(zip(COLUMNS, arrays, strict=True)))

    def to_pandas(self) -> Any:
        """A pandas data frame with the same columns."""
        return self.to_arrow().to_pandas()


def html_table(caption: str, head: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    """A table for notebooks."""
    cells = "".join(f"<th>{escape(name)}</th>" for name in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><caption>{escape(caption)}</caption><thead><tr>{cells}</tr></thead><tbody>{body}</tbody></table>"


BARS = "▁▂▃▄▅▆▇█"


def sparkline(values: Sequence[float], low: float, high: float, width: int = 30) -> str:
    """A curve as one line of text between two bounds; of more values than fit, some at equal distances."""
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    scale = (len(BARS) - 1) / (high - low) if high > low else 0.0
    levels = [round((min(max(value, low), high) - low) * scale) if math.isfinite(value) else 0 for value in values]
    return "".join(BARS[level] for level in levels)


def duration(seconds: float) -> str:
    """Seconds for people."""
    if 0 < seconds < 1:
        return "a second"
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"
