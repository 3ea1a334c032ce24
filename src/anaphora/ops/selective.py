"""Mamba's selective scan: an expanded diagonal state whose values at all steps are never stored.

    h_t = exp(Δ_t A) ∘ h_{t−1} + (Δ_t ∘ u_t) B_tᵀ,        y_t = h_t C_t

Axes: B batch, T time, H channels, N numbers of a channel's state.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from anaphora.engine.backends.c.source import prelude
from anaphora.engine.backends.expressions import NUMBERS
from anaphora.native.c import CLibrary, beside, plain
from anaphora.native.cuda import KINDS, Loaded, loaded, serves
from anaphora.native.following import following
from anaphora.native.fused import Backward, fused

__all__ = ["selective_scan"]


def selective_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """All steps: u, delta ``(B, T, H)``, rate A ``(H, N)``, b, c ``(B, T, N)``, state ``(B, H, N)``: y ``(B, T, H)`` and the
    last state. By a kernel on a GPU and on the CPU, where there is one; else by torch in chunks of steps."""
    rate = rate.to(state.dtype)
    if gpu_can_run(u, delta, rate, b, c, state):
        return gpu_scan(u, delta, rate, b, c, state)
    if native_can_run(u, delta, rate, b, c, state):
        return native_scan(u, delta, rate, b, c, state)
    return by_chunks(u, delta, rate, b, c, state)


# ----------------------------------------------------------------------
# The selective scan by torch, a chunk of steps at a time; the backward pass computes the states of each chunk again.
CHUNK = 16  # steps whose states exist at the same time


def by_chunks(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """As `selective_scan`."""
    outputs = []
    recompute = torch.is_grad_enabled() and u.shape[1] > CHUNK
    for at in range(0, u.shape[1], CHUNK):
        some = [x.narrow(1, at, min(CHUNK, u.shape[1] - at)).to(state.dtype) for x in (u, delta, b, c)]
        y, state = (
            checkpoint(_chunk, some, rate, state, use_reentrant=False)
            if recompute
            else _chunk(some, rate, state)
        )
        outputs.append(y)
    return torch.cat(outputs, 1).to(u.dtype), state


def _chunk(some: Sequence[Tensor], rate: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Some steps, with the states of all of them: ``(B, C, H, N)``."""
    u, delta, b, c = some
    a = (delta[..., None] * rate).exp()
    h = (delta * u)[..., None] * b[:, :, None]
    if h.is_cpu:  # one after the other reads memory once
        states = []
        for decay, added in zip(a.unbind(1), h.unbind(1), strict=True):
            state = torch.addcmul(added, decay, state)
            states.append(state)
        return torch.einsum("bthn,btn->bth", torch.stack(states, 1), c), state
    # A GPU waits for each launch: side by side, after k rounds each step has gathered the 2^k before it.
    h = torch.cat((h[:, :1] + a[:, :1] * state[:, None], h[:, 1:]), 1)
    reach = 1
    while reach < h.shape[1]:
        h = torch.cat((h[:, :reach], h[:, reach:] + a[:, reach:] * h[:, :-reach]), 1)
        a = torch.cat((a[:, :reach], a[:, reach:] * a[:, :-reach]), 1)
        reach *= 2
    return torch.einsum("bthn,btn->bth", h, c), h[:, -1]


# ---------------------------------------------------------------------- the selective scan on the CPU, in C; ``csrc/selective.c`` says how
STEPS = 16  # of a group, as the source has it
PER_THREAD = 1 << 15  # numbers of states that are worth a thread
library = CLibrary(
    "selective",
    lambda double: prelude(double) + beside(__package__, "csrc/selective.c"),
    no_memory="a selective scan ran out of memory; use smaller batches",
    counts=("channels",),
)


