"""Tables from Python: data frames, Hugging Face data sets, and lists of dictionaries, by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.errors import DataError


def columns_of(data: Any) -> list[str] | None:
    """The names of the columns of a table; None when ``data`` is not a table.

    A table is a pandas or polars ``DataFrame``, a Hugging Face ``Dataset``, or a list of dictionaries with equal keys.
    """
    if isinstance(data, Sequence) and not isinstance(data, str | bytes) and len(data):
        first = data[0]
        return [str(name) for name in first] if isinstance(first, Mapping) else None
    names = getattr(data, "column_names", None)
    if names is None and hasattr(data, "shape") and hasattr(data, "__getitem__"):
        names = getattr(data, "columns", None)
    if names is None or callable(names) or isinstance(names, Mapping):
        return None
    return [str(name) for name in names]


def column_of(data: Any, name: str, where: str = "the table") -> list[Any]:
    """One column of a table as a list of plain values; a missing value is an error that names its row."""
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        values = []
        for number, row in enumerate(data, start=1):
            if not isinstance(row, Mapping) or name not in row:
                raise DataError(f"{where}: row {number} has no field {name}; give every row the same fields.")
            values.append(row[name])
    else:
        named = {str(key): key for key in getattr(data, "columns", ())} or {name: name}
        column = data[named.get(name, name)]
        turn = getattr(column, "to_list", None) or getattr(column, "tolist", None)
        values = list(turn() if turn is not None else column)
    for number, value in enumerate(values, start=1):
        if value is None or value != value:  # NaN is how pandas writes a missing value
            raise DataError(f"{where}: row {number} has no {name}; fill it in, or leave the row out.")
    return values
