"""Interventions: what a model computes when something inside it is other than it would have been.

    with m.intervene(an.Silence(layer=1, head=3)):
        m.predict(["two dogs run"])

Layers, heads, units and places count from 1, as in the views. Each class is one change; `changing.applied` makes them for a while.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, fields
from typing import Any, Literal

from anaphora.errors import DataError

Where = Literal["", "encoder", "decoder", "cross"]
WHERE = ("", "encoder", "decoder", "cross")
Direction = Literal["", "forward", "backward"]
DIRECTIONS = ("", "forward", "backward")
QUIET = ("layer", "where", "of", "seed", "direction")
"""What is left out of the line of Python where it is as usual."""


@dataclass(frozen=True)
class Intervention:
    """What all have: the ``layer``, and in an encoder-decoder ``where`` it is: ``encoder``, ``decoder``, or for attention from the
    decoder to what the encoder read ``cross``. Empty is ``cross`` for attention and ``decoder`` for states there. Of a layer that
    reads both ways ``direction`` picks one; empty are both, but for a single unit, which each of them numbers by itself."""

    layer: int = 1
    where: Where = ""
    direction: Direction = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for one in fields(self):
            value = getattr(self, one.name)
            if one.name == "where":
                if value not in WHERE:
                    raise DataError(
                        f"{self}: where must be encoder, decoder, cross or left out, not {value!r}."
                    )
            elif one.name == "direction":
                if value not in DIRECTIONS:
                    raise DataError(
                        f"{self}: direction must be forward, backward or left out, not {value!r}."
                    )
                if value and isinstance(self, Silence | Attend):
                    raise DataError(f"{self}: attention has no direction; leave it out.")
            elif str(one.type).startswith("int"):
                optional = value is None and "None" in str(one.type)
                if not optional and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                    raise DataError(f"{self}: {one.name} counts from 1, not {value!r}.")
            elif str(one.type).startswith("float") and not _finite(value):
                raise DataError(f"{self}: {one.name} must be a finite number, not {value!r}.")

    def code(self) -> str:
        """The Python that makes it."""
        given = []
        for one in fields(self):
            value = getattr(self, one.name)
            usual = one.default if one.name in QUIET else None
            plain = value is None or isinstance(value, str | int | float)
            if not plain or value != usual:
                given.append(f"{one.name}={repr(value) if plain else '…'}")
        return f"an.{type(self).__name__}({', '.join(given)})"


def _finite(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


@dataclass(frozen=True)
class Silence(Intervention):
    """Head ``head`` of a Transformer's attention adds nothing: its columns of the output projection W^O are zero.

    Args:
        layer: the layer of the head, from 1.
        where: ``encoder``, ``decoder`` or ``cross``, in a model that has several.
        head: the head, from 1.

    >>> an.Silence(layer=2, head=3).code()
    'an.Silence(layer=2, head=3)'
    """

    head: int = 1


@dataclass(frozen=True)
class Clamp(Intervention):
    """Unit ``unit`` of a layer's state is set to ``value``.

    A state is h of a recurrent cell, or what a layer of a Transformer hands to the next.

    Args:
        layer: the layer, from 1.
        where: ``encoder`` or ``decoder``, in a model that has both.
        direction: ``forward`` or ``backward``, of a layer that reads both ways.
        unit: the unit, from 1.
        value: what it becomes.
        at: the place in the sequence, from 1; None: every place.
        of: which state of a cell: ``"h"``, or ``"c"`` for the memory cell of an LSTM.

    >>> an.Clamp(unit=17, value=0.0).code()
    'an.Clamp(unit=17, value=0.0)'
    """

    unit: int = 1
    value: float = 0.0
    at: int | None = None
    of: str = "h"


@dataclass(frozen=True)
class Noise(Intervention):
    """Normal noise N(0, std²) is added to a layer's state.

    The noise depends on seed, layer and place alone, so every run of the model gets the same noise.

    Args:
        layer: the layer, from 1.
        where: ``encoder`` or ``decoder``, in a model that has both.
        direction: ``forward`` or ``backward``, of a layer that reads both ways.
        std: the standard deviation.
        unit: the unit, from 1; None: all units.
        at: the place in the sequence, from 1; None: every place.
        seed: of the noise.

    >>> an.Noise(std=0.5, at=2).code()
    'an.Noise(std=0.5, at=2)'
    """

    std: float = 0.1
    unit: int | None = None
    at: int | None = None
    seed: int = 1


@dataclass(frozen=True)
class Attend(Intervention):
    """The attention that place ``at`` pays to place ``to`` becomes ``weight``; the other weights are scaled so that all sum to 1.

    Args:
        layer: the layer, from 1.
        where: ``encoder``, ``decoder`` or ``cross``, in a model that has several.
        at: the place that attends, from 1.
        to: the place that is attended to, from 1.
        weight: from 0 to 1.
        head: the head, from 1; None: all heads.

    Raises a `DataError` for a weight outside of 0 … 1, and where ``at`` cannot see ``to``.

    >>> an.Attend(at=2, to=5, weight=0.9).code()
    'an.Attend(at=2, to=5, weight=0.9)'
    """

    at: int = 1
    to: int = 1
    weight: float = 1.0
    head: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.weight <= 1:
            raise DataError(f"{self}: a weight of attention lies from 0 to 1.")


@dataclass(frozen=True)
class Patch(Intervention):
    """The state after place ``at`` becomes the state that the model has after place ``source_at`` of another input
    (activation patching): h, and whatever else the cell carries.

    Args:
        layer: the layer, from 1.
        where: ``encoder`` or ``decoder``, in a model that has both.
        direction: ``forward`` or ``backward``, of a layer that reads both ways.
        at: the place whose state is replaced, from 1.
        source: the other input, as ``predict`` takes one.
        source_at: the place in ``source``, from 1; None: the same as ``at``.

    >>> an.Patch(at=3, source="two cats run").code()
    "an.Patch(at=3, source='two cats run')"
    """

    at: int = 1
    source: Any = None
    source_at: int | None = None
