"""One layer's step function: the cell, and the noise that regularises it during training."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import functional_call

from anaphora.kernels.recurrence.backends.base import Params, States
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

    def __call__(self, params: Params, steps: States, rows: States, states: States) -> States:
        seen = states
        if self.masked:
            seen = (states[0] * rows[0], *states[1:])
        if self.substitute:
            new: States = functional_call(self.cell, params, (steps[0], *seen))
        else:
            new = self.cell.advance(steps[0], seen)
        if self.zoneout == "sample":
            kept = zip(steps[1:], states, new, strict=True)
            return tuple(after + z * (before - after) for z, before, after in kept)
        if self.zoneout == "mean":
            rates = zip(self.keep, states, new, strict=True)
            return tuple(after + p * (before - after) if p else after for p, before, after in rates)
        return new


def dropout_mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    """Zeros with probability ``rate``, 1/(1 − rate) elsewhere, so that the expected value is one."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(1 - rate).div_(1 - rate)


def zoneout_mask(like: Tensor, shape: tuple[int, ...], rate: float) -> Tensor:
    """Ones with probability ``rate``: the units that keep their old value."""
    return torch.empty(shape, dtype=like.dtype, device=like.device).bernoulli_(rate)
