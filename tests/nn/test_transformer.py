"""Transformer layers and stacks: equal to PyTorch's layers, and step by step equal to all at once."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import MultiHead, masks
from anaphora.nn.positions import Alibi, Rotary
from anaphora.nn.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    SwiGLU,
    TransformerDecoder,
    TransformerEncoder,
    norm_of,
)

WIDTH, HEADS, INNER = 8, 2, 12


def encoder_layer(
    norm_first: bool = False, activation: str = "relu", positions: nn.Module | None = None
) -> EncoderLayer:
    return EncoderLayer(
        MultiHead(WIDTH, HEADS, positions=positions),
        FeedForward(WIDTH, INNER, activation=getattr(F, activation)),
        norm_first=norm_first,
    ).double()


def decoder_layer(norm_first: bool = False, activation: str = "relu") -> DecoderLayer:
    return DecoderLayer(
        MultiHead(WIDTH, HEADS),
        MultiHead(WIDTH, HEADS),
        FeedForward(WIDTH, INNER, activation=getattr(F, activation)),
        norm_first=norm_first,
    ).double()


ATTENTION = {
    "in_proj_weight": "inward.weight",
    "in_proj_bias": "inward.bias",
    "out_proj.weight": "outward.weight",
    "out_proj.bias": "outward.bias",
}


def names(decoder: bool) -> dict[str, str]:
    """PyTorch's parameter names -> ours."""
    table = {f"self_attn.{theirs}": f"attention.{ours}" for theirs, ours in ATTENTION.items()}
    around = ["around_attention", "around_feedforward"]
    if decoder:
        table |= {f"multihead_attn.{theirs}": f"cross_attention.{ours}" for theirs, ours in ATTENTION.items()}
        around.insert(1, "around_cross_attention")
    for kind in ("weight", "bias"):
        table |= {
            f"linear1.{kind}": f"feedforward.first.{kind}",
            f"linear2.{kind}": f"feedforward.second.{kind}",
        }
        table |= {f"norm{i}.{kind}": f"{name}.norm.{kind}" for i, name in enumerate(around, 1)}
    return table


def copy_weights(ours: nn.Module, theirs: nn.Module, table: dict[str, str]) -> None:
    for weight in theirs.parameters():
        nn.init.normal_(weight, std=0.5)
    given = theirs.state_dict()
    assert set(given) == set(table)
    ours.load_state_dict({table[name]: value for name, value in given.items()})


def assert_same(
    got: Tensor,
    expected: Tensor,
    inputs: list[Tensor],
    ours: nn.Module,
    theirs: nn.Module,
    table: dict[str, str],
) -> None:
    """Outputs and all gradients, at the places that are real."""
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)
    our, their = dict(ours.named_parameters()), dict(theirs.named_parameters())
    a = torch.autograd.grad(got.sin().sum(), [*inputs, *(our[name] for name in table.values())])
    b = torch.autograd.grad(expected.sin().sum(), [*inputs, *(their[name] for name in table)])
    for x, y in zip(a, b, strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=1e-10)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
@pytest.mark.parametrize("causal", [False, True])
def test_encoder_layer_equals_pytorch(norm_first: bool, activation: str, causal: bool) -> None:
    theirs = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    ours, table = encoder_layer(norm_first, activation), names(decoder=False)
    copy_weights(ours, theirs, table)
    x = torch.randn(3, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = masks.padding(torch.tensor([5, 3, 1]), 5)
    expected = theirs(x, src_mask=~masks.causal(5)[0] if causal else None, src_key_padding_mask=~mask)
    got = ours(x, mask, causal=causal)
    assert_same(got[mask], expected[mask], [x], ours, theirs, table)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_decoder_layer_equals_pytorch(norm_first: bool, activation: str) -> None:
    theirs = nn.TransformerDecoderLayer(
        WIDTH, HEADS, INNER, 0.0, activation, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    ours, table = decoder_layer(norm_first, activation), names(decoder=True)
    copy_weights(ours, theirs, table)
    x = torch.randn(3, 4, WIDTH, dtype=torch.float64, requires_grad=True)
    memory = torch.randn(3, 5, WIDTH, dtype=torch.float64, requires_grad=True)
    mask, memory_mask = masks.padding(torch.tensor([4, 2, 1]), 4), masks.padding(torch.tensor([5, 3, 1]), 5)
    expected = theirs(
        x,
        memory,
        tgt_mask=~masks.causal(4)[0],
        tgt_key_padding_mask=~mask,
        memory_key_padding_mask=~memory_mask,
    )
    # Without a mask of its own: padding comes after the places that count, which never look ahead.
    for own in (None, mask):
        got = ours(x, memory, memory_mask, own)
        torch.testing.assert_close(got[mask], expected[mask], rtol=0, atol=1e-10)
    assert_same(got[mask], expected[mask], [x, memory], ours, theirs, table)


@pytest.mark.parametrize("norm_first", [False, True])
def test_stack_equals_pytorchs(norm_first: bool) -> None:
    stack = TransformerEncoder(encoder_layer(norm_first), 3).double()
    one = nn.TransformerEncoderLayer(
        WIDTH, HEADS, INNER, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64
    )
    norm = nn.LayerNorm(WIDTH, dtype=torch.float64) if norm_first else None
    theirs = nn.TransformerEncoder(one, 3, norm, enable_nested_tensor=False)
    for layer, their_layer in zip(stack.layers, theirs.layers, strict=True):
        copy_weights(layer, their_layer, names(decoder=False))
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([5, 2]), 5)
    torch.testing.assert_close(
        stack(x, mask)[mask], theirs(x, src_key_padding_mask=~mask)[mask], rtol=0, atol=1e-10
    )


def test_layers_of_a_stack_start_differently() -> None:
    layers = TransformerEncoder(encoder_layer(), 2).layers
    first, second = (dict(layer.named_parameters()) for layer in layers)
    assert not torch.equal(first["attention.inward.weight"], second["attention.inward.weight"])
    assert not torch.equal(first["feedforward.first.weight"], second["feedforward.first.weight"])
    bound = (6 / (4 * WIDTH)) ** 0.5  # Glorot, not the default of nn.Linear
    assert second["attention.inward.weight"].abs().max() > WIDTH**-0.5
    assert second["attention.inward.weight"].abs().max() <= bound
    assert (second["attention.inward.bias"] == 0).all()


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_steps_equal_the_whole(norm_first: bool) -> None:
    decoder = TransformerDecoder(decoder_layer(norm_first), 2).double()
    x = torch.randn(3, 4, WIDTH, dtype=torch.float64)
    memory = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([5, 3, 1]), 5)
    whole = decoder(x, memory, mask)
    cache = decoder.start(memory, mask)
    for t, now in enumerate(x.unbind(1)):
        assert cache.length == t
        out, cache = decoder.step(now, cache)
        torch.testing.assert_close(out, whole[:, t], rtol=0, atol=1e-12)


