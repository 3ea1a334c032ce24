"""The blocks on a GPU: the fused kernels there are others, so what is promised is checked again."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from anaphora.nn import CRF, DecoderLayer, FeedForward, TransformerDecoder
from anaphora.nn.attention import MultiHead, masks
from anaphora.nn.positions import Alibi, Rotary

pytestmark = pytest.mark.cuda
WIDTH, HEADS = 64, 4
PADDING = torch.tensor([17, 9, 1, 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("positions", [None, Rotary(), Alibi(HEADS)])
def test_fused_equals_written_out_and_empty_rows_are_zero(
    dtype: torch.dtype, causal: bool, positions: nn.Module | None
) -> None:
    attention = MultiHead(WIDTH, HEADS, positions=copy.deepcopy(positions)).to("cuda", dtype)
    x = torch.randn(4, 17, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
    mask = masks.padding(PADDING.cuda(), 17)
    fused, _ = attention(x, mask=mask, causal=causal)
    written, weights = attention(x, mask=mask, causal=causal, weights=True)
    tolerance = 1e-5 if dtype == torch.float32 else 3e-2
    torch.testing.assert_close(fused, written, rtol=0, atol=tolerance)
    assert torch.equal(fused[3], attention.outward.bias.expand_as(fused[3]))
    assert (weights[1, :, :, 9:] == 0).all()
    fused.float().square().sum().backward()
    for tensor in (x, *attention.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_within_a_window_places_that_see_nothing_are_zero(dtype: torch.dtype, causal: bool) -> None:
    near = MultiHead(WIDTH, HEADS, window=2).to("cuda", dtype)
    x = torch.randn(4, 17, WIDTH, device="cuda", dtype=dtype, requires_grad=True)
    mask = masks.padding(PADDING.cuda(), 17)
    fused, _ = near(x, mask=mask, causal=causal)
    written, _ = near(x, mask=mask, causal=causal, weights=True)
    torch.testing.assert_close(fused, written, rtol=0, atol=1e-5 if dtype == torch.float32 else 3e-2)
    assert torch.equal(fused[3], near.outward.bias.expand_as(fused[3]))
    fused.float().square().sum().backward()
    for tensor in (x, *near.parameters()):
        assert tensor.grad is not None
        assert tensor.grad.isfinite().all()


def test_the_same_as_on_the_cpu() -> None:
    layer = DecoderLayer(
        MultiHead(WIDTH, HEADS), MultiHead(WIDTH, HEADS), FeedForward(WIDTH, 128), norm_first=True
    )
    here = TransformerDecoder(layer, 2)
    there = copy.deepcopy(here).cuda()
    x, memory, mask = (
        torch.randn(3, 7, WIDTH),
        torch.randn(3, 9, WIDTH),
        masks.padding(torch.tensor([9, 4, 1]), 9),
    )
    expected = here(x, memory, mask)
    got = there(x.cuda(), memory.cuda(), mask.cuda())
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=1e-4)
    expected.sin().sum().backward()
    got.sin().sum().backward()
    for a, b in zip(there.parameters(), here.parameters(), strict=True):
        assert a.grad is not None
        torch.testing.assert_close(a.grad.cpu(), b.grad, rtol=1e-3, atol=1e-3)


def test_decoding_never_waits_for_the_host() -> None:
    layer = DecoderLayer(MultiHead(WIDTH, HEADS), MultiHead(WIDTH, HEADS), FeedForward(WIDTH, 128))
    decoder = TransformerDecoder(layer, 2).cuda()
    memory, x = torch.randn(2, 9, WIDTH, device="cuda"), torch.randn(6, WIDTH, device="cuda")
    mask = masks.padding(torch.tensor([9, 4], device="cuda"), 9)
    rows = torch.tensor([0, 0, 0, 1, 1, 1], device="cuda")
    with torch.no_grad():
        decoder.step(x, decoder.start(memory, mask).select(rows))  # kernels are loaded, once
        torch.cuda.set_sync_debug_mode("error")
        try:
            cache = decoder.start(memory, mask).select(rows)
            for _ in range(3):
                _, cache = decoder.step(x, cache)
                cache = cache.select(rows)
        finally:
            torch.cuda.set_sync_debug_mode("default")


def test_crf() -> None:
    here = CRF(7)
    there = copy.deepcopy(here).cuda()
    emissions, tags, lengths = (
        torch.randn(5, 12, 7),
        torch.randint(7, (5, 12)),
        torch.tensor([12, 7, 3, 1, 0]),
    )
    expected, got = here(emissions, tags, lengths), there(emissions.cuda(), tags.cuda(), lengths.cuda())
    torch.testing.assert_close(got.cpu(), expected, rtol=0, atol=1e-4)
    got.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(there.transitions.grad.cpu(), here.transitions.grad, rtol=0, atol=1e-4)
    assert torch.equal(
        there.viterbi(emissions.cuda(), lengths.cuda())[0].cpu(), here.viterbi(emissions, lengths)[0]
    )
    for a, b in zip(
        there.k_best(emissions.cuda(), 3, lengths.cuda()), here.k_best(emissions, 3, lengths), strict=True
    ):
        torch.testing.assert_close(a.cpu(), b, rtol=0, atol=1e-4)
