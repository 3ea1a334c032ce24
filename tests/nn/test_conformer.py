"""A Conformer that reads chunk by chunk says what it says of the whole, and no place sees what it must not."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from anaphora.models.classifier import VectorInput
from anaphora.models.conformer import ConformerEncoder
from anaphora.nn import FeedForward
from anaphora.nn.attention import MultiHead, masks
from anaphora.nn.conformer import ConformerLayer, ConvolutionModule
from anaphora.nn.positions import Rotary

WIDTH = 8


def encoder(chunk: int, left: int, kernel: int = 3, layers: int = 2, seed: int = 0) -> ConformerEncoder:
    torch.manual_seed(seed)

    def layer() -> ConformerLayer:
        attention = MultiHead(WIDTH, 2, positions=Rotary())
        pair = (FeedForward(WIDTH, 16), FeedForward(WIDTH, 16))
        return ConformerLayer(attention, pair, kernel=kernel, chunk=chunk, left=left)

    found = ConformerEncoder(VectorInput(5, WIDTH), [layer() for _ in range(layers)])
    for parameter in found.parameters():  # norms and biases as training leaves them
        parameter.data += 0.2 * torch.randn_like(parameter)
    return found.double().eval()


def whole(model: Any, x: torch.Tensor) -> torch.Tensor:
    found: torch.Tensor = model(x, torch.tensor([x.shape[1]] * len(x))).annotations
    return found


@pytest.mark.parametrize(
    ("chunk", "left", "kernel"), [(1, 0, 1), (1, 3, 2), (4, 0, 3), (4, 2, 7), (5, 1, 15), (40, 1, 3)]
)
@pytest.mark.parametrize("length", [1, 4, 23])
def test_chunk_by_chunk_is_as_at_once(chunk, left, kernel, length):
    model = encoder(chunk, left, kernel)
    x = torch.randn(2, length, 5, dtype=torch.float64)
    with torch.no_grad():
        state, parts = None, []
        for piece in x.split(chunk, 1):
            y, state = model.further(piece, state)
            parts.append(y)
        torch.testing.assert_close(torch.cat(parts, 1), whole(model, x), rtol=1e-9, atol=1e-11)
        several, _ = model.further(x)
        torch.testing.assert_close(several, whole(model, x), rtol=1e-9, atol=1e-11)


def test_what_is_kept_does_not_grow():
    model = encoder(4, 2, kernel=5)
    with torch.no_grad():
        _, state = model.further(torch.randn(1, 400, 5, dtype=torch.float64))
    for heard in state:
        assert heard is not None
        assert heard.near is not None
        assert heard.near.keys.shape[2] == 8
        assert heard.tail.shape == (1, 4, WIDTH)
    assert all(len(layer.attention.positions._turns) <= 256 for layer in model.layers)


def test_a_place_sees_its_chunk_and_those_to_the_left_of_it():
    model = encoder(chunk=3, left=1, kernel=1, layers=1)
    x = torch.randn(1, 9, 5, dtype=torch.float64, requires_grad=True)
    for place in range(9):
        (gradient,) = torch.autograd.grad(whole(model, x)[0, place].sum(), x)
        seen = gradient[0].abs().sum(-1) > 1e-12
        first = max(0, place // 3 - 1) * 3
        assert seen.tolist() == [first <= j < (place // 3 + 1) * 3 for j in range(9)]


def test_padding_and_other_rows_change_nothing():
    model = encoder(chunk=4, left=1)
    x = torch.randn(2, 11, 5, dtype=torch.float64)
    alone = whole(model, x[1:, :6])
    x[1, 6:] = 1e6
    together = model(x, torch.tensor([11, 6])).annotations
    torch.testing.assert_close(together[1:, :6], alone)


def test_without_chunks_everything_is_seen_and_nothing_can_arrive():
    model = encoder(chunk=0, left=0, kernel=3, layers=1)
    x = torch.randn(1, 7, 5, dtype=torch.float64, requires_grad=True)
    (gradient,) = torch.autograd.grad(whole(model, x)[0, 0].sum(), x)
    assert (gradient[0].abs().sum(-1) > 1e-12).all()
    with pytest.raises(ValueError, match="reads a sequence as a whole"):
        model.further(x)
    with pytest.raises(ValueError, match="odd kernel, not 4"):
        ConvolutionModule(8, 4, causal=False)


def test_the_mask_of_chunks():
    assert masks.chunks(5, 2, 1)[0].int().tolist() == [
        [1, 1, 0, 0, 0],
        [1, 1, 0, 0, 0],
        [1, 1, 1, 1, 0],
        [1, 1, 1, 1, 0],
        [0, 0, 1, 1, 1],
    ]
