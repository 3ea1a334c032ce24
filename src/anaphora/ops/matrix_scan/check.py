"""Whether compiled programs can be trusted: once per process, GPU and kind, a small example against plain torch.

A compiler may err in silence. With Triton 3.6 on an H200 one kind of product gave NaN and one size of block read outside its
memory, where the interpreter found neither; other libraries report wrong gradients. Where an example differs, plain torch
computes instead, with a warning.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.graph import saved_tensors_hooks

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
