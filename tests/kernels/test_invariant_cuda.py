"""On a GPU a row has the same bits in every batch, however far the batch is padded, in every precision."""

from __future__ import annotations

import copy
import math
from contextlib import nullcontext

import pytest
import torch
from test_invariant import CALLS
from torch.nn import functional as F

from anaphora import nn
from anaphora.ops.invariant import batch_invariant

pytestmark = pytest.mark.cuda
CUDA = torch.device("cuda")
TYPES = {"ieee": torch.float32, "tf32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
CLOSE = {"ieee": 1e-4, "tf32": 5e-2, "bf16": 1e-1, "fp16": 2e-2}


@pytest.fixture(params=TYPES)
def precision(request, monkeypatch):
    """Products of float32 numbers are exact or shortened as torch's switches say."""
    kind = "tf32" if request.param == "tf32" else "ieee"
    monkeypatch.setattr(torch.backends.cuda.matmul, "fp32_precision", kind)
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", kind == "tf32")  # of convolutions
    return request.param


def drawn(*shape, precision="ieee"):
    return torch.randn(*shape, device="cuda").to(TYPES[precision])


def alone_and_together(call, x, sizes=(1, 7, 64, 256)):
    """``call`` of all rows, and that the rows of parts of them have the same bits."""
    with torch.no_grad(), batch_invariant(CUDA):
        whole = call(x)
        for size in sizes:
            for begin in (0, 3, x.shape[0] - size):
                part = call(x[begin : begin + size])
                assert torch.equal(part, whole[begin : begin + size])
    return whole


@pytest.mark.parametrize("shape", [(33, 70), (128, 256), (512, 1000), (1, 1)])
def test_products_of_rows(precision, shape):
    depth, columns = shape
    x = drawn(300, depth, precision=precision)
    w, b = drawn(columns, depth, precision=precision), drawn(columns, precision=precision)
    found = alone_and_together(lambda x: F.linear(x, w, b), x)
    torch.testing.assert_close(found, F.linear(x, w, b), atol=CLOSE[precision] * math.sqrt(depth), rtol=1e-2)
    if (
        depth == 1
    ):  # a single product and the bias are rounded once where they are fused, and twice where they are not
        return
    with torch.no_grad(), batch_invariant(CUDA):
        # Whichever function is called, and however the rows lie in memory.
        turned = x.view(3, 100, depth).transpose(0, 1)
        assert torch.equal(F.linear(turned, w, b), found.view(3, 100, columns).transpose(0, 1))
        assert torch.equal(torch.addmm(b, x, w.t()), found)
        assert torch.equal(x.unsqueeze(1) @ w.t() + b, found.unsqueeze(1))
        assert torch.equal(
            torch.bmm(x.view(3, 100, depth), w.t().expand(3, -1, -1)) + b, found.view(3, 100, -1)
        )


def test_products_over_a_padded_depth(precision):
    """Σ_k α_k v_k where what is padded has the weight 0."""
    alpha, values = drawn(5, 9, 40, precision=precision), drawn(5, 40, 24, precision=precision)
    wide = torch.cat([alpha, torch.zeros_like(alpha)], 2)
    with torch.no_grad(), batch_invariant(CUDA):
        found = alpha @ values
        assert torch.equal(found, wide @ torch.cat([values, values], 1))
        assert torch.equal(found[2:3], alpha[2:3] @ values[2:3])


@pytest.mark.parametrize("name", ["softmax", "log_softmax", "logsumexp", "sum", "mean"])
@pytest.mark.parametrize("width", [5, 64, 5003])
def test_sums_over_rows(precision, name, width):
    x = drawn(260, width, precision=precision)
    call = lambda x: getattr(torch, name)(x, -1)  # noqa: E731
    found = alone_and_together(call, x)
    torch.testing.assert_close(
        found, call(x), atol=1e-2 if precision in ("bf16", "fp16") else 1e-4, rtol=1e-2
    )
    if name != "mean":
        nothing = 0.0 if name == "sum" else -math.inf
        padded = F.pad(x, (0, 77), value=nothing)
        with torch.no_grad(), batch_invariant(CUDA):
            again = call(padded)
        assert torch.equal(again[..., :width] if again.dim() == 2 else again, found)


def test_sums_over_time_and_norms(precision):
    x = drawn(260, 12, 48, precision=precision)
    found = alone_and_together(lambda x: x.sum(1), x)
    with torch.no_grad(), batch_invariant(CUDA):
        assert torch.equal(F.pad(x, (0, 0, 0, 30)).sum(1), found)
    norm = torch.nn.LayerNorm(48, device="cuda", dtype=TYPES[precision])
    alone_and_together(norm, x)
    groups = torch.nn.GroupNorm(3, 12, device="cuda", dtype=TYPES[precision])
    alone_and_together(groups, x)


@pytest.mark.parametrize("width", [16, 20, 64])
def test_attention(precision, width):
    q, k, v = (drawn(260, 2, 40, width, precision=precision) for _ in range(3))
    real = torch.arange(40, device="cuda") < torch.arange(1, 261, device="cuda")[:, None] % 40 + 1
    mask = real[:, None, None]

    def call(rows):
        return F.scaled_dot_product_attention(q[rows], k[rows], v[rows], attn_mask=mask[rows])

    found = alone_and_together(call, torch.arange(260, device="cuda"))
    torch.testing.assert_close(found, call(slice(None)), atol=CLOSE[precision], rtol=1e-2)
    with torch.no_grad(), batch_invariant(CUDA):
        for row in (0, 11, 38):  # as long as it is, and padded beyond a block of keys
            length = (row + 1) % 40 + 1
            short = F.scaled_dot_product_attention(
                q[row : row + 1], k[row : row + 1, :, :length], v[row : row + 1, :, :length]
            )
            assert torch.equal(short, found[row : row + 1])
        far = [F.pad(t, (0, 0, 0, 100)) for t in (k, v)]
        assert torch.equal(F.scaled_dot_product_attention(q, *far, attn_mask=F.pad(mask, (0, 100))), found)
    alone_and_together(
        lambda rows: F.scaled_dot_product_attention(q[rows], k[rows], v[rows], is_causal=True),
        torch.arange(260, device="cuda"),
    )


def test_convolutions(precision):
    line, picture = drawn(260, 8, 30, precision=precision), drawn(260, 3, 16, 16, precision=precision)
    one = torch.nn.Conv1d(8, 12, 3, stride=2, padding=1, device="cuda", dtype=TYPES[precision])
    two = torch.nn.Conv2d(3, 8, 4, stride=2, padding=1, device="cuda", dtype=TYPES[precision])
    alone_and_together(one, line)
    alone_and_together(two, picture)
    with torch.no_grad(), batch_invariant(CUDA):
        assert torch.equal(one(F.pad(line, (0, 50)))[..., :14], one(line)[..., :14])


@pytest.mark.parametrize("name", CALLS)
@torch.no_grad()
def test_the_programs_compute_what_torch_computes(name, monkeypatch):
    import test_invariant

    for key, value in list(vars(test_invariant).items()):
        if isinstance(value, torch.Tensor):
            monkeypatch.setattr(test_invariant, key, value.cuda())
        if isinstance(value, torch.nn.Module):
            monkeypatch.setattr(test_invariant, key, copy.deepcopy(value).cuda())
    with torch.device("cuda"):
        wanted = CALLS[name]()
        with batch_invariant(CUDA):
            found = CALLS[name]()
    torch.testing.assert_close(found, wanted, atol=1e-4, rtol=1e-4)


def test_of_equal_numbers_the_first_are_taken_in_every_batch():
    x = torch.randint(0, 4, (300, 9000), device="cuda").to(torch.bfloat16)
    places = alone_and_together(lambda x: x.topk(6).indices, x)
    assert (places.diff() > 0).all()


CELLS = {"lstm": nn.LSTM, "gru": lambda i, h: nn.GRU(i, h, reset="after"), "elman": nn.Elman}
WAYS = {"exact": (False, None), "tf32": (True, None), "bf16": (True, torch.bfloat16)}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hidden", [48, 320])
@pytest.mark.parametrize("cell", CELLS)
def test_recurrent_layers(cell, hidden, way, monkeypatch):
    """Both directions, two layers, ragged rows; also where a batch is padded further."""
    shorten, half = WAYS[way]
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", shorten)
    layer = nn.Recurrent(CELLS[cell](24, hidden), layers=2, bidirectional=True).cuda().eval()
    x, lengths = drawn(150, 33, 24), torch.randint(1, 34, (150,), device="cuda")
    with torch.no_grad(), batch_invariant(CUDA), torch.autocast("cuda", half) if half else nullcontext():
        for _ in range(3):  # a backend may take another way once it has seen a shape
            y, last = layer(x, lengths)
        for begin, size in ((0, 1), (5, 1), (5, 7), (80, 64), (149, 1)):
            rows = slice(begin, begin + size)
            longest = int(lengths[rows].max())
            part, ends = layer(x[rows, :longest], lengths[rows])
            assert torch.equal(part, y[rows, :longest])
            for mine, all_of_them in zip(ends, last, strict=True):
                assert torch.equal(mine, all_of_them[:, rows])


@pytest.mark.parametrize("half", [None, torch.bfloat16])
def test_single_steps_before_and_after_they_are_captured(half):
    layer = nn.Recurrent(nn.LSTM(24, 64), layers=2).cuda().eval()
    x = drawn(150, 24)
    with torch.no_grad(), batch_invariant(CUDA), torch.autocast("cuda", half) if half else nullcontext():
        found = []
        for rows in (150, 7, 1):
            state = layer.initial_state(rows, x)
            ys = []
            for _ in range(6):
                y, state = layer.step(x[:rows], state)
                ys.append(y.float())
            found.append(torch.stack(ys))
    for some in found[1:]:
        assert torch.equal(some, found[0][:, : some.shape[1]])


def test_a_captured_graph_holds_the_programs():
    x, w = drawn(5, 64), drawn(100, 64)
    with torch.no_grad(), batch_invariant(CUDA):
        wanted = F.linear(x, w).log_softmax(-1)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            made = F.linear(x, w).log_softmax(-1)
        graph.replay()
        assert torch.equal(made, wanted)
