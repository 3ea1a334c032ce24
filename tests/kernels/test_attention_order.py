"""Which attention kernel comes first: torch's order is left alone wherever nothing was measured."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

from anaphora.ops.attention import LONG, attend, quickest_attention


def _order() -> list[int]:
    return torch._C._get_sdp_priority_order()


def test_a_cpu_and_short_sequences_keep_the_order() -> None:
    before = _order()
    with quickest_attention(4 * LONG, torch.device("cpu")):
        assert _order() == before
    assert _order() == before


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_long_sequences_on_a_gpu_give_the_same_numbers() -> None:
    device = torch.device("cuda")
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 4, LONG, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    exact = F.scaled_dot_product_attention(q.double(), k.double(), v.double(), is_causal=True)
    usual = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    before = _order()  # only now: torch itself changes the order at its first call on a Hopper GPU
    with quickest_attention(LONG, device):
        found = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert _order() == before
    errors = [float((one.double() - exact).abs().max()) for one in (found, usual)]
    assert errors[0] < 2 * errors[1] + 1e-3


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")
def test_changing_shapes_do_without_plans_of_cudnn() -> None:
    """A plan takes 20 ms for each new shape; torch's own choice afterwards is what it was."""
    allowed = torch.backends.cuda.cudnn_sdp_enabled()
    q = torch.randn(3, 4, 17, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    mask = torch.rand(3, 1, 1, 17, device="cuda") < 0.9
    for given in (None, mask):
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as found:
            attend(q, q, q, given, dropout=0.1, causal=given is None, scale=None).sum().backward()
        assert not any("cudnn" in event.key for event in found.key_averages())
    assert torch.backends.cuda.cudnn_sdp_enabled() == allowed
