"""Sheets: named columns and rows in order, as a file format or an object of Python has them."""

from __future__ import annotations

import itertools
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.data.files import TextFile
from anaphora.data.sources.roles import BadRow, Role, is_missing, parts_of
from anaphora.errors import DataError

# Tables: named columns and rows in order, as a file format or an object of Python has them.

ANSWER = "prediction"
"""The column or field that holds the answer of ``predict``."""


@dataclass(frozen=True)
class Hints:
    """What the caller knows of a table before it is opened.

    ``named``: columns that will be read. ``facts``: the description of the same file in an earlier run, whose
    delimiter and header are kept; ``learnt`` that of the data a model was trained on.
    """

    named: tuple[str, ...] = ()
    facts: Mapping[str, Any] | None = None
    learnt: Mapping[str, Any] | None = None
    header: bool | None = None
    """Whether the first row is a header, where the caller knows."""


class Record(NamedTuple):
    """One row: its ``number`` (a line of a file, or the number of the example), and its values or what is wrong."""

    number: int
    values: Any = None
    problem: tuple[str, str] | None = None
    start: int = 0
    size: int = 0
    """Where the row lies in a text file."""


class Sheet(ABC):
    """``names`` of columns and ``records`` in order.

    kind: what `describe` calls the format. name: what to call the table in a sentence. facts: what was detected and is
    needed to read it the same way again (delimiter, header).
    """

    kind: str
    name: str
    names: list[str]
    facts: dict[str, Any]
    whole_joins: bool = False
    """True where ``lemma+tags`` needs a value in every column, as in the runs of version 0.2 whose data are opened again."""

    @abstractmethod
    def records(self) -> Iterator[Record]:
        """Every row in order, those with a problem too."""

    def asked(self) -> Iterator[Record]:
        """The rows that ``predict`` reads: all, unless the form has some that are there to be answered alone."""
        return self.records()

    @abstractmethod
    def cell(self, values: Any, name: str) -> Any:
        """The value of the column ``name``; a ``LookupError`` where the row has none."""

    def value(self, values: Any, name: str) -> Any:
        """Return the value of the column ``name``; of ``lemma+tags``, the texts that are there with a space between them.

        Where a joined column holds something else than text, that is returned; where all are empty, the first.
        """
        cells = [self.cell(values, one) for one in parts_of(name, self.names)]
        if len(cells) == 1:
            return cells[0]
        empty = [is_missing(one) or (isinstance(one, str) and not one.strip()) for one in cells]
        if all(empty) or (self.whole_joins and any(empty)):
            return cells[empty.index(True)]
        filled = [one for one, without in zip(cells, empty, strict=True) if not without]
        strange = [one for one in filled if not isinstance(one, str)]
        return strange[0] if strange else " ".join(filled)

    def picker(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        """What takes the values of the columns ``names`` out of a row."""
        return lambda values: tuple(self.value(values, name) for name in names)

    def detected(self) -> str:
        """What was detected, for the report: ``comma, header``."""
        return ""

    def heading(self, answer: str) -> str | None:
        """The line above the answers, where the form has one."""
        return None

    def answered(self, values: Any, answer: str) -> str:
        """A row with ``answer`` beside it, as a line: JSON unless the form has its own."""
        row = values if isinstance(values, Mapping) else dict(zip(self.names, values, strict=False))
        return json.dumps({**row, free_name(list(row)): answer}, ensure_ascii=False, default=str)


class TextSheet(Sheet):
    """A table whose rows lie in a text file, so that any of them can be read again by its place."""

    file: TextFile

    @abstractmethod
    def parse(self, rows: list[str]) -> list[Any]:
        """The values of the rows with these texts."""


class CutSheet(TextSheet):
    """A table whose rows are lists of as many texts as there are columns."""

    def cell(self, values: list[str], name: str) -> str:
        return values[self.names.index(name)]

    def picker(self, names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
        if not set(names) <= set(self.names):
            return super().picker(names)
        places = [self.names.index(name) for name in names]
        return lambda values: tuple(values[place] for place in places)


class ObjectSheet(Sheet):
    """A table whose rows come from a function: data frames, Parquet, lists of dictionaries."""

    def __init__(
        self,
        name: str,
        names: Sequence[str],
        rows: Callable[[], Iterable[Any]],
        *,
        kind: str = "memory",
        form: str = "",
    ):
        self.kind, self.name, self.names = kind, name, [str(one) for one in names]
        self._rows, self._form = rows, form
        self.facts = {}

    def records(self) -> Iterator[Record]:
        for number, values in enumerate(self._rows(), start=1):
            yield Record(number, values)

    def detected(self) -> str:
        return self._form

    def cell(self, values: Any, name: str) -> Any:
        return nested(values, name) if isinstance(values, Mapping) else values[self.names.index(name)]


def nested(row: Mapping[str, Any], name: str) -> Any:
    """``row["a.b"]``, or ``row["a"]["b"]``."""
    if name in row:
        return row[name]
    first, dot, rest = name.partition(".")
    inside = row.get(first)
    if not dot or not isinstance(inside, Mapping):
        raise LookupError(name)
    return nested(inside, rest)


def leaves(row: Mapping[str, Any], before: str = "") -> list[str]:
    """The names of the fields of an object, those of objects inside it with a dot: ``a.b``."""
    found = []
    for name, value in row.items():
        whole = f"{before}{name}"
        inner = (
            isinstance(value, Mapping) and value and not {"array", "bytes"} & value.keys()
        )  # a sound, a picture
        found += leaves(value, f"{whole}.") if inner else [whole]
    return found


def free_name(names: Sequence[str]) -> str:
    """A name for the column of the answers that the table does not have yet."""
    return ANSWER if ANSWER not in names else f"anaphora_{ANSWER}"


# Tables from Python: one list of openers, by what an object is. None of the libraries is imported for it.

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
