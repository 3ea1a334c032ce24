"""The road from inputs to answers, for Python, the command, the server and the runtime of exported models. Without torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from anaphora.cancellation import Stop, stopped_by
from anaphora.data.asked import is_blank
from anaphora.data.batches.pooled import in_order, together
from anaphora.errors import DataError
from anaphora.kinds.kind import Arrays, Encoded, Kinds, Options, Raw

Collate = Callable[[Sequence[Encoded]], Arrays]


@dataclass(frozen=True)
class Cost:
    """``steps`` in units; ``reason``: the numbers that make it, for the one who asked."""

    steps: int
    reason: str

    def excess(self, most: int) -> str | None:
        """Return the sentence that refuses a request of more than ``most`` steps, or None."""
        if self.steps <= most:
            return None
        return f"this costs {self.steps:,} steps ({self.reason}), and at most {most:,} are computed at once; ask for less."


def weighed(reason: str, weight: int) -> str:
    """Return the reason of a cost, with the size of the model where that counts."""
    return reason if weight == 1 else f"{reason}, each × {weight:,} for the size of the model"


class Engine(Protocol):
    """What computes: a model of torch, or an exported graph."""

    outputs: int
    """Numbers that it puts out for an input."""

    @property
    def weight(self) -> int:
        """What one step costs (`Cost`)."""

    def run(self, arrays: Arrays) -> NDArray[Any]:
        """Return the outputs ``(batch, outputs)`` of a batch."""

    def computing(self) -> AbstractContextManager[None]:
        """Within, outputs do not depend on the batch."""

    def check(self) -> None:
        """Raise an error where a kernel gave up, so that what it put out is wrong."""


class Session:
    """A model that answers: the only place where inputs are computed whatever their batch, checked, counted and stopped."""

    def __init__(self, kinds: Kinds, engine: Engine):
        self.kinds, self.engine = kinds, engine

    def answer(self, cells: Sequence[Any], options: Options, *, stop: Stop | None = None) -> Sequence[Any]:
        """Return the result for each input; None, or a row of NaN, for a text with nothing in it, which is not given to the model.

        Ends with `anaphora.cancellation.Stopped` before the next step for which ``stop()`` is true.
        """
        if stop is not None:
            with stopped_by(stop):
                return self.answer(cells, options)
        rows = [number for number, one in enumerate(cells) if not is_blank(one)]
        encoded = self.kinds.encode([cells[number] for number in rows])
        raw = self.outputs(encoded)
        found = self.kinds.output.results(raw, [len(x) for x in encoded], options)
        return found if len(rows) == len(cells) else spread(found, rows, len(cells))

    def outputs(self, encoded: Sequence[Encoded]) -> Raw:
        """Return what the model puts out, ``(inputs, outputs)``; numbers that are not finite are an error."""
        with self.engine.computing():
            found = outputs_of(self.engine, self.kinds.input.collate, encoded)
        self.engine.check()
        check_finite(found, "input")
        return found

    def cost(self, lengths: Sequence[int], weight: int | None = None) -> Cost:
        """Return what it costs to answer inputs of so many symbols or steps, before it is computed; ``weight`` if it is known."""
        weight = self.engine.weight if weight is None else weight
        return Cost(sum(lengths) * weight, weighed(f"{len(lengths):,} inputs", weight))


def spread(found: Sequence[Any], rows: Sequence[int], count: int) -> Sequence[Any]:
    """Return results at the places of their inputs, of which there are ``count``."""
    if isinstance(found, np.ndarray):
        whole = np.full((count, *found.shape[1:]), np.nan, found.dtype)
        whole[list(rows)] = found
        return whole
    known = dict(zip(rows, found, strict=True))
    return [known.get(number) for number in range(count)]


def outputs_of(engine: Engine, collate: Collate, encoded: Sequence[Encoded]) -> Raw:
    """Return the outputs of an engine for inputs in their order, computed in batches of about equal length."""
    found = np.zeros((len(encoded), engine.outputs))
    for rows in in_order(encoded, together(encoded)):
        found[rows] = engine.run(collate([encoded[i] for i in rows]))
    return found


class NotFiniteError(DataError):
    """A prediction that is not a finite number: numbers so large that the model's overflow."""

    def __init__(self, place: str):
        super().__init__(
            f"{place}: the prediction is not a finite number; are values of the input far beyond those of training?"
        )


def check_finite(outputs: Iterable[NDArray[np.floating[Any]]], what: str = "input") -> None:
    """Raise a `NotFiniteError` for the first output that holds NaN or infinity."""
    for number, output in enumerate(outputs, start=1):
        if not np.isfinite(output).all():
            row = int(np.argwhere(~np.isfinite(output))[0][0]) + 1 if np.ndim(output) > 1 else 0
            place = f", row {row}" if row else ""
            raise NotFiniteError(f"{what} {number}{place}")