def test_decoder_cache_follows_its_rows() -> None:
    decoder = TransformerDecoder(decoder_layer(), 2).double()
    x = torch.randn(2, 2, WIDTH, dtype=torch.float64)
    memory = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([5, 3]), 5)
    rows = torch.tensor([1, 0, 1])
    _, cache = decoder.step(x[:, 0], decoder.start(memory, mask))
    moved, _ = decoder.step(x[rows, 1], cache.select(rows))
    torch.testing.assert_close(moved, decoder(x, memory, mask)[rows, 1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("positions", [None, Rotary(), Alibi(HEADS)])
def test_causal_encoder_steps_equal_the_whole(positions: nn.Module | None) -> None:
    encoder = TransformerEncoder(encoder_layer(norm_first=True, positions=positions), 2).double()
    x = torch.randn(3, 5, WIDTH, dtype=torch.float64)
    whole, past = encoder(x, causal=True), None
    for t, now in enumerate(x.unbind(1)):
        out, past = encoder.step(now, past)
        assert past.length == t + 1
        torch.testing.assert_close(out, whole[:, t], rtol=0, atol=1e-12)
    rows = torch.tensor([1, 1, 0])
    _, past = encoder.step(x[:, 0], None)
    out, _ = encoder.step(x[rows, 1], past.select(rows))
    torch.testing.assert_close(out, whole[rows, 1], rtol=0, atol=1e-12)


def test_padding_changes_nothing_for_the_other_places() -> None:
    encoder = TransformerEncoder(encoder_layer(True), 2).double()
    x = torch.randn(2, 5, WIDTH, dtype=torch.float64)
    mask = masks.padding(torch.tensor([5, 3]), 5)
    out = encoder(x, mask)
    spoilt = x.masked_fill(~mask[..., None], 1e3)
    assert torch.equal(encoder(spoilt, mask)[mask], out[mask])
    torch.testing.assert_close(encoder(x[1:, :3])[0], out[1, :3], rtol=0, atol=1e-12)


def test_swiglu_by_hand() -> None:
    """Width 1, inner 1: W₂ · (a σ(a)) · (V x) with a = W₁ x."""
    network = SwiGLU(1, 1)
    network.gated.weight.data = torch.tensor([[2.0], [3.0]])
    network.second.weight.data = torch.tensor([[5.0]])
    a = torch.tensor(2 * 0.5)
    expected = 5 * a * torch.sigmoid(a) * (3 * 0.5)
    torch.testing.assert_close(network(torch.tensor([0.5])), expected[None])


def test_states_of_every_layer_are_noted() -> None:
    encoder = TransformerEncoder(encoder_layer(), 2).double()
    x = torch.randn(1, 3, WIDTH, dtype=torch.float64)
    with inside.record() as notes:
        y = encoder(x)
    states = [note for note in notes if note.name == "states"]
    assert [note.module for note in states] == list(encoder.layers)
    assert torch.equal(states[-1].value, y)
    assert sum(note.name == "weights" for note in notes) == 2


def test_norms_by_hand_and_by_name_alone() -> None:
    x = torch.tensor([[1.0, 3.0]])
    assert norm_of("layer", 0.0)(2)(x).tolist() == [[-1.0, 1.0]]
    torch.testing.assert_close(norm_of("rms", 0.0)(2)(x), x / 5**0.5)
    with pytest.raises(ValueError, match="kind must be 'layer' or 'rms', got 'Layer'"):
        norm_of("Layer", 0.0)  # type: ignore[arg-type]


def test_a_stack_of_no_layers_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one layer, not 0"):
        TransformerEncoder(encoder_layer(), 0)
