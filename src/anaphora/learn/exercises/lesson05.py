"""Vanishing gradients and clipping."""

from __future__ import annotations

from typing import Any

import torch

from anaphora.learn.exercise import close


def left(answer: Any) -> str | None:
    right = 0.9**100
    if close(answer, right, 0.01 * right):
        return None
    return "A hundred factors of 0.9, multiplied."


def clip(answer: Any) -> str | None:
    torch.manual_seed(5)
    for scale, limit in ((10.0, 1.0), (0.1, 5.0), (3.0, 3.0)):
        given = [scale * torch.randn(4), scale * torch.randn(2, 3)]
        norm = float(torch.cat([g.flatten() for g in given]).norm())
        found = answer([g.clone() for g in given], limit)
        if found is None or len(found) != len(given):
            return "Give a list of as many tensors as you got."
        size = float(torch.cat([torch.as_tensor(g).flatten() for g in found]).norm())
        if norm <= limit and not all(torch.allclose(a, b) for a, b in zip(found, given, strict=True)):
            return "A gradient that is short enough stays as it is."
        wanted = min(1.0, limit / norm)
        if not all(torch.allclose(a, wanted * b, atol=1e-5) for a, b in zip(found, given, strict=True)):
            if abs(size - min(norm, limit)) < 1e-4:
                return "The length is right, the direction is not: multiply all tensors by the same number."
            return f"The norm of all together is {size:.3g} and should be {min(norm, limit):.3g}: square, sum over all tensors, take the root."
    return None


def gate(answer: Any) -> str | None:
    if close(answer, 0.5**0.01, 1e-4):
        return None
    return "f multiplied by itself a hundred times is ½; so f is the hundredth root of ½."


CHECKS = (left, clip, gate)
