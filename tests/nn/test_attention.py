"""Scores, masks and weights of attention with one score per query and key."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from anaphora.nn import inside
from anaphora.nn.attention import Additive, Attended, Bilinear, Dot, ScaledDot, masked_softmax, masks

KINDS = {
    "dot": lambda: Dot(),
    "bilinear": lambda: Bilinear(4, 4),
    "additive": lambda: Additive(4, 4, 5),
    "scaled": lambda: ScaledDot(),
}


@pytest.fixture(params=KINDS)
def attention(request: pytest.FixtureRequest) -> torch.nn.Module:
    return KINDS[request.param]().double()


def case(*, grad: bool = False) -> tuple[Tensor, Tensor, Tensor]:
    query = torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=grad)
    keys = torch.randn(3, 5, 4, dtype=torch.float64, requires_grad=grad)
    return query, keys, masks.padding(torch.tensor([5, 3, 1]), 5)


def test_dot_by_hand() -> None:
    """s = (1, 0) and h = (ln 3, 7), (0, 9): scores ln 3 and 0, so weights 3/4 and 1/4."""
    query = torch.tensor([[[1.0, 0.0]]])
    keys = torch.tensor([[[math.log(3), 7.0], [0.0, 9.0]]])
    context, weights = Dot()(query, keys)
    torch.testing.assert_close(weights, torch.tensor([[[0.75, 0.25]]]))
    torch.testing.assert_close(context, torch.tensor([[[0.75 * math.log(3), 7.5]]]))


def test_bilinear_by_hand() -> None:
    """sᵀWh with s = (1, 2), W = [[1, 0, 1], [0, 1, 0]]: sᵀW = (1, 2, 1)."""
    attention = Bilinear(2, 3)
    attention.weight.data = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]])
    keys = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [1.0, 1.0, 1.0]]])
    scores = attention.score(torch.tensor([[[1.0, 2.0]]]), attention.prepare(keys))
    torch.testing.assert_close(scores, torch.tensor([[[1.0, 2.0, 4.0]]]))


def test_additive_by_hand() -> None:
    """vᵀ tanh(Ws + Uh + b) with one unit: 2 tanh(3s − h + 0.5)."""
    attention = Additive(1, 1, 1)
    for part, value in ((attention.W.weight, 3.0), (attention.U.weight, -1.0), (attention.v.weight, 2.0)):
        part.data.fill_(value)
    attention.W.bias.data.fill_(0.5)
    scores = attention.score(torch.tensor([[[0.2]]]), attention.prepare(torch.tensor([[[0.1], [1.1]]])))
    torch.testing.assert_close(scores, torch.tensor([[[2 * math.tanh(1.0), 2 * math.tanh(0.0)]]]))


def test_scaled_dot_keeps_the_variance_of_the_scores() -> None:
    """The variance of q · k grows with d_k; divided by √d_k it stays 1."""
    for width in (4, 64, 1024):
        q, k = torch.randn(1, 500, width), torch.randn(1, 500, width)
        assert Dot().score(q, k).var().item() == pytest.approx(width, rel=0.15)
        assert ScaledDot().score(q, k).var().item() == pytest.approx(1.0, rel=0.15)


def test_weights_sum_to_one_and_padding_gets_exactly_nothing(attention: torch.nn.Module) -> None:
    query, keys, mask = case()
    context, weights = attention(query, keys, mask)
    assert context.shape == (3, 2, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(3, 2, dtype=torch.float64))
    assert (weights[~mask[:, None].expand_as(weights)] == 0).all()


def test_padding_changes_nothing(attention: torch.nn.Module) -> None:
    query, keys, mask = case()
    context, weights = attention(query, keys, mask)
    spoilt = keys.masked_fill(~mask[..., None], 1e6)
    again, _ = attention(query, spoilt, mask, keys)
    assert torch.equal(context, again)
    for row, length in enumerate((5, 3, 1)):
        alone, alone_weights = attention(query[row : row + 1], keys[row : row + 1, :length])
        torch.testing.assert_close(alone[0], context[row], rtol=0, atol=1e-12)
        torch.testing.assert_close(alone_weights[0], weights[row, :, :length], rtol=0, atol=1e-12)


def test_a_row_with_nothing_to_see_is_zero_without_nan(attention: torch.nn.Module) -> None:
    query, keys, mask = case(grad=True)
    mask = mask.clone()
    mask[1] = False
    context, weights = attention(query, keys, mask)
    assert (context[1] == 0).all()
    assert (weights[1] == 0).all()
    context.square().sum().backward()
    for tensor in (query, keys, *attention.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()
    assert (query.grad[1] == 0).all()


def test_prepared_keys_give_the_same(attention: torch.nn.Module) -> None:
    query, keys, mask = case()
    plain = attention(query, keys, mask)
    prepared = attention(query, keys, mask, prepared=attention.prepare(keys))
    assert torch.equal(plain[0], prepared[0])
    assert torch.equal(plain[1], prepared[1])


def test_values_other_than_the_keys(attention: torch.nn.Module) -> None:
    query, keys, mask = case()
    values = torch.randn(3, 5, 7, dtype=torch.float64)
    context, weights = attention(query, keys, mask, values)
    torch.testing.assert_close(context, torch.einsum("bqk,bkd->bqd", weights, values))


def test_a_mask_per_query(attention: torch.nn.Module) -> None:
    query, keys, _ = case()
    diagonal = torch.zeros(1, 2, 5, dtype=torch.bool)
    diagonal[0, 0, 0] = diagonal[0, 1, 1] = True
    _, weights = attention(query, keys, diagonal)
    torch.testing.assert_close(weights, diagonal.double().expand(3, 2, 5))


def test_gradients(attention: torch.nn.Module) -> None:
    query, keys, mask = case(grad=True)
    torch.autograd.gradcheck(lambda q, k: attention(q, k, mask)[0], (query, keys))


def test_weights_and_scores_are_noted(attention: torch.nn.Module) -> None:
    query, keys, mask = case()
    with inside.record() as notes:
        _, weights = attention(query, keys, mask)
    found = {note.name: note.value for note in notes if note.module is attention}
    assert torch.equal(found["weights"], weights)
    assert torch.equal(masked_softmax(found["scores"], mask[:, None]), weights)


def test_dot_refuses_different_widths() -> None:
    with pytest.raises(ValueError, match="queries have 3 and keys 4"):
        Dot()(torch.zeros(1, 1, 3), torch.zeros(1, 2, 4))


def test_masks() -> None:
    assert masks.padding(torch.tensor([2, 0, 3]), 3).tolist() == [
        [True, True, False],
        [False, False, False],
        [True, True, True],
    ]
    assert masks.causal(3).int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
    assert masks.window(4, before=1, after=1).int().tolist() == [
        [[1, 1, 0, 0], [1, 1, 1, 0], [0, 1, 1, 1], [0, 0, 1, 1]]
    ]
    assert masks.window(4, before=1).int().tolist() == [
        [[1, 0, 0, 0], [1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1]]
    ]
    assert masks.join(None, None) is None
    joined = masks.join(masks.padding(torch.tensor([2, 3]), 3), None, masks.causal(3))
    assert joined is not None
    assert joined.int().tolist() == [[[1, 0, 0], [1, 1, 0], [1, 1, 0]], [[1, 0, 0], [1, 1, 0], [1, 1, 1]]]


def test_attended_rows_are_copied_only_when_they_change_their_item() -> None:
    keys = torch.randn(2, 3, 4)
    attended = Attended.of((keys,), masks.padding(torch.tensor([3, 2]), 3))
    beams = attended.select(torch.tensor([0, 0, 1, 1]))
    assert torch.equal(beams.tensors[0], keys[[0, 0, 1, 1]])
    assert beams.select(torch.tensor([1, 0, 3, 3])) is beams
    last = beams.select(torch.tensor([3]))
    assert last.mask is not None
    assert torch.equal(last.tensors[0], keys[1:])
    assert last.mask.tolist() == [[True, True, False]]
