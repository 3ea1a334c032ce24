"""Stacks of encoder layers as one call on a CPU: the numbers of the layers one by one, and none of padding."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Alibi, Rotary
from anaphora.nn.transformer import EncoderLayer, FeedForward, SwiGLU, TransformerEncoder, compiled, norm_of
from anaphora.ops import packed

pytestmark = pytest.mark.skipif(packed.library.functions() is None, reason="needs a C compiler")
WIDTH, HEADS = 32, 4
TANH = partial(F.gelu, approximate="tanh")


def stack(
    *, attention: dict[str, Any] | None = None, feedforward: Any = None, **more: Any
) -> TransformerEncoder:
    torch.manual_seed(0)
    own = MultiHead(WIDTH, HEADS, **(attention or {}))
    made = TransformerEncoder(EncoderLayer(own, feedforward or FeedForward(WIDTH, 40), **more), 3).eval()
    with torch.no_grad():
        for weight in made.parameters():
            weight += 0.1 * torch.randn_like(weight)
    return made


STACKS: dict[str, Any] = {
    "BERT": {"feedforward": FeedForward(WIDTH, 40, activation=F.gelu)},
    "GPT-2": {"feedforward": FeedForward(WIDTH, 40, activation=TANH), "norm_first": True},
    "NeoX": {
        "attention": {"positions": Rotary(share=0.5)},
        "feedforward": FeedForward(WIDTH, 48, activation=F.gelu),
        "norm_first": True,
        "parallel": True,
    },
    "Llama": {
        "attention": {"positions": Rotary(base=500.0), "kv_heads": 2, "bias": False, "outward_bias": False},
        "feedforward": SwiGLU(WIDTH, 24),
        "norm_first": True,
        "norm": norm_of("rms", 1e-6),
    },
    "as published": {},
}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("name", STACKS)
def test_equals_the_layers_one_by_one(name: str, causal: bool) -> None:
    encoder = stack(**copy.deepcopy(STACKS[name]))
    lengths = torch.tensor([7, 1, 50, 33])
    mask = torch.arange(50) < lengths[:, None]
    x = torch.randn(4, 50, WIDTH)
    expected = encoder(x, mask, causal=causal).detach()  # with gradient, so layer by layer
    with torch.no_grad():
        assert compiled.whole_stack(encoder.layers, x, mask, causal) is not None
        found = encoder(x, mask, causal=causal)
        alone = encoder(x[2:3], causal=causal)
    assert torch.allclose(found[mask], expected[mask], atol=2e-5)
    assert torch.equal(found[2], alone[0])  # to the last bit, whatever stands beside it
    double = encoder.double()(x.double(), mask, causal=causal).detach()
    ours, theirs = ((each.double() - double)[mask].abs().max() for each in (found, expected))
    assert ours <= 2 * theirs + 2e-6


def test_changed_weights_are_seen() -> None:
    encoder, x = stack(), torch.randn(1, 5, WIDTH)
    with torch.no_grad():
        before = encoder(x)
        encoder.layers[1].feedforward.second.weight.mul_(2)
        after = encoder(x)
    assert not torch.allclose(before, after)
    assert torch.allclose(after, encoder(x).detach(), atol=1e-5)


def test_what_is_asked_for_inside_is_computed_layer_by_layer() -> None:
    encoder, x = stack(), torch.randn(1, 5, WIDTH)
    with torch.no_grad():
        assert compiled.whole_stack(encoder.layers, x, None, False) is not None
        with inside.record():
            assert compiled.whole_stack(encoder.layers, x, None, False) is None
        holes = torch.tensor([[True, False, True, True, True]])
        assert compiled.whole_stack(encoder.layers, x, holes, False) is None
        assert compiled.whole_stack(encoder.layers, x.double(), None, False) is None
        handle = encoder.layers[0].attention.register_forward_hook(lambda *_: None)
        assert compiled.whole_stack(encoder.layers, x, None, False) is None
        handle.remove()
    assert compiled.whole_stack(encoder.layers, x, None, False) is None  # a gradient may be asked for
    with torch.no_grad():
        assert (
            compiled.whole_stack(stack(attention={"positions": Alibi(HEADS)}).layers, x, None, False) is None
        )
        assert compiled.whole_stack(stack(attention={"window": 2}).layers, x, None, False) is None
        assert compiled.whole_stack(stack(norm=nn.Identity).layers, x, None, False) is None
        assert compiled.whole_stack(encoder.train().layers, x, None, False) is None


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_change_no_bit(threads: int) -> None:
    encoder, x = stack(**copy.deepcopy(STACKS["BERT"])), torch.randn(5, 100, WIDTH)
    before = torch.get_num_threads()
    with torch.no_grad():
        torch.set_num_threads(1)
        try:
            one, single = encoder(x), encoder(x[:1])
            torch.set_num_threads(threads)
            assert torch.equal(encoder(x), one)
            assert torch.equal(encoder(x[:1]), single)
        finally:
            torch.set_num_threads(before)


def test_inputs_whose_numbers_lie_apart_in_memory_are_read() -> None:
    encoder = stack()
    x = torch.randn(1, WIDTH, 9).transpose(1, 2)  # as a convolution gives them: channels first
    with torch.no_grad():
        assert torch.equal(encoder(x), encoder(x.contiguous()))
