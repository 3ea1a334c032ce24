"""The passes of a plan captured as CUDA graphs and replayed."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any, Generic, Protocol, TypeVar

import torch
from torch import Tensor

from anaphora.engine.arguments import Arguments, Call
from anaphora.engine.backends.base import BackendName, Case, Job, States, no_plan
from anaphora.engine.backends.base import Result as LayerResult
from anaphora.engine.backends.torch_ops.passes import LOOP_PASSES, Passes, gradient_by_torch, run_bptt
from anaphora.engine.plan import Plan
from anaphora.engine.precision import tf32_allowed
from anaphora.native.following import needs_gradient
from anaphora.native.graphs import can_capture, capture, current_stream, graph_pool
from anaphora.ops import invariant


# ----------------------------------------------------------------------
# Captured graphs kept for shapes that come again: which are in use, which may go.
class Held(Protocol):
    """Something that takes room."""

    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Held)
COPIES = 4  # captures of the same shapes at once, those in use included
KEYS = 4096  # shapes remembered


@dataclass
class _Entry(Generic[Item]):
    free: list[Item] = field(default_factory=list)
    made: int = 0  # free and in use
    seen: int = 0  # times the key has come
    wanted: int = 2  # times it must have come before it is captured
    gone: bool = False  # dropped, with its owner or by clear(): nothing is given back to it


class Captures(Generic[Item]):
    """Captures by key, the least recently used dropped beyond ``limit`` bytes.

    Capturing takes longer than a run, so a key is captured only when it comes again; one that was dropped has to come
    four times as often before it is captured again: shapes that never stay must not cost more than they give.
    """

    def __init__(self, limit: int):
        self.limit, self.nbytes = limit, 0
        self._lock = threading.RLock()
        self._entries: OrderedDict[tuple[Hashable, ...], _Entry[Item]] = OrderedDict()
        self._owners: set[int] = set()
        self._in_use: dict[int, _Entry[Item]] = {}  # by the item's identity

    def take(self, key: tuple[Hashable, ...], owner: object, make: Callable[[], Item]) -> Item | None:
        """A capture for the caller alone until it is given back; None while the key is new or all are in use.

        All of an owner's captures go when it goes.
        """
        key = (id(owner), *key)
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if entry.free:
                found = entry.free.pop()
                self._in_use[id(found)] = entry
                return found
            entry.seen += 1
            if entry.seen < entry.wanted or entry.made >= COPIES:
                self._forget_keys()
                return None
            entry.made += 1
            if id(owner) not in self._owners:
                self._owners.add(id(owner))
                weakref.finalize(owner, self._forget, id(owner))
        try:
            made = make()
        except (
            RuntimeError
        ):  # no memory for it, say: the caller runs without a capture, which shows any other error
            with self._lock:
                entry.made -= 1
                entry.seen, entry.wanted = 0, 4 * entry.wanted
            return None
        with self._lock:
            self.nbytes += made.nbytes
            self._in_use[id(made)] = entry
            self._shrink()
        return made

    def give_back(self, item: Item) -> None:
        """Others may use it now: callers with the key and the owner it was made for, no others. An owner made later may
        have the same ``id``, so the entry itself is remembered, not its key."""
        with self._lock:
            entry = self._in_use.pop(id(item), None)
            if entry is None:
                return
            if entry.gone:
                self.nbytes -= item.nbytes
                return
            entry.free.append(item)
            self._shrink()

    def clear(self) -> None:
        """Drop what is not in use and forget what was seen."""
        with self._lock:
            for key in list(self._entries):
                self._remove(key)

    def _forget(self, owner: int) -> None:
        with self._lock:
            self._owners.discard(owner)
            for key in [k for k in self._entries if k[0] == owner]:
                self._remove(key)

    def _remove(self, key: tuple[Hashable, ...]) -> None:
        entry = self._entries.pop(key)
        entry.gone = True
        for item in entry.free:
            self.nbytes -= item.nbytes

    def _shrink(self) -> None:
        for entry in self._entries.values():
            while self.nbytes > self.limit and entry.free:
                self.nbytes -= entry.free.pop().nbytes
                entry.made -= 1
                if not entry.made:
                    entry.seen, entry.wanted = 0, 4 * entry.wanted

    def _forget_keys(self) -> None:
        for key in [k for k, entry in self._entries.items() if not entry.made][
            : max(0, len(self._entries) - KEYS)
        ]:
            del self._entries[key]


# ----------------------------------------------------------------------
# A plan's two passes captured as CUDA graphs: a loop of many small kernels, launched at once.
#
# A capture belongs to one plan, its shapes and a stream. Its tensors stay where they are: a call copies its
# arguments in, replays the kernels, and copies the results out. What the forward pass keeps lies in the capture until
# the backward pass has read it, so a capture in use is not used again: a second one is made, or the loop runs instead.
name: BackendName = "cuda_graph"
about = "the plan as torch operations, captured as a CUDA graph and replayed"
planned = True


def why_not(case: Case) -> str | None:
    """Why a run cannot be captured; None when it can."""
    return no_plan(case) or (None if case.device.type == "cuda" else "the tensors are not on an NVIDIA GPU")


def run(job: Job) -> LayerResult:
    """Run a plan by captured torch operations."""
    return run_captured(*job.plan_and_tensors(), job.run.lengths, job.run.reverse, LOOP_PASSES, job.stand_in)


def run_captured(
    plan: Plan,
    given: Arguments,
    lengths: Tensor | None,
    reverse: bool,
    passes: Passes = LOOP_PASSES,
    stand_in: Callable[[], tuple[Tensor, States]] | None = None,
) -> tuple[Tensor, States]:
    """Run a plan over time on a GPU; kernel by kernel for shapes seen for the first time, or inside another capture.

    ``passes`` launch the kernels: torch's operations, or kernels generated for the plan. ``stand_in`` computes the same with
    fewer launches: it runs shapes that are not captured.
    """
    tensors = given.flat()
    grad = needs_gradient(*tensors)
    if lengths is not None:
        lengths = lengths.to(given.steps[0].device, torch.int64)
    captured = _captured(plan, given, lengths, reverse, grad, passes)
    if captured is None and stand_in is not None and can_capture(tensors[0].device):
        return stand_in()
    if captured is None:
        return run_bptt(plan, given, lengths, reverse, passes)
    call = Call(given.counts(), lengths, reverse)
    if not grad:
        y, *last = captured.forward(tensors, lengths)
        captured.release()
        return y, tuple(last)
    y, *last = _Replay.apply(plan, call, captured, *tensors)  # type: ignore[no-untyped-call]
    return y, tuple(last)


def _captured(
    plan: Plan, given: Arguments, lengths: Tensor | None, reverse: bool, grad: bool, passes: Passes
) -> Captured | None:
    tensors = given.flat()
    if not can_capture(tensors[0].device):
        return None
    shapes = tuple((t.shape, t.dtype) for t in tensors)
    place = (tensors[0].device, current_stream(), tf32_allowed(), invariant.active())
    key = (shapes, given.counts(), lengths is not None, reverse, grad, passes, *place)
    call = Call(given.counts(), lengths, reverse)
    CAPTURES.limit = max(CAPTURES.limit, memory_of(tensors[0].device) // SHARE)
    return CAPTURES.take(key, plan, lambda: Captured(plan, call, tensors, grad, passes))


class Captured:
    """The two passes for one set of shapes, and the tensors they read and write.

    ``generation`` counts the forward passes: what a pass has kept is gone when it has moved on.
    """

    def __init__(
        self,
        plan: Plan,
        call: Call,
        tensors: Sequence[Tensor],
        grad: bool,
        passes: Passes = LOOP_PASSES,
    ):
        self.passes = passes
        self.generation = 0
        # Tensors made in inference mode could not be written to outside it.
        with torch.inference_mode(False), torch.no_grad():
            self.inputs = [torch.empty_like(t, memory_format=torch.contiguous_format) for t in tensors]
            self.lengths = None if call.lengths is None else call.lengths.clone()
            self.call = Call(call.counts, self.lengths, call.reverse)
            self.given = self.call.arguments(self.inputs)
            self._copy_in(tensors, call.lengths)
            self.pool = graph_pool()
            work = partial(passes.forward, plan, self.call, self.given, grad)
            self._forward, (y, last, self.kept) = capture(work, self.pool)
            self.outputs = [y, *last]
        self.dys: list[Tensor] = []
        self.gradients: list[Tensor | None] = []
        self._backward: Callable[[], None] | None = None

    @property
    def nbytes(self) -> int:
        """Roughly what it holds on the GPU; the backward pass makes about as much as the forward pass keeps."""
        held = [*self.inputs, *self.outputs, *self.kept.values(), *self.kept.values()]
        return sum(t.nbytes for t in held)

    def release(self) -> None:
        """Let others use it."""
        CAPTURES.give_back(self)

    def _copy_in(self, tensors: Sequence[Tensor], lengths: Tensor | None) -> None:
        for mine, theirs in zip(self.inputs, tensors, strict=True):
            mine.copy_(theirs)
        if self.lengths is not None and lengths is not None:
            self.lengths.copy_(lengths)

    def forward(self, tensors: Sequence[Tensor], lengths: Tensor | None) -> list[Tensor]:
        """y and the last states; shapes are those it was captured for."""
        with torch.no_grad():
            self.generation += 1
            self._copy_in(tensors, lengths)
            self._forward()
            return [t.clone() for t in self.outputs]

    def backward(self, plan: Plan, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        """The gradient of every input of the last forward pass, in their order."""
        with torch.inference_mode(False), torch.no_grad():
            if not self.dys:
                self.dys = [torch.empty_like(t) for t in self.outputs]
            for mine, theirs in zip(self.dys, grads, strict=True):
                if theirs is None:
                    mine.zero_()
                else:
                    mine.copy_(theirs)
            work = partial(self.passes.backward, plan, self.call, self.given, self.kept, self.dys)
            if self._backward is None:
                try:
                    self._backward, self.gradients = capture(work, self.pool)
                except RuntimeError:  # no memory for it, say: the loop needs less, or says what is wrong
                    return work()
            self._backward()
            return [None if g is None else g.clone() for g in self.gradients]


class _Replay(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, plan: Plan, call: Call, captured: Captured, *tensors: Tensor) -> Any:
        outputs = captured.forward(tensors, call.lengths)
        ctx.plan, ctx.call, ctx.generation = plan, call, captured.generation
        ctx.lease = _Lease(captured)
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return tuple(outputs)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        plan, call, tensors = ctx.plan, ctx.call, ctx.saved_tensors
        captured: Captured = ctx.lease.captured
        if torch.is_grad_enabled():
            found = gradient_by_torch(plan, call, tensors, ctx.needs_input_grad[3:], grads)
        elif captured.generation != ctx.generation or not can_capture(tensors[0].device):
            given = call.arguments(tensors)
            _, _, kept = captured.passes.forward(plan, call, given, True)
            found = captured.passes.backward(plan, call, given, kept, grads)
        else:
            found = captured.backward(plan, grads)
            ctx.lease.end()  # a second backward pass finds what was kept, or computes it again
        return None, None, None, *found


class _Lease:
    """A capture in use, until its backward pass is over or can no longer come."""

    def __init__(self, captured: Captured):
        self.captured, self.ended = captured, False

    def end(self) -> None:
        if not self.ended:
            self.ended = True
            self.captured.release()

    def __del__(self) -> None:
        self.end()


SHARE = 8  # of a GPU's memory, one part in so many may hold captures
CAPTURES: Captures[Captured] = Captures(limit=1 << 31)


@cache
def memory_of(device: torch.device) -> int:
    """Return the bytes on the GPU; 0 for what is none."""
    return int(torch.cuda.get_device_properties(device).total_memory) if device.type == "cuda" else 0