def native_can_run(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> bool:
    """Whether the program takes these: on the CPU, where there is a compiler, every shape as `selective_scan` has it, and
    no one follows the operations."""
    given = (u, delta, rate, b, c, state)
    if not (plain(*given) and all(x.is_floating_point() for x in given)) or u.dim() != 3:
        return False
    batch, time, width = u.shape
    count = rate.shape[-1]
    shapes = (u.shape, (width, count), (batch, time, count), (batch, time, count), (batch, width, count))
    return (
        all(x.shape == shape for x, shape in zip(given[1:], shapes, strict=True))
        and min(batch, time, width, count) > 0
        and state.dtype in library.dtypes
        and following(*given) is None
        and library.functions(state.dtype) is not None
    )


def native_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y in the type of u, and the last state."""
    given = [x.to(state.dtype).contiguous() for x in (u, delta, rate, b, c, state)]
    y, last = _native_scan(*given)
    return y.to(u.dtype), last


def _native_forward(keep: bool, *given: Tensor) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor | None]]:
    u, _, rate, *_, state = given
    y, last, marks = torch.empty_like(u), torch.empty_like(state), None
    if keep:
        channels = library.count(u.dtype, "channels")
        batch, time, width = u.shape
        blocks = -(-width // channels)
        marks = u.new_empty(batch, -(-time // STEPS), blocks, rate.shape[1], channels)
    _call("selective_forward", u, rate, (*given, y, last, marks))
    return (y, last), (marks,)


def _native_backward(back: Backward) -> tuple[Tensor, ...]:
    kept, given, grads, _ = back
    u, delta, rate, b, c, state = given
    dy, dlast = (
        torch.zeros_like(like) if g is None else g.contiguous()
        for g, like in zip(grads, (u, state), strict=True)
    )
    du, ddelta, dstate = torch.empty_like(u), torch.empty_like(u), torch.empty_like(state)
    drate, db, dc = torch.empty_like(state), torch.zeros_like(b), torch.zeros_like(c)
    found = (du, ddelta, drate, db, dc, dstate)
    _call("selective_backward", u, rate, (u, delta, rate, b, c, *kept, dy, dlast, *found))
    return du, ddelta, drate.sum(0), db, dc, dstate


_native_scan = fused(_native_forward, _native_backward, by_chunks)


def _call(name: str, u: Tensor, rate: Tensor, tensors: Sequence[Tensor | None]) -> None:
    threads = max(1, min(torch.get_num_threads(), u.numel() * rate.shape[1] // PER_THREAD))
    library.call(u.dtype, name, (*u.shape, rate.shape[1], threads), tensors)


# ----------------------------------------------------------------------
# Mamba's selective scan on a GPU: one kernel forward, one backward; ``csrc/selective.cu`` says how.
#
# Axes: B batch, T time, H channels, N numbers of a channel's state.
SOURCE = Path(__file__).parent / "csrc" / "selective.cu"
STATES, CHANNELS, GROUP, THREADS = 16, 64, 16, 256  # as the source has them


def gpu_can_run(u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor) -> bool:
    """Whether the kernels serve these tensors."""
    sizes = rate.shape[-1] == STATES and u.shape[1] > 0
    return sizes and u.dtype in KINDS and state.dtype == torch.float32 and serves(u, delta, rate, b, c, state)


def gpu_scan(
    u: Tensor, delta: Tensor, rate: Tensor, b: Tensor, c: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """y ``(B, T, H)`` and the last state ``(B, H, N)`` of u, delta ``(B, T, H)``, rate ``(H, N)``, b, c ``(B, T, N)``."""
    kind = u.dtype
    given = [u, delta.to(kind), rate.float(), b.to(kind), c.to(kind), state]
    found: tuple[Tensor, Tensor] = _gpu_scan(*(t.contiguous() for t in given))
    return found


def source(kind: int) -> str:
    """The kernels for a type of numbers."""
    return f"#define KIND {kind}\n#define FAST 0\n{NUMBERS.read_text()}{SOURCE.read_text()}"


@cache
def _kernel(name: str, kind: int, device: torch.device) -> Loaded:
    return loaded(source(kind), name, 0, THREADS, device)


def _gpu_forward(keep: bool, *given: Tensor) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor | None]]:
    u, delta, rate, b, c, state = given
    batch, time, width = u.shape
    y, last = torch.empty_like(u), torch.empty_like(state)
    scaled = rate * math.log2(math.e)
    marks = state.new_empty(batch, -(-time // GROUP), width, STATES) if keep else None
    run = _kernel("forward", KINDS[u.dtype], u.device)
    with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
        run.launch(
            batch * -(-width // CHANNELS), [u, delta, scaled, b, c, state, y, last, marks], [time, width]
        )
    return (y, last), (scaled, marks)


def _gpu_backward(back: Backward) -> tuple[Tensor, ...]:
    kept, given, grads, _ = back
    (scaled, marks), (u, delta, _, b, c, state) = kept, given
    dy, dlast = (
        torch.zeros_like(like) if g is None else g.contiguous()
        for g, like in zip(grads, (u, state), strict=True)
    )
    batch, time, width = u.shape
    blocks = -(-width // CHANNELS)
    du, ddelta = torch.empty_like(u), torch.empty_like(u)
    parts = marks.new_empty(blocks, batch, time, 2, STATES)
    drate, dstate = marks.new_empty(batch, width, STATES), marks.new_empty(batch, width, STATES)
    run = _kernel("backward", KINDS[u.dtype], u.device)
    with torch.cuda.device(u.device) if u.is_cuda else nullcontext():
        pointers = [u, delta, scaled, b, c, marks, dy, dlast, du, ddelta, parts, drate, dstate]
        run.launch(batch * blocks, pointers, [batch, time, width])
    db, dc = parts.sum(0).unbind(2)
    return du, ddelta, drate.sum(0), db.to(b.dtype), dc.to(c.dtype), dstate


_gpu_scan = fused(_gpu_forward, _gpu_backward, by_chunks)
