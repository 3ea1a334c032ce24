"""What a model carries from step to step as inputs and outputs of a graph: any nesting of tensors, by name."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError
from anaphora.nn.attention.scores import Attended
from anaphora.tasks.exporting import inputs

NEW = "new_"
"""Before the name of a state that a step gives."""


def leaves(state: Any, name: str = "") -> Iterator[tuple[str, Tensor]]:
    """The tensors of a state with their names, in order; what is None is left out."""
    if isinstance(state, Tensor):
        yield name or "state", state
        return
    for key, part in _parts(state):
        yield from leaves(part, f"{name}_{key}" if name else key)


def rebuilt(like: Any, values: Iterator[Tensor]) -> Any:
    """A state as ``like`` with other tensors, in the order of `leaves`."""
    if isinstance(like, Tensor):
        return next(values)
    if like is None:
        return None
    made = {key: rebuilt(part, values) for key, part in _parts(like)}
    if isinstance(like, dict):
        return made
    if dataclasses.is_dataclass(like) and not isinstance(like, type):
        return dataclasses.replace(like, **made)
    if hasattr(like, "_fields"):
        return type(like)(*made.values())
    return type(like)(made.values())


def _parts(state: Any) -> list[tuple[str, Any]]:
    if state is None:
        return []
    if isinstance(state, Attended):  # source tells a search what it need not copy, and no step reads it
        return [("tensors", state.tensors), ("mask", state.mask)]
    if isinstance(state, dict):
        return [(str(key), value) for key, value in state.items()]
    if dataclasses.is_dataclass(state) and not isinstance(state, type):
        return [(field.name, getattr(state, field.name)) for field in dataclasses.fields(state) if field.init]
    if isinstance(state, tuple | list):
        names = getattr(state, "_fields", range(len(state)))
        return [(str(key), value) for key, value in zip(names, state, strict=True)]
    raise AnaphoraError(
        f"a {type(state).__name__} in the model's state cannot be exported to ONNX; use tensors in tuples or dataclasses."
    )


@dataclass(frozen=True)
class Layout:
    """The tensors of a state: ``like`` it is built again, ``axes`` of each, and which ``first`` and later states have them."""

    like: Any
    axes: dict[str, tuple[str, ...]]
    begins: tuple[str, ...]
    kept: tuple[str, ...]
    fills: dict[str, float]
    """What states begin with where that is the same number everywhere, and not 0."""

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.axes)

    @property
    def changing(self) -> tuple[str, ...]:
        return tuple(name for name in self.axes if name not in self.kept)


def layout_of(
    start: Callable[[int, int], Any],
    step: Callable[[Any, int], Any],
) -> Layout:
    """The layout of the states of ``start(rows, source)`` and ``step(state, rows)``: an axis is named by what makes it longer,
    ``rows``, ``source`` (places of what was read) or ``past`` (steps)."""

    def stepped(rows: int, source: int, steps: int) -> Any:
        state = start(rows, source)
        for _ in range(steps):
            state = step(state, rows)
        return state

    usual = stepped(3, 8, 2)
    others = {"rows": stepped(4, 8, 2), "source": stepped(3, 16, 2), "past": stepped(3, 8, 3)}
    shapes = {kind: {name: value.shape for name, value in leaves(state)} for kind, state in others.items()}
    axes = {}
    for name, value in leaves(usual):
        named = [""] * value.dim()
        for kind, found in shapes.items():
            for place, (one, other) in enumerate(zip(value.shape, found[name], strict=True)):
                if one != other:
                    named[place] = kind
        axes[name] = tuple(named)
    before = dict(leaves(usual))
    after = dict(leaves(step(usual, 3)))
    first = dict(leaves(start(3, 8)))
    kept = tuple(name for name in axes if after[name] is before[name] and name in first)
    fills = {
        name: float(value.flatten()[0])
        for name, value in first.items()
        if value.numel() and bool((value == value.flatten()[0]).all()) and bool((value != 0).any())
    }
    return Layout(usual, axes, tuple(name for name in axes if name in first), kept, fills)


class Stepped(nn.Module):
    """``advance(symbols, state) -> (scores, state)`` with the state's tensors one by one."""

    def __init__(
        self, module: nn.Module, advance: Callable[[Tensor, Any], tuple[Tensor, Any]], layout: Layout
    ):
        super().__init__()
        self.module, self.advance, self.layout = module, advance, layout

    def forward(self, symbols: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        scores, new = self.advance(symbols, rebuilt(self.layout.like, iter(state)))
        found = dict(leaves(new))
        return (scores, *(found[name] for name in self.layout.changing))


def random_states(layout: Layout, rows: int, length: int, symbols: int = 0) -> dict[str, Tensor]:
    """States for as many rows and, where a size depends on it, of ``length``; of ``symbols`` where they are numbers of those."""
    found = {}
    for (name, axes), (_, like) in zip(layout.axes.items(), leaves(layout.like), strict=True):
        sizes = {"rows": rows, "source": length, "past": length + 2}
        shape = tuple(sizes.get(axis, size) for axis, size in zip(axes, like.shape, strict=True))
        if like.dtype == torch.bool:
            found[name] = torch.arange(shape[-1]) < inputs.lengths(rows, shape[-1])[:, None]
        elif like.is_floating_point():
            found[name] = 0.5 * inputs.numbers(shape)
        else:
            found[name] = inputs.symbols(symbols or 1, shape)
    return found


def outputs_of(layout: Layout) -> tuple[str, ...]:
    """Scores, and the states that change."""
    return ("log_probs", *(NEW + name for name in layout.changing))
