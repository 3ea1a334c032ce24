"""Launches the Triton programs of the matrix scan, forward and backward."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache, partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

from anaphora.native.following import following, needs_gradient
from anaphora.native.fused import Backward, fused

CHUNK = 64  # steps
LEVELS = CHUNK.bit_length() - 1
WIDEST = 256  # of a side of a state
KINDS = (torch.float32, torch.bfloat16, torch.float16)
DEVICES = {"cuda"}
# How much of a state's sides a program takes, and how it is compiled. Smaller sides are filled up, not given blocks of their
# own: with blocks of 16 one of the programs read outside its memory on an H200 (Triton 3.6).
TILES: dict[str, tuple[int, int, dict[str, int]]] = {
    "states": (32, 128, {"num_warps": 4, "num_stages": 3}),
    "outputs": (64, 128, {"num_warps": 4, "num_stages": 1}),
    "values": (64, 128, {"num_warps": 4, "num_stages": 2}),
    "keys": (32, 64, {"num_warps": 4, "num_stages": 2}),
}
IN_FLOAT32 = (32, 64, {"num_warps": 4, "num_stages": 1})


def serves(r: Tensor, k: Tensor, v: Tensor, log_w: Tensor, state: Tensor | None) -> bool:
    """Whether the programs take these: on a GPU with Triton, no double precision, states of at most 256 × 256, and no one
    follows the operations."""
    given = [x for x in (r, k, v, log_w, state) if x is not None]
    return (
        all(x.device.type in DEVICES and x.dtype in KINDS for x in given)
        and max(k.shape[3], v.shape[3]) <= WIDEST
        and min(v.shape) > 0
        and k.shape[3] > 0
        and v[0].numel() // v.shape[3] * max(k.shape[3], v.shape[3])
        < 1 << 31  # 32 bits count the numbers of a row
        and following(*given) is None
        and _ready(v.device)
    )


def run(
    r: Tensor, k: Tensor, v: Tensor, log_w: Tensor, state: Tensor | None, plain: Callable[..., Any]
) -> tuple[Tensor, Tensor]:
    """r, k ``(B, T, N, D)``, log_w the same or ``(B, T, N)``, v ``(B, T, N, E)``, state ``(B, N, D, E)`` or None for zeros:
    y ``(B, T, N, E)`` in the type of v, and the last state in float32. Gradients flow to every argument.

    Factors of products are bfloat16 where v is, else float32 in three pieces of ten bits (Triton's tf32x3: as exact as
    float32 to 1e-6). Sums and states are float32. ``plain`` computes the same from the same arguments by torch's own
    functions: gradients that are differentiated in turn are its, and so is everything where the programs fail their
    `check`.
    """

    given, programs = (r, k, v, log_w, state), partial(_scan, plain=plain)
    serves = agrees(programs, plain, v, log_w, needs_gradient(*given))
    computed: tuple[Tensor, Tensor] = (programs if serves else plain)(*given)
    return computed


def _forward(
    keep: bool,
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    state: Tensor | None,
    *,
    plain: Callable[..., Any],
) -> tuple[tuple[Tensor, Tensor], Sequence[Tensor]]:
    r, k, v, log_w = (_rows(x) for x in (r, k, v, log_w))
    with _on(v):
        befores, last = _states(k, log_w, v, state, v.dtype, reverse=False)
        y, scores = _outputs(r, k, v, log_w, befores, keep)
    return (y, last), (befores, scores)


def _backward(back: Backward, *, plain: Callable[..., Any]) -> tuple[Tensor | None, ...]:
    kept, tensors, grads, _ = back
    (befores, scores), (*inputs, state), (dy, dlast) = kept, tensors, grads
    r, k, v, log_w = (_rows(x) for x in inputs)
    dy = torch.zeros_like(v) if dy is None else _rows(dy)
    with _on(v):
        afters, first = _states(r, log_w, dy, dlast, v.dtype, reverse=True)
        dv, dscores = _values(k, v, log_w, scores, dy, afters)
        dr, dk, dlog_w = _keys(r, k, v, log_w, befores, dscores, dy, afters)
    return dr, dk, dv, dlog_w, None if state is None else first.to(state.dtype)


def _by_torch(*given: Tensor | None, plain: Callable[..., Any]) -> Any:
    return plain(*given)


_scan = fused(_forward, _backward, _by_torch)


def _states(
    x: Tensor, log_w: Tensor, z: Tensor, first: Tensor | None, kind: torch.dtype, *, reverse: bool
) -> tuple[Tensor, Tensor]:
    """The states before each chunk ``(B·N, chunks, D, E)`` as the products take them, and the last in float32."""
    B, T, N, D, E = *x.shape, z.shape[3]
    found = x.new_empty(B * N, -(-T // CHUNK), D, E, dtype=_stored(kind))
    last = x.new_empty(B, N, D, E, dtype=torch.float32)
    bd, be, how = _tile("states", kind)
    _programs("states").states[(B * N * -(-D // bd) * -(-E // be),)](
        x, log_w, z, masks(CHUNK, x.device)[0], last if first is None else first.float().contiguous(), found, last, T, N, D, E,
        *_strides(x, log_w, z), CHUNK, LEVELS, bd, be, BY_HEAD=log_w.dim() == 3, REVERSE=reverse, START=first is not None, **how,
    )  # fmt: skip
    return found, last


def _outputs(
    r: Tensor, k: Tensor, v: Tensor, log_w: Tensor, befores: Tensor, save: bool
) -> tuple[Tensor, Tensor]:
    B, T, N, D, E = *k.shape, v.shape[3]
    chunks = befores.shape[1]
    y = v.new_empty(B, T, N, E)
    scores = befores.new_empty((B * N, chunks, CHUNK, CHUNK) if save else (1,))
    bd, be, how = _tile("outputs", v.dtype)
    _programs("by_head" if log_w.dim() == 3 else "forward").outputs[(B * N * chunks * -(-E // be),)](
        r, k, v, log_w, masks(CHUNK, v.device)[0], befores, scores, y, T, N, D, E,
        *_strides(r, k, v, log_w), CHUNK, LEVELS, bd, be, SAVE=save, **how,
    )  # fmt: skip
    return y, scores


def _values(
    k: Tensor, v: Tensor, log_w: Tensor, scores: Tensor, dy: Tensor, afters: Tensor
) -> tuple[Tensor, Tensor]:
    B, T, N, D, E = *k.shape, v.shape[3]
    dv, dscores = v.new_empty(B, T, N, E), torch.empty_like(scores)
    bd, be, how = _tile("values", v.dtype)
    _programs("backward").values[(B * N * afters.shape[1] * -(-E // be),)](
        k, v, log_w, masks(CHUNK, v.device)[0], scores, dy, afters, dv, dscores, T, N, D, E,
        *_strides(k, v, log_w, dy), CHUNK, LEVELS, bd, be, BY_HEAD=log_w.dim() == 3, **how,
    )  # fmt: skip
    return dv, dscores


def _keys(
    r: Tensor,
    k: Tensor,
    v: Tensor,
    log_w: Tensor,
    befores: Tensor,
    dscores: Tensor,
    dy: Tensor,
    afters: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    B, T, N, D, E = *k.shape, v.shape[3]
    dr, dk = (x.new_empty(B, T, N, D) for x in (r, k))
    bd, be, how = _tile("keys", v.dtype)
    blocks = -(-D // bd)
    by_head = log_w.dim() == 3
    dlog_w = log_w.new_empty(B, T, N, blocks, dtype=torch.float32) if by_head else log_w.new_empty(B, T, N, D)
    _programs("by_head" if by_head else "backward").keys[(B * N * afters.shape[1] * blocks,)](
        r, k, v, log_w, *masks(CHUNK, v.device), befores, dscores, dy, afters, dr, dk, dlog_w, T, N, D, E,
        *_strides(r, k, v, log_w, dy), CHUNK, LEVELS, bd, be, **how,
    )  # fmt: skip
    return dr, dk, dlog_w.sum(3).to(log_w.dtype) if by_head else dlog_w


def _tile(name: str, kind: torch.dtype) -> tuple[int, int, dict[str, Any]]:
    """The block of a state a program takes, and how it is compiled."""
    half = kind == torch.bfloat16
    d, e, compiled = TILES[name] if half else IN_FLOAT32
    return d, e, {"HALF": half, **compiled}


def _stored(kind: torch.dtype) -> torch.dtype:
    """Of what is only ever a factor of products: float16 is too narrow for a state."""
    return torch.bfloat16 if kind == torch.bfloat16 else torch.float32


def _rows(x: Tensor) -> Tensor:
    """The tensor with neighbours along its last axis; other strides are free, but 32 bits count a chunk's steps."""
    return x if x.stride(1) < 1 << 24 and (x.dim() == 3 or x.stride(3) == 1) else x.contiguous()


