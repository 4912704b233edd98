"""Tables in memory, pandas, polars, Arrow and their like, as Arrow."""

from collections.abc import Mapping
from typing import Any

import pyarrow
import pyarrow.interchange

from abaca.errors import LogError


def is_table(source: Any) -> bool:
    """Whether an object is a table that `to_arrow` can take."""
    return isinstance(source, Mapping) or any(
        hasattr(source, name) for name in ("__arrow_c_stream__", "__arrow_c_array__", "to_arrow", "__dataframe__")
    )


def to_arrow(source: Any) -> pyarrow.Table:
    """A table in memory as an Arrow table, without a copy where its library allows."""
    table = _converted(source)
    if not table.num_columns:
        raise LogError("the table has no columns; it needs at least those of the user and the item")
    return table


def _converted(source: Any) -> pyarrow.Table:
    try:
        if isinstance(source, Mapping):
            return pyarrow.table(dict(source))
        if hasattr(source, "__arrow_c_stream__") or hasattr(source, "__arrow_c_array__"):
            return pyarrow.table(source)
        if hasattr(source, "to_arrow"):
            return source.to_arrow()
        return pyarrow.interchange.from_dataframe(source)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError) as error:
        raise LogError(f"the table cannot be taken as Arrow ({error}); give each column one type") from error
