"""What a task is made of besides its model: what goes in, what comes out.

A kind is a value without torch: the same object reads inputs and makes results in Python, in the command, in the server and in the
runtime of exported models.
"""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np

from anaphora.data.asked import Asked, is_blank
from anaphora.data.sources.roles import choose_input
from anaphora.data.sources.sheet import Sheet, peeked, table_of
from anaphora.errors import DataError
from anaphora.kinds.doors import Doors, Spec

Encoded = Any
"""One input as a model reads it: ids ``(time,)`` without EOS, vectors ``(time, features)``, or a picture."""
Arrays = dict[str, np.ndarray[Any, Any]]
"""What a model takes for a batch, in its order, named as the inputs of an exported graph."""
Raw = np.ndarray[Any, np.dtype[np.float64]]
"""What a model puts out, ``(inputs, outputs)``."""
Options = Mapping[str, Any]
"""Those of ``predict``; ``details`` asks for all that is known of a result."""


class InputKind(Doors):
    """What a model reads: learned once, then a value. `Doors` are the ways in for clients; the others are for the user's own data."""

    kind: ClassVar[str]
    """What it is called where it is kept."""

    @property
    @abstractmethod
    def sizes(self) -> dict[str, int]:
        """What a model is built for, by name: symbols, features."""

    @abstractmethod
    def to_facts(self) -> dict[str, Any]:
        """Return what is kept of it in ``learnt.json``."""

    @abstractmethod
    def encode(self, cells: Sequence[Any]) -> list[Encoded]:
        """Return inputs as a model reads them, or a `DataError` that names the first it cannot."""

    @abstractmethod
    def collate(self, rows: Sequence[Encoded]) -> Arrays:
        """Return a batch, padded, with its lengths."""

    def from_python(self, inputs: Iterable[Any], learnt: Mapping[str, Any]) -> list[Any]:
        """Return inputs that are given in Python as a list; see `given_inputs`."""
        return given_inputs(inputs, learnt)

    @abstractmethod
    def from_file(self, source: str, learnt: Mapping[str, Any], field: str | None) -> Iterator[list[Asked]]:
        """Yield the inputs of a file of the user's as they arrive, each with the way its answer is written beside it.

        ``learnt``: what `describe` said of the training data; ``field``: the column that is read.
        """

    @abstractmethod
    def from_text(self, line: str) -> Any:
        """Return an input that was typed."""


class OutputKind(Protocol):
    """What comes out of a model."""

    name: ClassVar[str]
    schema: ClassVar[Any]
    """The type of one answer as JSON."""

    @property
    def size(self) -> int:
        """Numbers that a model puts out for an input."""

    @property
    def tensors(self) -> list[Spec]:
        """The tensors of answers without details."""

    def results(self, raw: Raw, lengths: Sequence[int], options: Options) -> Sequence[Any]:
        """Return the result for each input, of which so many symbols or steps were read."""

    def text(self, result: Any, number: int, options: Options) -> str:
        """Return a detailed result as people read it; ``number`` counts the inputs."""

    def record(self, result: Any, options: Options) -> dict[str, Any]:
        """Return a detailed result as the command writes JSON."""

    def answer(self, result: Any, options: Options) -> Any:
        """Return a detailed result as the server answers, plain values."""


@dataclass(frozen=True)
class Kinds:
    """Both of a task.

    ``longest``: the most steps of an input that are read; None for any number. ``filled``: an input must have something in it.
    ``learnt``: what `describe` said of the training data: which column was the input, for one.
    """

    input: InputKind
    output: OutputKind
    longest: int | None = None
    filled: bool = False
    learnt: Mapping[str, Any] = field(default_factory=dict)

    def from_python(self, inputs: Iterable[Any]) -> list[Any]:
        """Return inputs that are given in Python."""
        return self.input.from_python(inputs, self.learnt)

    def from_file(self, source: str, column: str | None) -> Iterator[list[Asked]]:
        """Yield the inputs of a file, from the column that was the input of training if no other is named."""
        return self.input.from_file(source, self.learnt, column)

    def encode(self, cells: Sequence[Any]) -> list[Encoded]:
        """Return inputs as the model reads them, with a warning where some are cut."""
        if self.filled:
            check_filled(cells)
        found = self.input.encode(cells)
        return found if self.longest is None else cut(found, self.longest, depth=5)


def cut(inputs: list[Encoded], longest: int, what: str = "inputs", depth: int = 4) -> list[Encoded]:
    """Return inputs of at most ``longest`` steps, with a warning that counts those that were longer; ``what`` it calls them, and ``depth``
    says where the user's own line is."""
    long = sum(len(x) > longest for x in inputs)
    if long:
        warnings.warn(
            f"{long} of {len(inputs)} {what} were longer than max_tokens = {longest} and were cut",
            stacklevel=depth,
        )
    return [x[:longest] for x in inputs]


def check_filled(items: Iterable[Any]) -> None:
    """Raise a `DataError` for the first input that is neither a text nor a sequence, or has nothing in it."""
    for number, x in enumerate(items, start=1):
        if not hasattr(x, "__len__"):
            raise DataError(f"input {number} is a {type(x).__name__}; give a text, or a sequence of numbers.")
        if not len(x) or is_blank(x):
            raise DataError(f"input {number} is empty; give at least one symbol.")


def given_inputs(data: Any, learnt: Mapping[str, Any]) -> list[Any]:
    """Return the inputs as a list; of a table (a data frame, dictionaries), the column the model was trained on.

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
    """Return the values of one column; a missing one is an error that names its row."""
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
