"""Inputs as they are given from Python, or a sentence that says which cannot be used."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from anaphora.data.asked import is_blank
from anaphora.data.sources.objects import peeked, table_of
from anaphora.data.sources.roles import choose_input
from anaphora.data.sources.sheet import Sheet
from anaphora.errors import DataError
from anaphora.search._hypothesis import NotANumberError

X = TypeVar("X")
Y = TypeVar("Y")


def given_inputs(data: Any, learnt: Mapping[str, Any]) -> list[Any]:
    """The inputs as a list; of a table (a data frame, dictionaries), the column the model was trained on.

    ``learnt``: what `describe` said of the training data.
    """
    if isinstance(data, str):
        raise DataError("predict takes a list of texts: write [text] for a single one.")
    if not hasattr(data, "__iter__") and not hasattr(data, "__getitem__"):
        raise DataError(f"predict takes a list of inputs, not a {type(data).__name__}.")
    table = table_of(data, "the table")
    if table is None:
        _, data, table = peeked(data, "the table")
    if table is None:
        return list(data)
    return column_of(table, choose_input("the table", table.names, learnt, None))


def column_of(table: Sheet, name: str) -> list[Any]:
    """The values of one column; a missing one is an error that names its row."""
    found = []
    for record in table.records():
        try:
            value = table.cell(record.values, name)
        except LookupError:
            value = None
        if value is None or (isinstance(value, float) and value != value):
            raise DataError(
                f"{table.name}: row {record.number} has no {name}; fill it in, or leave the row out."
            )
        found.append(value)
    return found


def given_texts(texts: Iterable[str], learnt: Mapping[str, Any]) -> list[str]:
    """The texts as a list, out of what `given_inputs` takes."""
    given = given_inputs(texts, learnt)
    for number, text in enumerate(given, start=1):
        if not isinstance(text, str):
            raise DataError(f"input {number} is a {type(text).__name__}, not a text; give a list of str.")
    return given


def check_filled(items: Iterable[Any]) -> None:
    """A `DataError` for the first input that is neither a text nor a sequence, or has nothing in it."""
    for number, x in enumerate(items, start=1):
        if not hasattr(x, "__len__"):
            raise DataError(f"input {number} is a {type(x).__name__}; give a text, or a sequence of numbers.")
        if not len(x) or is_blank(x):
            raise DataError(f"input {number} is empty; give at least one symbol.")


class NotFiniteError(DataError):
    """A prediction that is not a finite number: numbers so large that the model's overflow."""

    def __init__(self, place: str):
        super().__init__(
            f"{place}: the prediction is not a finite number; are values of the input far beyond those of training?"
        )


def check_finite(outputs: Iterable[NDArray[np.floating[Any]]], what: str) -> None:
    """A `NotFiniteError` for the first output that holds NaN or infinity."""
    for number, output in enumerate(outputs, start=1):
        if not np.isfinite(output).all():
            row = int(np.argwhere(~np.isfinite(output))[0][0]) + 1 if np.ndim(output) > 1 else 0
            place = f", row {row}" if row else ""
            raise NotFiniteError(f"{what} {number}{place}")


def named_when_not_finite(
    search: Callable[[Sequence[X]], list[Y]], inputs: Sequence[X], numbers: Iterable[int] | None = None
) -> list[Y]:
    """``search(inputs)``, an output for each; where its numbers overflow, a `NotFiniteError` with the number of the first
    such input (from 1; ``numbers`` where several belong to one).

    A search stops at the first NaN, whichever of its rows has it, so they are then searched one by one.
    """
    try:
        return search(inputs)
    except NotANumberError as error:
        for number, one in zip(numbers or itertools.count(1), inputs, strict=False):
            try:
                search([one])
            except NotANumberError:
                raise NotFiniteError(f"input {number}") from error
        raise
