"""Tables from Python: one list of openers, by what an object is. None of the libraries is imported for it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.data.sources.roles import BadRow, Role
from anaphora.data.sources.sheet import ObjectSheet, leaves
from anaphora.errors import DataError

_BATCH = 1024
Opener = Callable[[Any, str], ObjectSheet | None]


class XY(NamedTuple):
    """Inputs and targets given apart, as ``fit(X, y)`` takes them."""

    X: Any
    y: Any


def table_of(data: Any, where: str) -> ObjectSheet | None:
    """The table that ``data`` is, called ``where`` in sentences; None where it has no named columns.

    A pandas, polars, Arrow or Hugging Face table, anything with ``columns`` that are found by name, a mapping of names to
    columns, or an iterable of dictionaries. Of a generator the first element is read and put back, so use the table.
    """
    if isinstance(data, str | bytes | Path) or data is None:
        return None
    library = type(data).__module__.partition(".")[0]
    opener = _LIBRARIES.get(library, _duck)
    return opener(data, where) or (_duck(data, where) if opener is not _duck else None)


def with_index(data: Any) -> tuple[Any, list[str]]:
    """A frame or a series of pandas with its index as columns before the others, where it says more than the number of the row: times, names, several
    levels; and the names of those columns."""
    index = getattr(data, "index", None)
    if type(data).__module__.partition(".")[0] != "pandas" or index is None:
        return data, []
    named = [name for name in index.names if name is not None]
    if (
        not named
        and type(index).__name__ not in ("DatetimeIndex", "PeriodIndex", "MultiIndex")
        and index.dtype != object
    ):
        return data, []
    frame = data.to_frame("x1" if data.name is None else data.name) if not hasattr(data, "columns") else data
    taken = [str(name) for name in frame.columns]
    names: list[str] = []
    for place, name in enumerate(index.names):
        usual = str(name) if name is not None else ("index" if index.nlevels == 1 else f"level_{place}")
        names.append(
            next(
                one for one in (usual, *(f"{usual}{i}" for i in range(2, 99))) if one not in (*taken, *names)
            )
        )
    columns = {name: index.get_level_values(place) for place, name in enumerate(names)}
    frame = frame.set_axis(taken, axis=1).reset_index(drop=True)
    for place, (name, values) in enumerate(columns.items()):
        frame.insert(place, name, values)
    return frame, names


def pairs_table(examples: Iterable[Any], roles: Sequence[Role], where: str) -> ObjectSheet:
    """An iterable of tuples, one value for each role, as a table."""
    return _Tuples(where, [role.side for role in roles], lambda: examples)


class _Tuples(ObjectSheet):
    def cell(self, values: Any, name: str) -> Any:
        what = "a pair of texts" if len(self.names) == 2 else f"{len(self.names)} values"
        if len(self.names) == 1:
            return values
        if not isinstance(values, tuple | list) or len(values) != len(self.names):
            raise BadRow(f"not {what}", f"a {type(values).__name__}")
        return super().cell(values, name)


def together(X: Any, y: Any) -> Iterator[tuple[Any, Any]]:
    """The inputs ``X`` with their targets ``y``; a `DataError` where there are not as many."""
    inputs, targets = list(_plain(X)), list(_plain(y))
    if len(inputs) != len(targets):
        raise DataError(
            f"There are {len(inputs)} sequences and {len(targets)} labels; give one label per sequence."
        )
    return iter(zip(inputs, targets, strict=True))


def is_xy(data: Any) -> bool:
    """Whether a tuple of two holds inputs and their targets rather than two examples or two files.

    Arrays, tensors, series and lists of equal length do; tuples are examples.
    """
    if isinstance(data, XY):
        return True
    if (
        not isinstance(data, tuple)
        or len(data) != 2
        or any(isinstance(one, str | Path | tuple) for one in data)
    ):
        return False
    return all(hasattr(one, "__len__") and not isinstance(one, Mapping) for one in data)


def unbatched(data: Any) -> Iterator[tuple[Any, Any]] | None:
    """The examples of a torch ``DataLoader``, whose batches are (inputs, targets); None where it is none."""
    if not (hasattr(data, "dataset") and hasattr(data, "batch_sampler")):
        return None

    def examples() -> Iterator[tuple[Any, Any]]:
        for number, batch in enumerate(data, start=1):
            if isinstance(batch, Mapping):
                columns = [_plain(column) for column in batch.values()]
                yield from (dict(zip(batch, row, strict=True)) for row in zip(*columns, strict=True))  # type: ignore[misc]
            elif isinstance(batch, tuple | list) and len(batch) == 2:
                yield from together(*batch)
            else:
                raise DataError(
                    f"batch {number} of the DataLoader is a {type(batch).__name__}; give batches (inputs, targets)."
                )

    return examples()


def _plain(column: Any) -> Iterable[Any]:
    """A column as plain values where they are numbers or texts, as arrays where they are more."""
    if hasattr(column, "detach"):  # a tensor of torch, wherever it is
        column = column.detach().cpu().numpy()
    if getattr(column, "ndim", 0) == 1 or hasattr(column, "to_list"):
        listed: Any = getattr(column, "to_list", None) or getattr(column, "tolist", None)
        return listed() if listed is not None else column  # type: ignore[no-any-return]
    return column  # type: ignore[no-any-return]


def _pandas(data: Any, where: str) -> ObjectSheet | None:
    if not hasattr(data, "itertuples"):
        return None
    return ObjectSheet(
        where, list(data.columns), lambda: data.itertuples(index=False, name=None), form="pandas"
    )


def _polars(data: Any, where: str) -> ObjectSheet | None:
    data = data.collect() if hasattr(data, "collect") else data
    if not hasattr(data, "iter_rows"):
        return None
    return ObjectSheet(where, list(data.columns), lambda: data.iter_rows(), form="polars")


def _arrow(data: Any, where: str) -> ObjectSheet | None:
    if not hasattr(data, "schema"):
        return None

    def rows() -> Iterator[Any]:
        batches = (
            data.to_batches(_BATCH) if hasattr(data, "column_names") and hasattr(data, "slice") else data
        )
        for batch in batches if not hasattr(batches, "to_pylist") else [batches]:
            yield from batch.to_pylist()

    if not hasattr(data, "to_batches") and hasattr(data, "to_pylist"):  # one batch
        return ObjectSheet(where, data.schema.names, lambda: data.to_pylist(), form="Arrow")
    return ObjectSheet(where, data.schema.names, rows, form="Arrow")


def _hugging_face(data: Any, where: str) -> ObjectSheet | None:
    if isinstance(data, Mapping):
        return None  # a DatasetDict: its splits are taken apart before
    first = next(iter(data), None)
    names = getattr(data, "column_names", None) or list(first or ())
    return ObjectSheet(where, leaves(first) if first else names, lambda: data, form="Hugging Face")


def _duck(data: Any, where: str) -> ObjectSheet | None:
    if isinstance(data, Mapping):
        columns = {str(name): list(_plain(column)) for name, column in data.items()}
        if len({len(column) for column in columns.values()}) != 1:
            raise DataError(f"{where}: its columns are not equally long; give each a value for every row.")
        return ObjectSheet(where, list(columns), lambda: zip(*columns.values(), strict=True))
    names = getattr(data, "columns", None)
    if names is not None and not callable(names) and hasattr(data, "shape") and hasattr(data, "__getitem__"):
        return ObjectSheet(
            where, list(names), lambda: zip(*(_plain(data[name]) for name in names), strict=True)
        )
    if isinstance(data, Sequence):
        first = data[0] if len(data) else None
        return _dictionaries(data, first, where)
    return None


def _dictionaries(rows: Iterable[Any], first: Any, where: str) -> ObjectSheet | None:
    return ObjectSheet(where, leaves(first), lambda: rows) if isinstance(first, Mapping) else None


def peeked(data: Iterable[Any], where: str) -> tuple[Any, Iterator[Any], ObjectSheet | None]:
    """The first element of an iterable, the whole of it again, and the table that it is, if it has dictionaries."""
    try:
        whole = iter(data)
    except TypeError:
        raise DataError(
            f"{where}: a {type(data).__name__} holds no examples; give a list, a table or a path."
        ) from None
    head = list(itertools.islice(whole, 1))
    whole = itertools.chain(head, whole)
    first = head[0] if head else None
    return first, whole, _dictionaries(whole, first, where)


_LIBRARIES: dict[str, Opener] = {
    "pandas": _pandas,
    "polars": _polars,
    "pyarrow": _arrow,
    "datasets": _hugging_face,
}
