"""One step of all layers of a recurrent network, for streaming and decoding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from struct import Struct
from threading import Lock, get_ident
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from anaphora.engine.backends.base import LayerRun, States
from anaphora.engine.backends.c.compiled import FIRST, Packed, StepCall, Stepper
from anaphora.engine.precision import tf32_allowed
from anaphora.native.derived import Fingerprint, Watched, named_tensors
from anaphora.native.following import following
from anaphora.native.graphs import can_capture, capture, current_stream, graph_pool
from anaphora.native.snapshot import Snapshot
from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.recurrent_run import engine_of, hidden_from, run_layer
from anaphora.nn.recurrent_step import LayerStep
from anaphora.ops import invariant


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


# ----------------------------------------------------------------------
# Single steps of a stack of cells by compiled code, for streaming and decoding.
#
# A step of a small network takes a few microseconds, so all that Python does here is done once where it can be.
place_of = Tensor.data_ptr
try:  # half the time of torch.empty: what code compiled by torch calls
    from torch._C._dynamo.guards import _empty_strided_cpu as empty_strided  # type: ignore[attr-defined]
except ImportError:  # pragma: no cover

    def empty_strided(size: Sequence[int], stride: Sequence[int], dtype: torch.dtype) -> Tensor:
        return torch.empty_strided(size, stride, dtype=dtype)


def fingerprint_of(layer: Stepping, content: Snapshot | None = None) -> Fingerprint:
    """All that a step of the layer depends on; ``content``: of the tensors whose values are copied."""
    return Fingerprint(layer, content=content)


class _Ready:
    """The calls of all layers for one shape of x, for one thread; the shapes of y and of a state; and the state it
    handed out last, which fits."""

    __slots__ = ("addresses", "calls", "last", "layer", "state", "strides", "x", "y")

    def __init__(self, x: torch.Size, state: tuple[int, int, int], calls: list[StepCall], layer: int):
        self.x, self.state, self.calls = x, state, calls
        _, batch, hidden = state
        self.y, self.strides = (batch, hidden), (batch * hidden, hidden, 1)  # strides of a state
        self.layer = layer  # bytes of one layer's part of a state
        self.last: States = ()
        self.addresses: list[int] = []


class Stream:
    """The compiled steps of a layer's cells, each feeding the next.

    It serves as long as the layer's fingerprint is the same and the packed parameters are unwritten; then another one has
    to be made. Threads may share it.
    """

    def __init__(self, layer: Stepping, x: Tensor, state: States):
        cells, keep = [cell for cell in layer.cells if isinstance(cell, Cell)], layer.zoneout
        self.dtype, self.inputs, self.hidden = x.dtype, cells[0].inputs, cells[0].hidden
        self.params: list[list[Tensor]] = []
        self.steppers: list[Stepper] = []
        served = x.device.type == "cpu" and x.dtype in (torch.float32, torch.float64)
        self.serves = served and self._find(cells, keep, x, state)
        self.states = len(cells[0].state)
        self.write = Struct(f"{2 + 2 * self.states}Q").pack_into
        self.threads: dict[int, _Ready] = {}  # what each thread used last
        self.known: dict[tuple[int, int], _Ready] = {}  # by thread and number of rows
        self.packed: dict[bool, list[Packed]] = {}  # by whether it is for one row
        read = [s.reads(p) for s, p in zip(self.steppers, self.params, strict=True)] if self.serves else []
        self.plain = None not in read
        # The weights are packed later: no write can come between. What is not plain is made again for each step.
        content = Snapshot(t for found in read for t in found or ()) if self.plain else None
        self.fingerprint = fingerprint_of(layer, content)
        self.same = self.fingerprint.same

    def _find(self, cells: Sequence[Cell], keep: tuple[float, ...], x: Tensor, state: States) -> bool:
        for cell in cells:
            if hidden_from(cell) is not None:
                return False
            params = named_tensors(cell)
            if any(p.dtype != x.dtype or p.is_inference() for p in params.values()):
                return False
            step = LayerStep(cell, zoneout="mean" if any(keep) else "", keep=keep)
            stepper = engine_of(step).stepper(params, x, tuple(s[0] for s in state))
            if stepper is None:
                return False
            self.steppers.append(stepper)
            self.params.append(list(params.values()))
            x = state[0][0]
        return True

    def current(self, x: Tensor) -> bool:
        """Whether this stream still belongs to the layer it was made for, and serves this kind of input."""
        if x.dtype is not self.dtype or (self.serves and not x.is_cpu):
            return False
        return self.fingerprint.unchanged()

    def run(self, x: Tensor, state: States) -> tuple[Tensor, States] | None:
        """One step: x ``(B, inputs)``, each state ``(layers, B, hidden)``; None where this stream does not serve."""
        if not self.serves or x.dtype is not self.dtype or not x.is_cpu:
            return None
        try:
            if not self.same() and not self.fingerprint.unchanged():
                return None
        except KeyError:  # a part is gone
            return None
        ready = self.threads.get(get_ident())
        if ready is None or x.shape != ready.x or not self.plain:
            if x.dim() != 2 or x.shape[1] != self.inputs:
                return None
            ready = self._make_ready(x)
        old = [*map(place_of, state)]
        if state is not ready.last or old != ready.addresses:
            if not self._fits(state, ready.state):
                return None
            state = tuple([s.contiguous() for s in state])
            old = [*map(place_of, state)]
        if not x.is_contiguous():
            x = x.contiguous()
        shape, strides, dtype = ready.state, ready.strides, self.dtype
        ready.last = new = tuple([empty_strided(shape, strides, dtype) for _ in state])
        y = empty_strided(ready.y, strides[1:], dtype)  # a view of the new state would take longer
        ready.addresses = after = [*map(place_of, new)]
        given = (x.data_ptr(), *old, *after, y.data_ptr())
        for function, block, _ in ready.calls:
            self.write(block, 8 * FIRST, *given)
            if function(block):
                raise MemoryError("a step ran out of memory")
            if ready.layer:
                below = given[1 + self.states]  # the first new state of this layer
                given = (below, *[address + ready.layer for address in given[1:-1]], given[-1])
        return y, new

    def _make_ready(self, x: Tensor) -> _Ready:
        thread, (batch, _), threads, known = get_ident(), x.shape, self.threads, self.known
        ready = known.get((thread, batch)) if self.plain else None
        if ready is None:
            each = zip(self.steppers, self._packed(batch == 1), strict=True)
            calls = [stepper.call(packed, batch) for stepper, packed in each]
            size = batch * self.hidden * x.element_size() if len(calls) > 1 else 0
            ready = _Ready(x.shape, (len(calls), batch, self.hidden), calls, size)
            if len(known) > 64:
                known.clear()
            known[thread, batch] = ready
        if len(threads) > 64:
            threads.clear()
        threads[thread] = ready
        return ready

    def _packed(self, alone: bool) -> list[Packed]:
        """The weights of all layers; what torch makes of parameters is made again for every step."""
        found = self.packed.get(alone) if self.plain else None
        if found is None:
            each = zip(self.steppers, self.params, strict=True)
            self.packed[alone] = found = [stepper.pack(params, alone) for stepper, params in each]
        return found

    def _fits(self, state: States, shape: tuple[int, int, int]) -> bool:
        if len(state) != self.states:
            return False
        return all(s.shape == shape and s.dtype is self.dtype and s.is_cpu for s in state)


# ----------------------------------------------------------------------
# Single steps of a stack of cells on a GPU, for streaming and decoding: all layers captured as one CUDA graph.
#
# A step of a small network is a dozen kernels that take less time than launching them, so a step that comes again is
# captured. A call copies x and the states in, replays, and hands out a copy of the new states: nothing handed out is
# ever written to again.
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