def _strides(*tensors: Tensor) -> tuple[int, ...]:
    return tuple(x.stride(axis) for x in tensors for axis in (0, 1, 2))


def _on(x: Tensor) -> Any:
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


def _programs(name: str) -> Any:
    """A module of Triton programs, imported when the first is needed."""
    return import_module(f"anaphora.ops.matrix_scan.{name}")


@cache
def _ready(device: torch.device) -> bool:
    if device.type != "cuda":
        return True
    return (
        find_spec("triton") is not None
        and not torch.version.hip
        and torch.cuda.get_device_capability(device) >= (8, 0)
    )


# ----------------------------------------------------------------------
# Whether compiled programs can be trusted: once per process, GPU and kind, a small example against plain torch.
#
# A compiler may err in silence. With Triton 3.6 on an H200 one kind of product gave NaN and one size of block read outside its
# memory, where the interpreter found neither; other libraries report wrong gradients. Where an example differs, plain torch
# computes instead, with a warning.
CLOSE = {
    torch.bfloat16: 3e-2,
    torch.float16: 1e-2,
    torch.float32: 1e-4,
}  # relative to the norm of what is right
SIZES = (1, 160, 2, 128, 128)  # B, T, N, D, E: several blocks, and a chunk that is not full
Kind = tuple[torch.device, torch.dtype, bool, bool]
_agrees: dict[Kind, bool] = {}


