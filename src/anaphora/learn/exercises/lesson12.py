"""The Transformer."""

from __future__ import annotations

import math
from typing import Any

import torch

from anaphora.learn.exercise import close


def variance(answer: Any) -> str | None:
    if close(answer, 64, 0):
        return None
    return "q · k is a sum of 64 products, each with variance 1, and variances of independent numbers add up."


def attention(answer: Any) -> str | None:
    torch.manual_seed(12)
    Q, K, V = torch.randn(5, 8), torch.randn(5, 8), torch.randn(5, 3)
    for causal in (False, True):
        scores = Q @ K.T / math.sqrt(8)
        if causal:
            scores = scores.masked_fill(torch.ones(5, 5).triu(1).bool(), -math.inf)
        found, right = torch.as_tensor(answer(Q, K, V, causal)), scores.softmax(-1) @ V
        if found.shape != right.shape:
            return f"Five queries and values of width 3 give {tuple(right.shape)}; yours is {tuple(found.shape)}."
        if torch.allclose(found, right, atol=1e-5):
            continue
        if torch.allclose(found, (Q @ K.T).softmax(-1) @ V, atol=1e-5):
            return "The scores are not divided by √d_k."
        if causal:
            return "Without a mask it is right. With it, scores of keys after the query must be −∞ before the softmax."
        return "Scores Q Kᵀ / √d_k, a softmax over the keys, then the values averaged with these weights."
    return None


def shift(answer: Any) -> str | None:
    for omega, p, k in ((0.3, 4, 2), (1.0, 10, -3), (0.01, 100, 50)):
        code = (math.sin(omega * p), math.cos(omega * p))
        found = tuple(float(x) for x in answer(code, omega, k))
        right = (math.sin(omega * (p + k)), math.cos(omega * (p + k)))
        if len(found) != 2 or any(not close(x, y, 1e-6) for x, y in zip(found, right, strict=True)):
            return "sin(α + β) = sin α cos β + cos α sin β, and cos(α + β) = cos α cos β − sin α sin β, with β = ωk."
    return None


CHECKS = (variance, attention, shift)
