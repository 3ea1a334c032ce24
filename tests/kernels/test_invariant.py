"""What stands for torch's functions where no result may depend on the batch computes what torch computes."""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from anaphora.ops.invariant import active, batch_invariant, in_groups, paused
from invariant_plain import Watch, on_the_cpu  # noqa: F401

CPU = torch.device("cpu")
X, W, B = torch.randn(3, 5, 40), torch.randn(70, 40), torch.randn(70)
K = torch.randn(3, 9, 40)
QUERY, KEYS, VALUES = torch.randn(2, 3, 7, 20), torch.randn(2, 3, 30, 20), torch.randn(2, 3, 30, 24)
SEEN = torch.rand(2, 1, 1, 30) > 0.3
WIDE = torch.randn(2, 3, 6, 160)
NORM, GROUPS = torch.nn.LayerNorm(40), torch.nn.GroupNorm(2, 6)
LINE, PICTURE = torch.randn(2, 4, 11), torch.randn(2, 6, 8, 10)

CALLS = {
    "linear": lambda: F.linear(X, W, B),
    "linear without bias": lambda: F.linear(X[0, 0], W),
    "matmul": lambda: X @ W.t(),
    "matrix times vector": lambda: W @ X[0, 0],
    "vector times matrix": lambda: torch.matmul(X[0, 0], W.t()),
    "mm": lambda: X[0].mm(W.t()),
    "bmm": lambda: torch.bmm(X, K.transpose(1, 2)),
    "broadcast": lambda: X.unsqueeze(1) @ K.transpose(1, 2),
    "addmm": lambda: torch.addmm(B, X[0], W.t()),
    "addmm scaled": lambda: torch.addmm(torch.ones(5, 70), X[0], W.t(), beta=0.5, alpha=2.0),
    "baddbmm": lambda: torch.baddbmm(torch.ones(3, 5, 9), X, K.transpose(1, 2)),
    "float64": lambda: X.double() @ K.double().transpose(1, 2),
    "conv1d": lambda: F.conv1d(LINE, W[:6, :12].reshape(6, 4, 3), B[:6], stride=2, padding=1),
    "conv1d dilated, in groups": lambda: F.conv1d(LINE, W[:6, :6].reshape(6, 2, 3), dilation=2, groups=2),
    "conv2d": lambda: F.conv2d(
        PICTURE, torch.arange(5 * 96.0).sin().view(5, 6, 4, 4), stride=(2, 1), padding=(1, 2)
    ),
    "LayerNorm": lambda: NORM(X),
    "moments": lambda: torch.native_layer_norm(X, [40], None, None, 1e-5),
    "GroupNorm": lambda: GROUPS(PICTURE),
    "cross entropy": lambda: F.cross_entropy(X[0], torch.tensor([0, 3, 2, -100, 1]), reduction="none"),
    "einsum of a state": lambda: torch.einsum("bnd,bnde->bne", QUERY[:, :, 0], KEYS[:, :, :20]),
    "sum of all": lambda: X.sum(),
    "sum in numpy's words": lambda: torch.sum(input=X, axis=1, keepdims=True),
    "sum over two": lambda: X.sum((1, 2)),
    "sum in float64": lambda: X.sum(1, dtype=torch.float64),
    "attention": lambda: F.scaled_dot_product_attention(QUERY, KEYS, VALUES),
    "attention with a mask": lambda: F.scaled_dot_product_attention(QUERY, KEYS, VALUES, attn_mask=SEEN),
    "attention with a bias": lambda: F.scaled_dot_product_attention(
        QUERY, KEYS, VALUES, attn_mask=torch.where(SEEN, 0.5, -math.inf)
    ),
    "causal attention": lambda: F.scaled_dot_product_attention(
        QUERY, KEYS[:, :, :7], VALUES[:, :, :7], is_causal=True
    ),
    "attention of one head": lambda: F.scaled_dot_product_attention(QUERY[:, 0], KEYS[:, 0], VALUES[:, 0]),
    "attention of wide heads": lambda: F.scaled_dot_product_attention(
        WIDE, WIDE, WIDE, attn_mask=SEEN[..., :6], scale=0.3
    ),
    **{
        f"{name} over {dim}": call
        for dim in (-1, 1, 0)
        for name, call in {
            "softmax": lambda dim=dim: X.softmax(dim),
            "F.softmax": lambda dim=dim: F.softmax(X, dim, dtype=torch.float64),
            "log_softmax": lambda dim=dim: torch.log_softmax(X, dim),
            "logsumexp": lambda dim=dim: X.logsumexp(dim),
            "logsumexp kept": lambda dim=dim: torch.logsumexp(X, (dim,), keepdim=True),
            "sum": lambda dim=dim: X.sum(dim),
            "mean": lambda dim=dim: torch.mean(X, dim, keepdim=True),
            "var": lambda dim=dim: X.var(dim, keepdim=True, unbiased=False),
            "var corrected": lambda dim=dim: torch.var(X, dim),
        }.items()
    },
}


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("name", CALLS)
@torch.no_grad()
def test_the_replacement_computes_the_same(name):
    wanted = CALLS[name]()
    watch = Watch()
    with batch_invariant(CPU), watch:
        found = CALLS[name]()
    assert watch.by_programs
    assert not watch.found
    torch.testing.assert_close(found, wanted)


