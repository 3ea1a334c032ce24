"""Single steps of a stack of cells by compiled code, for streaming and decoding."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from anaphora.kernels.recurrence.reference import States
from anaphora.kernels.recurrence.stepping import Stepper, run_steps
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import engine_of, transformed
from anaphora.nn.recurrent_step import LayerStep


class Stream:
    """The compiled steps of the cells of a stack, each feeding the next; ``keep``: zoneout's rates.

    Finding them takes longer than a step, so they are kept as long as the cells' parameters are the same objects.
    """

    def __init__(self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States):
        self.dtype, self.device = x.dtype, x.device
        self.slots: list[tuple[dict[str, Any], str, Any]] = []
        self.params: list[list[Tensor]] = []
        self.steppers: list[Stepper] | None = None
        for cell in cells:
            for module in cell.modules():
                for held in (module._parameters, module._buffers):
                    self.slots += [(held, name, value) for name, value in held.items()]
        if x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64):
            self.steppers = self._find(cells, keep, x, state)

    def _find(
        self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States
    ) -> list[Stepper] | None:
        found = []
        for cell in cells:
            params = {**dict(cell.named_parameters()), **dict(cell.named_buffers())}
            if any(p.dtype != x.dtype or p.is_inference() for p in params.values()):
                return None
            step = LayerStep(cell, zoneout="mean" if any(keep) else "", keep=keep)
            stepper = engine_of(step).stepper(params, x, tuple(s[0] for s in state))
            if stepper is None:
                return None
            found.append(stepper)
            self.params.append(list(params.values()))
            x = state[0][0]
        return found

    def current(self, x: Tensor) -> bool:
        """Whether this stream still belongs to the cells it was made for, and serves this kind of input."""
        if x.dtype is not self.dtype or x.device != self.device:
            return False
        for held, name, value in self.slots:
            if held.get(name) is not value:
                return False
        return not self.params or self.params[0][0].dtype is x.dtype

    def run(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        """One step, or None where plain torch has to do it."""
        if self.steppers is None or state[0].dtype is not x.dtype or transformed():
            return None
        return run_steps(self.steppers, self.params, x, state)
