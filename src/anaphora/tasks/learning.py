"""What scikit-learn's tools ask of an estimator: inputs and targets apart, tags, clones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.labelled_targets import Targets
from anaphora.data.series_readers import open_series
from anaphora.data.series_scale import TARGET, TARGET_OF_TABLE
from anaphora.data.sources.roles import LABELLED, choose_columns
from anaphora.data.sources.sheet import Sheet, is_xy, table_of
from anaphora.errors import DataError
from anaphora.kinds.kind import column_of


def plain_targets(y: Any, kind: str) -> Any:
    """The targets of ``fit(X, y)``, one for each input: a tensor or a frame or array of one column as a list, a table of 0 and 1 as the classes whose
    columns have the 1s.

    ``kind`` is class, classes or number. A table has the classes 0, 1, …, or the names of its columns where it is a frame.
    """
    if hasattr(y, "detach"):  # a tensor of torch, wherever it is
        y = y.detach().cpu().numpy()
    y = y.toarray() if hasattr(y, "toarray") else y  # a sparse matrix
    columns = list(y.columns) if hasattr(y, "columns") and hasattr(y, "to_numpy") else None
    table = y.to_numpy() if columns is not None else y
    if not isinstance(table, np.ndarray):
        return y
    if table.ndim == 2 and table.shape[1] == 1:
        table = table[:, 0]
    if table.ndim == 1:
        return table.tolist() if table.dtype.kind in "biufUO" else y
    shape = " × ".join(map(str, table.shape))
    if kind == "number" or table.ndim != 2 or not np.isin(table, (0, 1)).all():
        raise DataError(f"y holds {shape} values; give one target per input.")
    names = columns if columns is not None else list(range(table.shape[1]))
    if kind == "classes":
        return [[name for name, there in zip(names, row, strict=True) if there] for row in table]
    if (table.sum(axis=1) != 1).any():
        raise DataError(
            f'y is a table of {shape} 0s and 1s, with several or no 1s in a row; set target="classes" for several labels each.'
        )
    return [names[place] for place in table.argmax(axis=1)]


def tell_axes(X: Any) -> None:
    """Warn where sequences of equal length have fewer steps than values per step: other libraries hold them as (sequences, values, time)."""
    shape: tuple[int, ...] = np.shape(X) if hasattr(X, "shape") else ()
    if len(shape) == 3 and 1 <= shape[1] < shape[2]:
        warnings.warn(
            f"X {shape} is read as {shape[0]} sequences of {shape[1]} steps with {shape[2]} values each; if time is the last axis, give "
            "X.transpose(0, 2, 1)",
            stacklevel=4,
        )


def paired(X: Any, y: Any) -> list[tuple[Any, Any]]:
    """``fit(X, y)`` as pairs of an input and its target. X of one named column is that column; of several, rows of numbers."""
    examples = [
        isinstance(one, list | tuple) and all(type(part) is tuple for part in one[:1]) for one in (X, y)
    ]
    if isinstance(X, str | Path) or isinstance(y, str | Path) or all(examples):
        raise DataError("fit(X, y) takes inputs and their targets; data to validate on are given by valid=….")
    table = None if isinstance(X, np.ndarray) else table_of(X, "X")
    if table is not None and len(table.names) == 1:
        X = column_of(table, table.names[0])
    elif table is not None and hasattr(X, "to_numpy"):
        numbers = X.to_numpy()
        if numbers.dtype.kind == "O" and any(isinstance(cell, str) for cell in numbers[:1].ravel()):
            shown = " and ".join(name[:30] for name in table.names[:2])
            raise DataError(
                f"X has several columns ({shown}) with texts; give one of them, or a frame with its labels and source_field='{'+'.join(shown.split(' and '))}'."
            )
        X = numbers
    elif isinstance(X, np.ndarray) and X.dtype.kind in "OU" and X.ndim == 2 and X.shape[1] == 1:
        X = X[:, 0]
    inputs, targets = list(X), list(y)
    if len(inputs) != len(targets):
        raise DataError(
            f"There are {len(inputs)} inputs and {len(targets)} targets; give one target per input."
        )
    return list(zip(inputs, targets, strict=True))


def aligned_columns(X: Any, y: Any) -> tuple[dict[str, Any], list[str]]:
    """Rows of X ``(time, columns)`` and values of y ``(time,)`` or ``(time, targets)`` as one table; the names of the targets.

    X is read as ``predict`` reads it: a data frame keeps the names of its columns, an array has x1, x2 …
    """
    table = None if isinstance(X, np.ndarray) else table_of(X, "X")
    targets = np.asarray(y.to_numpy() if hasattr(y, "to_numpy") else y, dtype=float)
    inputs = np.asarray(X, dtype=float) if table is None else np.empty((len(X), len(table.names)))
    inputs = inputs[:, None] if inputs.ndim == 1 else inputs
    if inputs.ndim != 2 or targets.ndim not in (1, 2) or len(inputs) != len(targets):
        raise DataError(
            f"X has the shape {inputs.shape} and y {targets.shape}; a Forecaster takes X (time, columns) with a y for each "
            'step. For one number per sequence use an.Classifier(target="number").'
        )
    opened = open_series(inputs if table is None else X)
    if len(opened.series) > 1:
        raise DataError(
            f"X holds {len(opened.series)} series, by its column {opened.series_name}; fit(X, y) takes one: give all columns in one table."
        )
    if targets.ndim == 1:
        names = [TARGET if table is None else TARGET_OF_TABLE]
    else:
        names = [f"{TARGET}{i}" for i in range(1, targets.shape[1] + 1)]
    for name in names:
        if name in opened.columns:
            raise DataError(
                f"X has a column {name}, which is what fit(X, y) calls a target; give it another name."
            )
    columns = zip(opened.columns, opened.series[0].values.T, strict=True)
    return dict(columns) | dict(zip(names, np.atleast_2d(targets.T), strict=True)), names


def check_shared(targets: Targets, wanted: Iterable[str], data: str, of: str = "training data") -> None:
    """A `DataError` where none of the labels ``wanted`` of some ``data`` is one ``of`` those learned from, so that all answers would be
    wrong."""
    if targets.kind == "number":
        return
    first = None
    for names in targets.parts(list(wanted)):
        if any(name in targets.names for name in names):
            return
        first = next(iter(names), None) if first is None else first
    if first is not None:
        known = ", ".join(targets.names[:5]) + (" …" if len(targets.names) > 5 else "")
        raise DataError(
            f"the {data} have no label of the {of}: {first[:60]!r} is none of {known}; give other {data}, or name the column "
            "of their labels."
        )


def warn_of_single_words(sentences: Sequence[Sequence[str]]) -> None:
    """A table with a word a row has lost its sentences, and with them what is around a word."""
    if len(sentences) > 20 and all(len(words) == 1 for words in sentences):
        warnings.warn(
            f"each of the {len(sentences)} sentences has one word; add a column sentence_id with the number of the sentence, or "
            "give CoNLL, which has an empty line between them",
            stacklevel=2,
        )


def given_labels(data: Any, fields: dict[str, str | None]) -> Sequence[Any] | None:
    """The labels of examples that were given from Python; None where they come from a file or a stream."""
    if isinstance(data, Mapping) and "train" in data and not isinstance(data["train"], list | str | tuple):
        data = data["train"]
    if isinstance(data, str | Path | Iterator):
        return None
    if is_xy(data):
        return list(data[1])
    table = table_of(data, "the train table")
    if table is not None:
        column = choose_columns(table.name, table.names, LABELLED, fields, None)[1]
        return list(_present(table, column))
    if isinstance(data, list | tuple) and all(
        isinstance(one, list | tuple) and len(one) == 2 for one in data
    ):
        return [one[1] for one in data]
    return None


def _present(table: Sheet, column: str) -> Iterator[Any]:
    """The values of a column; missing ones are left out here, since the reader reports or skips their rows."""
    for record in table.records():
        try:
            value = table.cell(record.values, column)
        except LookupError:
            continue
        if value is not None and not (isinstance(value, float) and value != value):
            yield value


def label_kind(labels: Sequence[Any] | None) -> str:
    """``bool``, ``int`` or ``float`` where all labels (or all in lists of them) are of that type, else ``str``."""
    flat = [
        one
        for label in labels or ()
        for one in (label if isinstance(label, list | tuple | set) else (label,))
    ]
    for name, kinds in (
        ("bool", (bool, np.bool_)),
        ("int", (int, np.integer)),
        ("float", (float, np.floating)),
    ):
        if flat and all(
            isinstance(one, kinds) and (name == "bool" or not isinstance(one, bool)) for one in flat
        ):
            return name
    return "str"


def sklearn_tags(kind: str) -> Any:
    """The tags of a ``classifier``, a ``regressor`` or neither, as scikit-learn 1.6 and later ask for them."""
    from sklearn.utils import ClassifierTags, InputTags, RegressorTags, Tags, TargetTags  # type: ignore[import-untyped]

    return Tags(
        estimator_type=kind or None,
        target_tags=TargetTags(required=bool(kind)),
        classifier_tags=ClassifierTags() if kind == "classifier" else None,
        regressor_tags=RegressorTags() if kind == "regressor" else None,
        input_tags=InputTags(two_d_array=True, three_d_array=True, string=True),
        non_deterministic=False,
    )