def agrees(
    fused: Callable[..., Any], plain: Callable[..., Any], v: Tensor, log_w: Tensor, grads: bool
) -> bool:
    """Whether ``fused`` gives what ``plain`` gives, for the device and type of v, decays like log_w, and with gradients or
    without. False while a graph is captured and nothing is known yet."""
    kind = (v.device, v.dtype, log_w.dim() == 3, grads)
    if kind not in _agrees:
        if v.is_cuda and torch.cuda.is_current_stream_capturing():
            return False
        _agrees[kind] = _compared(fused, plain, *kind)
    return _agrees[kind]


def _compared(
    fused: Callable[..., Any],
    plain: Callable[..., Any],
    device: torch.device,
    dtype: torch.dtype,
    by_head: bool,
    grads: bool,
) -> bool:
    with (
        torch.inference_mode(False),
        torch.set_grad_enabled(grads),
        torch.autocast(device.type, enabled=False),
        saved_tensors_hooks(lambda x: x, lambda x: x),  # not the caller's
    ):
        given = _example(device, dtype, by_head)
        right = _results(plain, [x.double() for x in given], grads)
        try:
            ours = _results(fused, given, grads)
        except Exception as error:  # Triton, its C compiler or the GPU may refuse in any way; it is named
            reason = f"do not run ({type(error).__name__}: {str(error)[:200]})"
        else:
            pairs = zip(ours, right, strict=True)
            errors = [float((a.double() - b).norm() / b.norm()) for a, b in pairs]
            wrong = [error for error in errors if not error < CLOSE[dtype]]  # NaN among them
            if not wrong:
                return True
            reason = f"are off by {wrong[0]:.1e}"
    warnings.warn(
        f"matrix_scan: the fused kernels for {dtype} on {device} {reason}; plain torch computes instead, slower. "
        "Another version of Triton may help.",
        stacklevel=2,
    )
    return False


def _example(device: torch.device, dtype: torch.dtype, by_head: bool) -> list[Tensor]:
    batch, time, heads, d, e = SIZES
    draw = torch.Generator().manual_seed(0)  # torch's own numbers stay as they are
    r, k = (torch.randn(batch, time, heads, d, generator=draw) for _ in range(2))
    v, state = (
        torch.randn(batch, time, heads, e, generator=draw),
        torch.randn(batch, heads, d, e, generator=draw),
    )
    log_w = -(torch.rand(batch, time, heads, *([] if by_head else [d]), generator=draw) ** 4)
    log_w[:, time // 2] = -torch.inf
    return [*(x.to(device, dtype) for x in (r, k, v)), log_w.to(device), state.to(device)]


def _results(run: Callable[..., Any], given: list[Tensor], grads: bool) -> list[Tensor]:
    """Outputs and last state, and all gradients."""
    leaves = [x.requires_grad_(grads) for x in given]
    found = run(*leaves)
    if not grads:
        return list(found)
    draw = torch.Generator().manual_seed(1)
    weights = [torch.randn(y.shape, generator=draw).to(y) for y in found]
    return [*(y.detach() for y in found), *torch.autograd.grad(found, leaves, weights)]


# ---------------------------------------------------------------------- which steps of a chunk a sum of logarithms runs over
_kept: dict[tuple[int, torch.device], tuple[Tensor, Tensor]] = {}


def masks(chunk: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Ones and zeros ``(2·levels + 2, chunk, chunk)`` in float16 and in bfloat16.

    ``[level, i, s]``: whether step s lies between step i and the middle of its block of 2·2^level steps (after the middle up
    to i itself, or after i up to the middle); then s ≤ i, and s > i; then for each level whether i and s are in different
    halves of one such block.
    """
    found = _kept.get((chunk, device))
    if found is None:
        found = _made(chunk, device)
        if device.type == "cuda":
            if torch.cuda.is_current_stream_capturing():
                return found  # what a graph allocates is the graph's own
            torch.cuda.current_stream(device).synchronize()  # other streams will read it
        _kept[chunk, device] = found
    return found


def _made(chunk: int, device: torch.device) -> tuple[Tensor, Tensor]:
    i, s = torch.arange(chunk, device=device)[:, None], torch.arange(chunk, device=device)
    found = []
    for level in range(chunk.bit_length() - 1):
        right = ((i >> level) & 1).bool()
        found.append((((i ^ s) >> level) == 0) & torch.where(right, s <= i, s > i))
    halves = [((i ^ s) >> level) == 1 for level in range(len(found))]
    table = torch.stack([*found, s <= i, s > i, *halves])
    return table.half(), table.bfloat16()
