"""A recurrent network, unrolled."""

from __future__ import annotations

from typing import Any

import torch

from anaphora.learn.exercise import close
from anaphora.nn import Elman


def parameters(answer: Any) -> str | None:
    inputs, units, outputs = 4, 3, 4
    if close(answer, inputs * units + units * units + units + units * outputs + outputs, 0):
        return None
    return "W_xh leads from inputs to units, W_hh from units to units, W_hy from units to outputs; b and c have one number for each row."


def step(answer: Any) -> str | None:
    torch.manual_seed(4)
    cell = Elman(3, 5)
    x, h = torch.randn(3), torch.randn(5)
    with torch.no_grad():
        W_xh, W_hh = (weight.detach() for weight in cell.affine.weights)
        b = torch.randn(5)
        assert cell.affine.bias is not None
        cell.affine.bias.copy_(b)
        found, right = answer(W_hh, W_xh, b, h, x), cell.step(x[None], h[None])[0]
        if not isinstance(found, torch.Tensor) or found.shape != h.shape:
            return "The next state has as many numbers as h, in a tensor."
        if torch.allclose(found, right, atol=1e-5):
            return None
        if torch.allclose(torch.tanh(found), right, atol=1e-5):
            return "The sum is right; the tanh is missing."
    return "W_hh multiplies the old state, W_xh the input, and b is added before the tanh."


def gradient(answer: Any) -> str | None:
    w = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    h = torch.zeros((), dtype=torch.float64)
    for x in (1.0, 0.0, 0.0, 0.0):
        h = w * h + x
    (right,) = torch.autograd.grad(h, w)
    if close(answer, float(right), 1e-6):
        return None
    return "Write h_4 as a formula in w: the input of step 1 is multiplied by w at steps 2, 3 and 4. Then differentiate."


CHECKS = (parameters, step, gradient)
