"""One layer's step function: the cell, and the noise that regularises it during training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import functional_call

from anaphora.engine.backends.base import Params, States
from anaphora.native.derived import named_tensors
from anaphora.native.following import COMPILED, following
from anaphora.nn import inside
from anaphora.nn.cell import Cell


@dataclass(frozen=True, eq=False)
class LayerStep:
    """A cell as the recurrences see it: ``step(parameters, step inputs, row inputs, states) -> states``.

    - ``masked``: the first row input multiplies the output state before the cell sees it (the same units are
      dropped at every step of a sequence: Gal & Ghahramani 2016);
    - ``zoneout``: ``"sample"``: one more step input per state says, with ones, which units keep their old
      value (Krueger et al. 2017); ``"mean"``: the expected value new + p(old − new), with p in ``keep``.
    """

    cell: Cell
    masked: bool = False
    zoneout: str = ""
    keep: tuple[float, ...] = ()
    substitute: bool = True  # use the given parameters; the cell's own otherwise

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        """The shapes of the states, as the cell sees them; empty where all are vectors."""
        return tuple(self.cell.shape_of(i) for i in range(len(self.cell.state))) if self.cell.shapes else ()

    def __call__(self, params: Params, steps: States, rows: States, states: States) -> States:
        seen = states
        if self.masked:
            seen = (states[0] * rows[0], *states[1:])
        if self.substitute:
            new: States = _call_with(self.cell, params, (steps[0], *seen))
        else:
            new = self.cell(steps[0], *seen)
        if self.zoneout == "sample":
            kept = zip(steps[1:], states, new, strict=True)
            return tuple(after + _like(z, after) * (before - after) for z, before, after in kept)
        if self.zoneout == "mean":
            rates = zip(self.keep, states, new, strict=True)
            return tuple(after + p * (before - after) if p else after for p, before, after in rates)
        return new


def _like(mask: Tensor, value: Tensor) -> Tensor:
    """A mask ``(B, numbers)`` for a state that has a shape of its own here."""
    return mask if value.dim() == 2 else mask.view(value.shape)


def _call_with(cell: Cell, params: Params, arguments: States) -> States:
    """The cell called with these tensors in place of its own.

    `functional_call` puts them into the cell for a while, where other threads would find them: a copy takes them here.
    """
    if following() == COMPILED or inside.recording():  # notes name the cell itself
        noted: States = functional_call(cell, params, arguments)
        return noted
    own = named_tensors(cell)
    given = {id(own[name]): value for name, value in params.items() if own[name] is not value}
    called = _copy_with(cell, given, {}) if given else cell
    new: States = called(*arguments)
    return new


def _copy_with(module: nn.Module, given: dict[int, Tensor], made: dict[int, nn.Module]) -> nn.Module:
    """A copy that shares all but the tensors ``given`` by the identity of those they replace; ``made``: copies so far."""
    if id(module) not in made:
        made[id(module)] = copy = object.__new__(type(module))
        copy.__dict__.update(module.__dict__)
        for group in ("_parameters", "_buffers"):
            held = module.__dict__[group].items()
            copy.__dict__[group] = {name: given.get(id(value), value) for name, value in held}
        parts = module._modules.items()
        copy.__dict__["_modules"] = {n: None if p is None else _copy_with(p, given, made) for n, p in parts}
    return made[id(module)]


def dropout_mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    """Zeros with probability ``rate``, 1/(1 − rate) elsewhere, so that the expected value is one."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate).div_(1 - rate)


def zoneout_mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    """Ones with probability ``rate``: the units that keep their old value."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(rate)
