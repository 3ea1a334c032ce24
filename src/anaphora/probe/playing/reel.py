"""A reel: the steps of one computation, its equations, and the value of every name in them at every step."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import MAX_DIFFERENCE

MOST_NUMBERS = 600_000
"""Numbers that are shown at once; of longer sequences a window."""
Part = str | dict[str, str]
"""A piece of an equation: text, ``{"ref": name}``, or ``{"ref": name, "text": what stands for it}``; ``_`` makes what
follows an index. With ``"over"`` all its units are meant (a sum, say), so that no single number stands for it."""


@dataclass(frozen=True)
class Equation:
    """``name`` = the parts one after the other; ``terms``: (matrix, vector) whose products add up to it."""

    name: str
    parts: Sequence[Part]
    terms: tuple[str, str] | None = None

    @property
    def reads(self) -> list[str]:
        """The names it refers to."""
        found = [part["ref"] for part in self.parts if isinstance(part, dict)]
        return list(dict.fromkeys([*found, *(self.terms[1:] if self.terms else ())]))

    def __str__(self) -> str:
        shown = [part if isinstance(part, str) else part.get("text", part["ref"]) for part in self.parts]
        return f"{self.name} = {''.join(shown)}"


@dataclass(repr=False)
class Reel:
    """``values[name]`` is ``(steps, units)``, or ``(steps, 1)`` for one number a step; other widths are vectors with units of
    their own. ``texts[name]`` has a word for every step. ``names``: what the units are called, if they have names."""

    title: str
    steps: list[str]
    equations: list[Equation]
    values: dict[str, NDArray[Any]]
    units: int
    axis: str = "step"
    names: list[str] | None = None
    texts: dict[str, list[str]] = field(default_factory=dict)
    matrices: dict[str, NDArray[Any]] = field(default_factory=dict)
    note: str = ""
    max_difference: float | None = None
    """How far the numbers are from what the model computes without them; above 1e-4 is an error."""
    first: int = 0
    """The number of the first step that is here, where a window was cut."""
    all_steps: int = 0

    def __post_init__(self) -> None:
        if self.max_difference is not None and not self.max_difference <= MAX_DIFFERENCE:
            raise AnaphoraError(
                f"The equations of {self.title} give numbers that are {self.max_difference:.3g} from the model's own, so that "
                "a player would not show what it does."
            )
        self.all_steps = self.all_steps or len(self.steps)
        known = {*self.values, *(equation.name for equation in self.equations)}
        missing = [name for equation in self.equations for name in equation.reads if name not in known]
        if missing:
            raise AnaphoraError(f"The equations of {self.title} read {missing[0]}, which has no value.")

    def __repr__(self) -> str:
        return "\n".join(
            [f"{self.title}: {self.all_steps} steps, {self.units} units", *map(str, self.equations)]
        )

    def value(self, name: str, step: int, unit: int = 1) -> float:
        """What ``name`` is at a step (from 1) for a unit (from 1)."""
        row = self.values[name][step - 1 - self.first]
        return float(row[unit - 1 if len(row) > 1 else 0])

    def window(self, first: int = 0) -> Reel:
        """The same from step ``first`` (from 0) on, as many steps as can be shown at once."""
        each = sum(int(np.prod(value.shape[1:])) for value in self.values.values())
        count = max(2, MOST_NUMBERS // max(each, 1))
        if len(self.steps) <= count:
            return self
        first = max(0, min(first, len(self.steps) - count))
        cut = slice(first, first + count)
        return Reel(
            self.title, self.steps[cut], self.equations, {k: v[cut] for k, v in self.values.items()}, self.units,
            self.axis, self.names, {k: v[cut] for k, v in self.texts.items()}, self.matrices, self.note,
            self.max_difference, first, len(self.steps),
        )  # fmt: skip

    def json(self) -> dict[str, Any]:
        """What a page needs; numbers as float32 in base 64, rows after rows."""
        return {
            "title": self.title,
            "steps": self.steps,
            "first": self.first,
            "all": self.all_steps,
            "axis": self.axis,
            "units": self.units,
            "names": self.names,
            "note": self.note,
            "difference": self.max_difference,
            "equations": [
                {"name": e.name, "parts": list(e.parts), "reads": e.reads, "terms": e.terms}
                for e in self.equations
            ],
            "values": {name: packed(value) for name, value in self.values.items()},
            "matrices": {name: packed(value) for name, value in self.matrices.items()},
            "texts": self.texts,
        }


def all_of(name: str) -> Part:
    """A name of which all units are meant."""
    return {"ref": name, "over": "all"}


def packed(value: ArrayLike) -> dict[str, Any]:
    array = np.ascontiguousarray(np.asarray(value, np.float32))
    return {"shape": list(array.shape), "data": base64.b64encode(array.tobytes()).decode("ascii")}


def columns(values: Mapping[str, ArrayLike]) -> dict[str, NDArray[Any]]:
    """Values as ``(steps, units)`` each; a number for every step becomes one column."""
    arrays = {name: np.asarray(value, np.float64) for name, value in values.items()}
    return {name: array[:, None] if array.ndim == 1 else array for name, array in arrays.items()}
