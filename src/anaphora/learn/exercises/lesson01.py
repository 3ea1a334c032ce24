"""Order, one-hot vectors and padding."""

from __future__ import annotations

import math
from typing import Any

import torch

from anaphora.learn.exercise import close


def orders(answer: Any) -> str | None:
    if close(answer, math.factorial(6), 0):
        return None
    return "Six words can stand first; whichever it is, five are left for the second place, and so on."


def one_hot(answer: Any) -> str | None:
    words = ["the", "market", "falls", "bear"]
    for n, word in enumerate(words):
        found = [float(x) for x in answer(word, words)]
        if len(found) != len(words):
            return f"The vector of {word!r} has {len(found)} numbers; it needs one for each of {len(words)} words."
        if found != [float(n == i) for i in range(len(words))]:
            return f"The vector of {word!r} must have a one at its place, {n} from 0, and zeros elsewhere."
    return None


def mean(answer: Any) -> str | None:
    torch.manual_seed(1)
    rows, lengths = torch.randn(3, 5, 2), torch.tensor([5, 2, 3])
    right = torch.stack([row[:n].mean(0) for row, n in zip(rows, lengths.tolist(), strict=True)])
    found = torch.as_tensor(answer(rows.clone(), lengths))
    if found.shape != right.shape:
        return f"Three rows of two features become {tuple(right.shape)}; yours is {tuple(found.shape)}."
    if torch.allclose(found, right, atol=1e-5):
        return None
    if torch.allclose(found, rows.mean(1), atol=1e-5):
        return "That is the mean over all places, padding included."
    return "Sum over the real steps of each row, and divide by their number, not by the length of the batch."


CHECKS = (orders, one_hot, mean)
