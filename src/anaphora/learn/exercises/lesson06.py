"""Gates and cells."""

from __future__ import annotations

import random
from typing import Any

import torch

from anaphora import nn
from anaphora.learn.exercise import close


def parameters(answer: Any) -> str | None:
    if close(answer, sum(p.numel() for p in nn.LSTM(100, 200).parameters()), 0):
        return None
    return "Three gates and a candidate, each with W (units × inputs), U (units × units) and b (units)."


def gates(answer: Any) -> str | None:
    draw = random.Random(6)
    for length in (1, 5, 50, 1000):
        c, ones = 0.0, 0
        for _ in range(length):
            bit = draw.randint(0, 1)
            i, f = (float(value) for value in answer(bit))
            if not (0 <= i <= 1 and 0 <= f <= 1):
                return "Gates lie between 0 and 1."
            c, ones = f * c + i, ones + bit
            if abs(c - ones) > 1e-6:
                return f"After {ones} ones c is {c:.3g}. When must the old count be kept, and when is something added?"
    return None


def simple_gru(answer: Any) -> str | None:
    if not (isinstance(answer, type) and issubclass(answer, nn.Cell)):
        return "Give the class itself, a subclass of an.nn.Cell."
    torch.manual_seed(6)
    mine, right = answer(3, 5), nn.SimpleGRU(3, 5)
    halves = {name: value.chunk(2) for name, value in right.both.state_dict().items()}
    for n, part in enumerate(("update", "new")):
        if not isinstance(getattr(mine, part, None), nn.Affine):
            return f"The cell needs a part `self.{part} = an.nn.Affine(inputs, hidden, hidden)`, made in `setup`."
        getattr(mine, part).load_state_dict({name: value[n] for name, value in halves.items()})
    x, h = torch.randn(4, 3), torch.randn(4, 5)
    with torch.no_grad():
        found, wanted = torch.as_tensor(mine.step(x, h)), right.step(x, h)
        if torch.allclose(found, wanted, atol=1e-5):
            return None
        if torch.allclose(found, h + torch.tanh(right.both(x, h).chunk(2, -1)[1]) - wanted, atol=1e-5):
            return "u lets the new value in, and 1 − u keeps the old one: yours are the other way round."
    return "u = σ(update), h̃ = tanh(new), and h_t = (1 − u) ∘ h_{t−1} + u ∘ h̃."


CHECKS = (parameters, gates, simple_gru)
