"""A mixture of softmaxes equals its equation, worked out symbol by symbol, and its gradient its differences."""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import anaphora as an
from anaphora.nn import embedding
from anaphora.nn.embedding import Embedding, Output, aligned_logits
from anaphora.nn.mixture import MixtureOutput


def by_hand(layer: MixtureOutput, h: list[float]) -> list[float]:
    """p(i | h) from the equation alone, in Python's own numbers."""

    def affine(matrix, bias, x):
        return [
            sum(w * v for w, v in zip(row, x, strict=True)) + b for row, b in zip(matrix, bias, strict=True)
        ]

    def softmax(z):
        total = sum(map(math.exp, z))
        return [math.exp(one) / total for one in z]

    shares = softmax(affine(layer.shares.weight.tolist(), layer.shares.bias.tolist(), h))
    states = [math.tanh(v) for v in affine(layer.states.weight.tolist(), layer.states.bias.tolist(), h)]
    inner = len(states) // layer.mixtures
    found = [0.0] * layer.symbols
    for k, share in enumerate(shares):
        g = states[k * inner : (k + 1) * inner]
        each = softmax(affine(layer.words.matrix.tolist(), layer.words.bias.tolist(), g))
        found = [p + share * q for p, q in zip(found, each, strict=True)]
    return found


@pytest.mark.parametrize("tied", [None, 3])
def test_it_is_the_sum_of_its_softmaxes(tied: int | None) -> None:
    torch.manual_seed(1)
    table = None if tied is None else Embedding(7, tied).double()
    layer = MixtureOutput(5, 7, mixtures=3, tied=table).double()
    torch.nn.init.normal_(layer.words.bias)
    x = torch.randn(2, 4, 5, dtype=torch.float64)
    found = layer(x)
    wanted = torch.tensor([[by_hand(layer, h) for h in row] for row in x.tolist()], dtype=torch.float64)
    torch.testing.assert_close(found.exp(), wanted)
    torch.testing.assert_close(found.log_softmax(-1), found)  # log p are logits of themselves
    targets = torch.randint(7, (2, 4))
    chosen = layer.log_prob(x, targets)
    torch.testing.assert_close(chosen, found.gather(-1, targets[..., None])[..., 0])
    assert layer.log_prob(x, torch.zeros_like(targets), ignored=0).eq(0).all()
    assert (layer.words.weight is None) == (tied is not None)


def test_its_gradients_are_those_of_differences() -> None:
    torch.manual_seed(2)
    layer = MixtureOutput(3, 5, mixtures=2).double()
    x = torch.randn(2, 3, dtype=torch.float64, requires_grad=True)
    weights = list(layer.parameters())
    targets = torch.tensor([4, 1])

    def call(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        return layer.log_prob(x, targets)

    def all_of_them(x: torch.Tensor, *_: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = layer(x)
        return found

    assert torch.autograd.gradcheck(call, (x, *weights))
    assert torch.autograd.gradcheck(all_of_them, (x, *weights))


def test_one_softmax_has_a_low_rank_and_several_do_not() -> None:
    torch.manual_seed(3)
    h = torch.randn(40, 4, dtype=torch.float64)
    one, three = (MixtureOutput(4, 30, mixtures=k).double() for k in (1, 3))
    for layer in (one, three):
        for part in (layer.states.weight, layer.words.weight):
            torch.nn.init.normal_(part)
    assert torch.linalg.matrix_rank(one(h), rtol=1e-9) <= 4 + 2  # W g + b − log Z
    assert torch.linalg.matrix_rank(three(h), rtol=1e-9) > 20


def test_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="one softmax at least, got mixtures = 0"):
        MixtureOutput(3, 5, mixtures=0)


def test_what_watches_an_output_layer_sees_what_it_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """A teacher compares scores that a hook hands to it, also where the layer's product would be padded."""
    monkeypatch.setattr(embedding, "_pads", lambda *_: True)
    plain, several = Output(3, 5), MixtureOutput(3, 5, mixtures=2)
    x, targets, seen = torch.randn(2, 3), torch.tensor([1, 2]), []
    assert aligned_logits(plain, x).shape == (2, 64)
    quick = several.log_prob(x, targets)
    for layer in (plain, several):
        layer.register_forward_hook(lambda _, __, found: seen.append(found))
    assert aligned_logits(plain, x).shape == (2, 5)
    torch.testing.assert_close(several.log_prob(x, targets), quick)
    assert [found.shape for found in seen] == [(2, 5), (2, 5)]


@pytest.mark.cuda
def test_a_gpu_gives_the_same() -> None:
    torch.manual_seed(4)
    words = Embedding(1501, 8)  # a tied layer does not register it
    layer = MixtureOutput(16, 1501, mixtures=3, tied=words)
    x, targets = torch.randn(3, 9, 16), torch.randint(1501, (3, 9))
    wanted = F.cross_entropy(layer(x).flatten(0, 1), targets.flatten(), reduction="sum", ignore_index=0)
    slopes = torch.autograd.grad(wanted, [*layer.parameters(), words.weight])
    layer.cuda()
    words.cuda()
    loss = -layer.log_prob(x.cuda(), targets.cuda(), ignored=0).sum()
    torch.testing.assert_close(loss.cpu(), wanted, rtol=1e-4, atol=1e-4)
    for one, other in zip(
        torch.autograd.grad(loss, [*layer.parameters(), words.weight]), slopes, strict=True
    ):
        torch.testing.assert_close(one.cpu(), other, rtol=1e-3, atol=1e-4)
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(
            -layer.log_prob(x.cuda(), targets.cuda(), ignored=0).sum(), loss, rtol=1e-2, atol=0
        )
    assert an.nn.MixtureOutput is MixtureOutput
