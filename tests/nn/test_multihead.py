"""Multi-head attention: equal to PyTorch's, fused or written out, at once or step by step."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention import MultiHead, masks, scaled_dot
from anaphora.nn.positions import Alibi, Rotary

WIDTH, HEADS = 8, 2


def like_torch(theirs: nn.MultiheadAttention) -> MultiHead:
    ours = MultiHead(theirs.embed_dim, theirs.num_heads).to(theirs.in_proj_weight.dtype)
    ours.inward.weight.data = theirs.in_proj_weight.data.clone()
    ours.inward.bias.data = theirs.in_proj_bias.data.clone()
    ours.outward.load_state_dict(theirs.out_proj.state_dict())
    return ours


@pytest.fixture
def pair() -> tuple[MultiHead, nn.MultiheadAttention]:
    theirs = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True, dtype=torch.float64)
    nn.init.normal_(theirs.in_proj_bias)
    nn.init.normal_(theirs.out_proj.bias)
    return like_torch(theirs), theirs


def gradients(out: Tensor, module: nn.Module, *inputs: Tensor) -> list[Tensor]:
    return list(torch.autograd.grad(out.sin().sum(), [*inputs, *module.parameters()]))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("padded", [False, True])
def test_self_attention_equals_pytorch(
    pair: tuple[MultiHead, nn.MultiheadAttention], causal: bool, padded: bool
) -> None:
    ours, theirs = pair
    x = torch.randn(3, 6, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = masks.padding(torch.tensor([6, 4, 1]), 6) if padded else None
    seen = ~masks.causal(6)[0] if causal else None
    expected, alpha = theirs(
        x, x, x, key_padding_mask=None if mask is None else ~mask, attn_mask=seen, average_attn_weights=False
    )
    fused, none = ours(x, mask=mask, causal=causal)
    written, weights = ours(x, mask=mask, causal=causal, weights=True)
    assert none is None
    expected_gradients = gradients(
        expected, theirs, x
    )  # both list the packed projection first, then the output's
    for got in (fused, written):
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
        for a, b in zip(gradients(got, ours, x), expected_gradients, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10)
    torch.testing.assert_close(weights, alpha, rtol=0, atol=1e-10)


def test_cross_attention_equals_pytorch(pair: tuple[MultiHead, nn.MultiheadAttention]) -> None:
    ours, theirs = pair
    query = torch.randn(2, 3, WIDTH, dtype=torch.float64)
    keys = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    values = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([5, 2]), 5)
    for v in (None, values):
        expected, _ = theirs(query, keys, keys if v is None else v, key_padding_mask=~mask)
        torch.testing.assert_close(ours(query, keys, mask, v)[0], expected, rtol=0, atol=1e-10)


def test_one_head_by_hand() -> None:
    """Identity projections and one head: softmax(x xᵀ/√2) x."""
    attention = MultiHead(2, 1).double()
    attention.inward.weight.data = torch.eye(2, dtype=torch.float64).repeat(3, 1)
    attention.outward.weight.data = torch.eye(2, dtype=torch.float64)
    x = torch.tensor([[[1.0, 0.0], [0.0, 2.0]]], dtype=torch.float64)
    e = torch.tensor([1.0, 4.0], dtype=torch.float64).div(2**0.5).exp()  # exp of the diagonal scores
    alpha = torch.tensor([[e[0], 1.0], [1.0, e[1]]], dtype=torch.float64)
    alpha = alpha / alpha.sum(-1, keepdim=True)
    out, weights = attention(x, weights=True)
    torch.testing.assert_close(weights[0, 0], alpha)
    torch.testing.assert_close(out[0], alpha @ x[0])


def test_recording_takes_the_written_out_path_and_changes_nothing() -> None:
    attention = MultiHead(WIDTH, HEADS).double()
    x = torch.randn(2, 4, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([4, 2]), 4)
    fused, _ = attention(x, mask=mask)
    with inside.record() as notes:
        recorded, none = attention(x, mask=mask)
    assert none is None
    torch.testing.assert_close(recorded, fused, rtol=0, atol=1e-12)
    (weights,) = [note.value for note in notes if note.name == "weights"]
    assert weights.shape == (2, HEADS, 4, 4)
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, HEADS, 4, dtype=torch.float64))
    assert (weights[1, :, :, 2:] == 0).all()


@pytest.mark.parametrize("recording", [False, True])
@pytest.mark.parametrize("positions", [None, Alibi(HEADS)])
def test_a_row_with_nothing_to_see(recording: bool, positions: Alibi | None) -> None:
    attention = MultiHead(WIDTH, HEADS, positions=positions)
    x = torch.randn(2, 4, WIDTH, requires_grad=True)
    out, _ = attention(x, mask=masks.padding(torch.tensor([0, 3]), 4), weights=recording)
    assert torch.equal(out[0], attention.outward.bias.expand_as(out[0]))
    out.square().sum().backward()
    for tensor in (x, *attention.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("positions", [None, Rotary(), Alibi(HEADS)])
def test_steps_equal_the_whole(positions: nn.Module | None) -> None:
    attention = MultiHead(WIDTH, HEADS, positions=positions).double()
    x = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    whole, _ = attention(x, causal=True)
    past, steps = None, []
    for now in x.split(1, 1):
        out, past = attention.step(now, past)
        steps.append(out)
    torch.testing.assert_close(torch.cat(steps, 1), whole, rtol=0, atol=1e-12)
    assert past is not None
    assert past.keys.shape == (3, HEADS, 5, WIDTH // HEADS)
    assert torch.equal(past.select(torch.tensor([2, 2])).keys, past.keys[[2, 2]])


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    attention = MultiHead(WIDTH, HEADS)
    x = torch.randn(2, 5, WIDTH)
    mask = masks.padding(torch.tensor([5, 3]), 5)
    out, _ = attention(x, mask=mask)
    other = x.clone()
    other[0], other[1, 3:] = 100.0, -100.0
    assert torch.equal(attention(other, mask=mask)[0][1, :3], out[1, :3])
    torch.testing.assert_close(attention(x[1:, :3])[0][0], out[1, :3])


def test_without_positions_a_permuted_input_gives_the_permuted_output() -> None:
    """ "Man eats small dinosaur": self-attention sees a set."""
    attention = MultiHead(WIDTH, HEADS).double()
    x = torch.randn(1, 4, WIDTH, dtype=torch.float64)
    order = torch.tensor([3, 1, 0, 2])
    torch.testing.assert_close(attention(x[:, order])[0], attention(x)[0][:, order], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", [Rotary(), Alibi(HEADS)])
def test_relative_positions_see_order_but_not_place(positions: nn.Module) -> None:
    attention = MultiHead(WIDTH, HEADS, positions=positions).double()
    x = torch.randn(1, 4, WIDTH, dtype=torch.float64)
    order = torch.tensor([3, 1, 0, 2])
    assert not torch.allclose(attention(x[:, order])[0], attention(x)[0][:, order])
    padded = torch.cat(
        (torch.zeros(1, 3, WIDTH, dtype=torch.float64), x), 1
    )  # the same words, three places on
    mask = torch.tensor([[False] * 3 + [True] * 4])
    torch.testing.assert_close(attention(padded, mask=mask)[0][:, 3:], attention(x)[0], rtol=0, atol=1e-12)


def test_the_fused_and_written_products_agree_with_every_mask() -> None:
    q, k, v = (torch.randn(2, HEADS, 4, 3, dtype=torch.float64) for _ in range(3))
    bias = torch.randn(HEADS, 4, 4, dtype=torch.float64)
    mask = masks.padding(torch.tensor([4, 2]), 4)[:, None, None]
    for m in (None, mask):
        for b in (None, bias):
            for causal in (False, True):
                fused, _ = scaled_dot(q, k, v, m, bias=b, causal=causal)
                written, _ = scaled_dot(q, k, v, m, bias=b, causal=causal, weights=True)
                torch.testing.assert_close(fused, written, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 3, 20])
@pytest.mark.parametrize("length", [1, 6, 7])
def test_a_window_equals_its_mask(window: int, causal: bool, length: int) -> None:
    """Block by block, written out while recorded, and step by step: what a mask on everything gives."""
    near, full = (MultiHead(WIDTH, HEADS, window=w).double() for w in (window, None))
    near.load_state_dict(full.state_dict())
    x = torch.randn(3, length, WIDTH, dtype=torch.float64, requires_grad=True)
    padding = masks.padding(torch.tensor([length, max(1, length - 2), 0]), length)
    for mask in (None, padding):
        allowed = masks.join(masks.window(length, window, 0 if causal else window), mask)
        expected, alpha = full(x, mask=allowed, weights=True)
        got, _ = near(x, mask=mask, causal=causal)
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-12)
        torch.testing.assert_close(
            near(x, mask=mask, causal=causal, weights=True)[1], alpha, rtol=0, atol=1e-12
        )
        assert expected.requires_grad
        for a, b in zip(gradients(got, near, x), gradients(expected, full, x), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)
    past = None
    for t, now in enumerate(x.split(1, 1)):
        out, past = near.step(now, past)
        torch.testing.assert_close(out[:, 0], near(x, causal=True)[0][:, t], rtol=0, atol=1e-12)


def test_a_window_with_alibi_and_with_a_mask_per_query() -> None:
    attention = MultiHead(WIDTH, HEADS, window=1, positions=Alibi(HEADS)).double()
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    _, weights = attention(x, weights=True)
    assert torch.equal(weights > 0, masks.window(5, 1, 1)[:, None].expand_as(weights))
    _, weights = attention(x, mask=masks.window(5, 0, 4), weights=True)
    assert torch.equal(weights > 0, masks.window(5, 0, 1)[:, None].expand_as(weights))


def test_dropout_acts_on_weights_in_training_only() -> None:
    attention = MultiHead(WIDTH, HEADS, dropout=0.5)
    x = torch.randn(2, 4, WIDTH)
    assert not torch.equal(attention(x)[0], attention(x)[0])
    attention.eval()
    assert torch.equal(attention(x)[0], attention(x)[0])


@pytest.mark.parametrize("window", [None, 2])
def test_a_sequence_without_places_gives_one_without_places(window: int | None) -> None:
    attention = MultiHead(8, 2, window=window)
    out, weights = attention(torch.randn(3, 0, 8), weights=True)
    assert out.shape == (3, 0, 8)
    assert weights is not None
    assert weights.shape == (3, 2, 0, 0)
    assert attention(torch.randn(3, 0, 8), causal=True)[0].shape == (3, 0, 8)


def test_refusals() -> None:
    with pytest.raises(ValueError, match="0 does not divide 8"):
        MultiHead(8, 0)
    with pytest.raises(ValueError, match="window is a number of places on either side, not -1"):
        MultiHead(8, 2, window=-1)
    with pytest.raises(ValueError, match=r"has 2 heads, but its Alibi has 4: make it Alibi\(2\)"):
        MultiHead(8, 2, positions=Alibi(4))
    with pytest.raises(ValueError, match="at least one head"):
        Alibi(0)
    with pytest.raises(ValueError, match="3 does not divide 8"):
        MultiHead(8, 3)
    with pytest.raises(ValueError, match="its own sequence"):
        MultiHead(8, 2, positions=Rotary())(torch.zeros(1, 2, 8), torch.zeros(1, 3, 8))
