"""Single steps of a stack of cells on a GPU, for streaming and decoding: all layers captured as one CUDA graph.

A step of a small network is a dozen kernels that take less time than launching them, so a step that comes again is
captured. A call copies x and the states in, replays, and hands out a copy of the new states: nothing handed out is
ever written to again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from threading import Lock
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor

from anaphora.engine.backends.base import LayerRun, States
from anaphora.engine.precision import tf32_allowed
from anaphora.native.graphs import can_capture, capture, current_stream, graph_pool
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import hidden_from, run_layer
from anaphora.nn.recurrent_step import LayerStep
from anaphora.nn.recurrent_stream import fingerprint_of
from anaphora.ops import invariant

if TYPE_CHECKING:
    from anaphora.nn.recurrent_stepping import Stepping

SEEN = 3  # steps of one shape before it is captured
SHAPES = 32  # captured at once


class _Captured(NamedTuple):
    inputs: list[Tensor]  # x and the states, read by the kernels
    output: Tensor  # all new states, (states, layers, B, H)
    replay: Callable[[], None]


class CudaStream:
    """The steps of the cells of a stack, each feeding the next; ``keep``: zoneout's rates."""

    def __init__(self, layer: Stepping):
        self.cells, self.keep = [cell for cell in layer.cells if isinstance(cell, Cell)], layer.zoneout
        self.seen: dict[tuple[Any, ...], int] = {}
        self.captured: dict[tuple[Any, ...], _Captured] = {}
        self.fingerprint = fingerprint_of(layer)
        self.serves = all(hidden_from(cell) is None for cell in self.cells)
        self.lock = Lock()

    def current(self, x: Tensor) -> bool:
        """Whether the layer is the same and its weights lie where they lay: the captured kernels read them there."""
        return self._here(x) and self.fingerprint.unchanged()

    def _here(self, x: Tensor) -> bool:
        return x.is_cuda

    def run(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        """One step: x ``(B, inputs)``, each state ``(layers, B, hidden)``; None where it is not captured."""
        if not (self.serves and self.current(x)) or not can_capture(x.device):
            return None
        key = (x.shape, x.dtype, *((s.shape, s.dtype) for s in state), *_mode(), current_stream())
        with self.lock:  # a capture has one place for its inputs and one for its output
            ready = self.captured.get(key)
            if ready is None:
                self.seen[key] = self.seen.get(key, 0) + 1
                if self.seen[key] <= SEEN or not self._fits(x, state):
                    return None
                if len(self.captured) >= SHAPES:
                    self.captured.clear()
                    self.seen.clear()
                ready = self.captured[key] = self._capture(x, state)
            torch._foreach_copy_(ready.inputs, [x, *state])
            ready.replay()
            new = ready.output.clone()
        return new[0, -1], tuple(new.unbind(0))

    def _fits(self, x: Tensor, state: States) -> bool:
        shape = (len(self.cells), x.shape[0], self.cells[0].hidden)
        fits = len(state) == len(self.cells[0].state) and all(s.shape == shape for s in state)
        return fits and x.dim() == 2 and x.shape[1] == self.cells[0].inputs

    def _capture(self, x: Tensor, state: States) -> _Captured:
        enabled, dtype = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
        # Tensors made in inference mode could not be written to outside it, nor may weights cast here be used there.
        with torch.inference_mode(False), torch.no_grad():
            inputs = [t.detach().clone() for t in (x, *state)]
            with torch.autocast("cuda", dtype, enabled=enabled, cache_enabled=False):
                replay, output = capture(lambda: self._steps(inputs[0], inputs[1:]), graph_pool())
        return _Captured(inputs, output, replay)

    def _steps(self, x: Tensor, state: Sequence[Tensor]) -> Tensor:
        """All new states, ``(states, layers, B, H)``."""
        found = []
        value = x
        for layer, cell in enumerate(self.cells):
            step = LayerStep(cell, zoneout="mean" if any(self.keep) else "", keep=self.keep)
            old = tuple(s[layer] for s in state)
            if invariant.active():  # a layer would take its rows in groups
                new = replace(step, substitute=False)({}, (value,), (), old)
            else:
                _, new = run_layer(LayerRun(step, None, (value[:, None],), (), old))
            found.append(torch.stack(new))
            value = new[0]
        return torch.stack(found, 1).to(state[0].dtype)


def _mode() -> tuple[object, ...]:
    """What else the kernels depend on."""
    enabled = torch.is_autocast_enabled("cuda")
    dtype = torch.get_autocast_dtype("cuda") if enabled else None
    return enabled, dtype, tf32_allowed(), invariant.active()