@pytest.mark.usefixtures("on_the_cpu")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@torch.no_grad()
def test_of_equal_numbers_topk_takes_the_first(dtype):
    x = torch.randint(-3, 3, (4, 50)).to(dtype)
    x[0, 7], x[1, 9] = math.inf, -math.inf
    values, places = torch.sort(x, dim=-1, descending=True, stable=True)
    with batch_invariant(CPU):
        best, where = x.topk(8)
        torch.testing.assert_close(x.t().topk(8, 0).indices, where.t())
    torch.testing.assert_close(best, values[:, :8])
    torch.testing.assert_close(where, places[:, :8])


@pytest.mark.usefixtures("on_the_cpu")
def test_gradients_pass_by_and_whole_numbers_too():
    weight = W.clone().requires_grad_()
    with batch_invariant(CPU):
        F.linear(X, weight).sum().backward()
        counted = torch.arange(6).view(2, 3).sum(1)
    torch.testing.assert_close(weight.grad, X.sum((0, 1)).expand(70, 40))
    assert counted.tolist() == [3, 12]


@pytest.mark.usefixtures("on_the_cpu")
def test_the_mode_ends_where_it_ends():
    with batch_invariant(CPU, wanted=False):
        assert not active()
    with batch_invariant(CPU):
        with batch_invariant(CPU), paused():
            assert not active()
        assert active()
    with contextlib.suppress(KeyError), batch_invariant(CPU):
        raise KeyError
    assert not active()
    with batch_invariant(torch.device("meta")):
        assert not active()


@pytest.mark.parametrize("batch", [1, 64, 150])
def test_groups_have_64_rows_and_give_back_what_is_real(batch):
    x, first, lengths = torch.randn(batch, 5, 3), torch.randn(batch, 2), torch.arange(batch)
    seen = []

    def run(steps, rows, initial, lengths):
        seen.append((steps[0].shape, rows, lengths.shape))
        return 2 * steps[0], (initial[0] + lengths[:, None],)

    y, (last,) = in_groups(run, (x,), (), (first,), lengths)
    assert seen == [(torch.Size((64, 5, 3)), (), torch.Size((64,)))] * -(-batch // 64)
    torch.testing.assert_close(y, 2 * x)
    torch.testing.assert_close(last, first + lengths[:, None])


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_the_programs_compute_the_same_in_tritons_interpreter():
    """In a process of its own: Triton reads this setting when it is imported."""
    here = Path(__file__).parent
    paths = os.pathsep.join([str(here), str(here.parent), os.environ.get("PYTHONPATH", "")])
    given = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": paths}
    command = [sys.executable, str(here / "invariant_interpreted.py")]
    done = subprocess.run(command, env=given, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
    errors = json.loads(done.stdout.splitlines()[-1])
    assert set(errors) == set(CALLS)
    assert max(errors.values()) < 1e-4, errors
