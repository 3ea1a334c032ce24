"""One step of all layers of a recurrent network, for streaming and decoding."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.engine.backends.base import LayerRun, States
from anaphora.native.derived import Watched
from anaphora.native.following import following
from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import run_layer
from anaphora.nn.recurrent_step import LayerStep
from anaphora.nn.recurrent_stream import Stream
from anaphora.nn.recurrent_stream_cuda import CudaStream


class Stepping(Watched):
    """The steps of a `Recurrent`, which has these parts."""

    cells: nn.ModuleList
    state: tuple[str, ...]
    zoneout: tuple[float, ...]
    layers: int
    directions: int
    inputs: int
    hidden: int
    widths: tuple[int, ...]
    bidirectional: bool
    variational: bool
    dropout: float
    recurrent_dropout: float
    weight_dropout: float
    connections: str
    _streams: list[Stream | CudaStream]

    def _connect(self, layer: int, y: Tensor, below: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """What a layer hands on: its output, everything below it (for dense), and the next layer's input."""
        raise NotImplementedError

    def step(self, x: Tensor, state: States) -> tuple[Tensor, States]:
        """One step of all layers, for streaming and decoding.

        x ``(B, inputs)``; ``state`` as :meth:`initial_state` or ``last`` gives it. Returns y ``(B, hidden)``,
        and the new state. Noise that is drawn once per sequence cannot be drawn in a step: it is refused then.
        """
        quiet = not (
            self.training or torch.is_grad_enabled() or inside.recording() or following(x, *state) is not None
        )
        if quiet:
            for stream in self._streams:
                streamed = stream.run(x, state)
                if streamed is not None:
                    return streamed
        if self.bidirectional:
            raise ValueError(
                "Recurrent.step: a bidirectional layer needs the whole sequence; call it instead."
            )
        if self.training and (
            self.recurrent_dropout or self.weight_dropout or (self.variational and self.dropout)
        ):
            raise ValueError(
                "Recurrent.step: noise shared by all steps of a sequence cannot be drawn step by step; "
                "call the layer on whole sequences to train it, or eval() it."
            )
        if x.dim() != 2 or x.shape[1] != self.inputs:
            raise ValueError(f"Recurrent.step: x must be (batch, {self.inputs}), got {tuple(x.shape)}.")
        self._check_state("Recurrent.step: state", x, state)
        if quiet:
            streamed = self._streamed(x, state)
            if streamed is not None:
                return streamed
        below = value = x
        last: list[States] = []
        for layer, cell in enumerate(self.cells):
            assert isinstance(cell, Cell)
            old = tuple(s[layer] for s in state)
            new = self._advance(layer, value, old) if quiet and x.device.type == "cpu" else cell(value, *old)
            if any(self.zoneout):
                new = self._zone_out(old, new)
            new = tuple(inside.changed(cell, name, s) for name, s in zip(self.state, new, strict=True))
            for name, s in zip(self.state, new, strict=True):
                inside.note(cell, name, s)
            last.append(new)
            y, below, value = self._connect(layer, new[0], below, value)
        return y, tuple(torch.stack(s) for s in zip(*last, strict=True))

    def _advance(self, layer: int, x: Tensor, old: States) -> States:
        """One step of a layer without compiled code, as a sequence of one: with the bits a longer one has."""
        cell = self.cells[layer]
        assert isinstance(cell, Cell)
        return run_layer(LayerRun(LayerStep(cell), None, (x.unsqueeze(1),), (), old))[1]

    def _streamed(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        if self.connections != "plain":
            return None
        if x.device.type == "cpu" and torch.is_autocast_enabled("cpu"):
            # As for whole sequences: compiled kernels keep to the weights' precision.
            with torch.autocast("cpu", enabled=False):
                dtype = next(self.parameters()).dtype
                return self._streamed(x.to(dtype), tuple(s.to(dtype) for s in state))
        stream = self._streams[0] if self._streams else None
        if stream is None or not stream.current(x):
            stream = CudaStream(self) if x.is_cuda else Stream(self, x, state)
            self._streams[:] = [stream]
        return stream.run(x, state)

    def _zone_out(self, old: States, new: States) -> States:
        if not self.training:
            return tuple(n + p * (o - n) for p, o, n in zip(self.zoneout, old, new, strict=True))
        kept = zip(self.zoneout, old, new, strict=True)
        return tuple(torch.where(torch.rand_like(n) < p, o, n) for p, o, n in kept)

    def _check_state(self, where: str, x: Tensor, state: States) -> None:
        before = (self.layers * self.directions, x.shape[0])
        expected = [(*before, width) for width in self.widths]
        if [tuple(s.shape) for s in state] != expected:
            each = expected[0] if len(set(expected)) == 1 else expected
            raise ValueError(
                f"{where} needs one tensor {each} for each of {self.state}, "
                f"got {[tuple(s.shape) for s in state]}."
            )
