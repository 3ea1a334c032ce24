"""Attention."""

from __future__ import annotations

from typing import Any

import torch

from anaphora.learn.exercise import close


def weight(answer: Any) -> str | None:
    if close(answer, 0.75, 0.001):
        return None
    return "exp(0) is 1 and exp(log 3) is 3; the weights are their shares of the sum."


def attend(answer: Any) -> str | None:
    torch.manual_seed(0)
    for n, d in ((5, 4), (1, 3), (7, 2)):
        s, H = torch.randn(d), torch.randn(n, d)
        weights, context = answer(s, H)
        right = (H @ s).softmax(0)
        if tuple(weights.shape) != (n,) or not torch.allclose(weights, right, atol=1e-5):
            return f"For {n} keys there are {n} weights, the softmax of the products H s; they sum to {float(right.sum()):.0f}."
        if tuple(context.shape) != (d,) or not torch.allclose(context, right @ H, atol=1e-5):
            return "The context is the mean of the rows of H with these weights, a vector as wide as a row."
    return None


def parameters(answer: Any) -> str | None:
    if close(answer, 10 * 20 + 10 * 30 + 10 + 10, 0):
        return None
    return "W maps 20 numbers to 10, U maps 30 to 10, b has one number for each hidden unit, and so has v."


CHECKS = (weight, attend, parameters)
