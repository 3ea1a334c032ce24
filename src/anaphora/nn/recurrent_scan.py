"""A recurrent layer as one loop in an exported program: any cell, any length, any batch.

A traced layer would be unrolled, and its length frozen. Torch's ``scan`` keeps the step as a body of its own, which becomes
one ``Scan`` node of ONNX.
"""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.engine.backends.base import LayerRun, Result, States
from anaphora.nn.exporting import loop
from anaphora.nn.recurrent_step import LayerStep


def scan_layer(run: LayerRun) -> Result:
    """One layer in one direction, in evaluation mode: y ``(B, T, H)``, zero past each row's end, and the last states.

    A step past a row's end keeps the states, so that a backward direction, which meets those steps first, begins at the
    row's own end with its first states.
    """
    step = run.step
    assert isinstance(step, LayerStep)
    x = run.steps[0].transpose(0, 1)  # (T, B, I)
    places = torch.arange(x.shape[0], device=x.device)
    if run.lengths is None:
        real = torch.ones_like(x[:, :, 0], dtype=torch.bool)
    else:
        real = places[:, None] < run.lengths[None, :]  # (T, B)
    if run.reverse:
        x, real = x.flip(0), real.flip(0)
    zones = step.keep if step.zoneout == "mean" else (0.0,) * len(run.initial)

    def one(states: States, given: States) -> tuple[States, Tensor]:
        x_t, there = given[0], given[1].unsqueeze(-1)
        new = step.cell.advance(x_t, states)
        new = tuple(n + p * (s - n) if p else n for p, s, n in zip(zones, states, new, strict=True))
        kept = tuple(torch.where(there, n, s) for n, s in zip(new, states, strict=True))
        return kept, torch.where(there, new[0], torch.zeros_like(new[0]))

    last, y = loop(one, tuple(run.initial), (x, real))
    if run.reverse:
        y = y.flip(0)
    return y.transpose(0, 1), last
