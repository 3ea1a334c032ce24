"""PyTorch's own recurrent layers: cuDNN on an NVIDIA GPU, ATen's loops elsewhere.

They serve cells that PyTorch has too, where no faster backend can: other types, GPUs on which nothing was measured, and
the CPU where there is no C compiler.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.engine.backends.base import BackendName, Case, Job, Result
from anaphora.engine.backends.reference import reverse_rows

name: BackendName = "cudnn"
about = "PyTorch's own layer (cuDNN on a GPU)"
planned = False


def why_not(case: Case) -> str | None:
    """Why PyTorch's layers cannot serve; None when they can."""
    if case.barred is not None:
        return case.barred
    return None if case.native else "PyTorch has no layer for this cell"


def run(job: Job) -> Result:
    """Run a cell by PyTorch's own kernel, ragged rows without packing.

    Rows are run padded: what comes after a row's end cannot change what came before, so the output is zeroed
    and the last states are taken at each row's end. The backward direction reverses each row within its length.
    """
    run = job.run
    assert run.native is not None
    kind, x, lengths = run.native.kind, run.steps[0], run.lengths
    weights = list(run.native.weights(run.params or {}))
    if run.reverse:
        x = reverse_rows(x, lengths)
    live = None
    if lengths is not None:
        lengths = lengths.to(x.device)
        live = (torch.arange(x.shape[1], device=x.device) < lengths[:, None]).unsqueeze(-1)  # (B, T, 1)
        if kind == "lstm":
            x, weights[0] = _hold_past_end(x, weights[0], live)
    if x.is_cuda:
        weights = _one_chunk(weights)
    states = [s.unsqueeze(0).to(x.dtype).contiguous() for s in run.initial]  # (1, B, H)
    hx: Any = states if kind == "lstm" else states[0]
    y, *final = getattr(torch._VF, kind)(x, hx, weights, True, 1, 0.0, torch.is_grad_enabled(), False, True)
    last = [s[0] for s in final]
    if live is not None and lengths is not None:
        last[0] = _at_end(y, states[0][0], lengths)
        y = torch.where(live, y, y.new_zeros(()))
    return (reverse_rows(y, lengths) if run.reverse else y), tuple(last)


def _hold_past_end(x: Tensor, weight: Tensor, live: Tensor) -> tuple[Tensor, Tensor]:
    """Make an LSTM keep its cell past each row's end, which its kernel does not hand out step by step.

    One more input is 1 there and 0 elsewhere; its weights open the forget gate and shut the input gate, so
    that c_t = c_{t−1} to the last bit. Seven more zeros keep the width one that fast products like.
    """
    past = torch.zeros(*x.shape[:2], 8, dtype=x.dtype, device=x.device)
    past[:, :, :1] = (~live).to(x.dtype)
    held = torch.zeros(weight.shape[0], 8, dtype=weight.dtype, device=weight.device)
    hidden = weight.shape[0] // 4
    held[:hidden, 0] = -120.0
    held[hidden : 2 * hidden, 0] = 120.0
    return torch.cat((torch.where(live, x, x.new_zeros(())), past), -1), torch.cat((weight, held), 1)


def _at_end(y: Tensor, initial: Tensor, lengths: Tensor) -> Tensor:
    """y at each row's last real step; the initial state for an empty row."""
    index = (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, y.shape[2])
    return torch.where((lengths > 0)[:, None], y.gather(1, index)[:, 0], initial)


def _one_chunk(weights: list[Tensor]) -> list[Tensor]:
    """The weights as views of one buffer, which is how cuDNN wants them."""
    flat = torch.cat([w.reshape(-1) for w in weights])
    parts = torch.split(flat, [w.numel() for w in weights])
    return [part.view(w.shape) for part, w in zip(parts, weights, strict=True)]
