"""``Recurrent`` on a GPU."""

from __future__ import annotations

import pytest
import torch
from recurrent_peers import KINDS, LENGTHS, B, H, I, T, torch_layer

from anaphora import nn
from anaphora.kernels.recurrence.choose import force


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [*KINDS, "gru before", "layer norm"])
@pytest.mark.parametrize("ragged", [False, True])
def test_cuda_equals_cpu(kind: str, ragged: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # as exact as on the CPU
    cells = {
        "tanh": lambda: nn.Elman(I, H),
        "relu": lambda: nn.Elman(I, H, activation="relu"),
        "lstm": lambda: nn.LSTM(I, H),
        "gru": lambda: nn.GRU(I, H, reset="after"),
        "gru before": lambda: nn.GRU(I, H),
        "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
    }
    recurrent = nn.Recurrent(cells[kind](), layers=2, bidirectional=True)
    x = torch.randn(B, T, I)
    lengths = LENGTHS if ragged else None
    results = []
    for device in ("cpu", "cuda"):
        recurrent.to(device).zero_grad()
        there = x.detach().to(device).requires_grad_()
        y, last = recurrent(there, lengths)
        (y.square().sum() + sum(s.sum() for s in last)).backward()
        results.append(
            [t.detach().cpu() for t in (y, *last, there.grad, *(p.grad for p in recurrent.parameters()))]
        )
    for a, b in zip(*results, strict=True):
        # cuDNN's tanh is good to about 1e-5. A layer norm enlarges rounding: there float32 on the CPU is itself up to
        # 1.4e-3 off float64, with gradients up to fifty, so a tensor is compared by its largest value.
        if kind == "layer norm":
            torch.testing.assert_close(a, b, atol=1e-4 * max(1.0, float(b.abs().max())), rtol=0)
        else:
            torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.cuda
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("ragged", [False, True])
def test_cells_that_cudnn_has_can_run_through_it(kind: str, ragged: bool) -> None:
    recurrent = nn.Recurrent.from_torch(torch_layer(kind, 2, True, torch.float32).cuda())
    with force("cudnn"):
        y, _ = recurrent(torch.randn(B, T, I, device="cuda"), LENGTHS if ragged else None)
    seen, stack = set(), [y.grad_fn]
    while stack:
        node = stack.pop()
        if node is not None and node not in seen:
            seen.add(node)
            stack.extend(parent for parent, _ in node.next_functions)
    assert sum("CudnnRnn" in node.name() for node in seen) == len(recurrent.cells)


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(
    "make", [lambda: nn.LSTM(I, H), lambda: nn.GRU(I, H, reset="after"), lambda: nn.GRU(I, H)]
)
def test_cuda_autocast_gives_the_precision_asked_for(make, dtype: torch.dtype) -> None:
    recurrent = nn.Recurrent(make(), layers=2, bidirectional=True).cuda()
    x = torch.randn(B, T, I, device="cuda")
    exact, _ = recurrent(x, LENGTHS)
    with torch.autocast("cuda", dtype):
        y, _ = recurrent(x, LENGTHS)
    assert y.dtype in (dtype, torch.float32)
    torch.testing.assert_close(y.float(), exact, atol=0.03, rtol=0)
    y.float().sum().backward()
    assert all(p.grad.isfinite().all() for p in recurrent.parameters())
