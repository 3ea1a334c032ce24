"""Whatever differentiates a layer in another way than once backwards, on a GPU: plain torch operations serve it."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jvp, stack_module_state, vmap

from anaphora import nn
from anaphora.engine.backends.base import BackendName
from anaphora.engine.dispatch import force

pytestmark = pytest.mark.cuda
B, T, I, H = 4, 6, 8, 16
LENGTHS = torch.tensor([6, 0, 3, 5])
CELLS: dict[str, Callable[[], nn.Cell]] = {
    "lstm": lambda: nn.LSTM(I, H),
    "gru before": lambda: nn.GRU(I, H),
    "layer norm": lambda: nn.LSTM(I, H, layer_norm=True),
}


def _twice(recurrent: nn.Recurrent, x: Tensor) -> list[Tensor]:
    """First derivatives by x, and derivatives of their squares by x and all parameters."""
    y, last = recurrent(x, LENGTHS)
    (first,) = torch.autograd.grad(y.square().sum() + last[0].sum(), x, create_graph=True)
    return [first, *torch.autograd.grad(first.square().sum(), [x, *recurrent.parameters()])]


# A layer norm would enlarge the shortening. Left to itself, an LSTM in exact float32 goes through cuDNN the first time.
WAYS: list[tuple[str, BackendName | None, bool]] = [
    *((name, way, False) for name in CELLS for way in ("triton", "cuda_graph")),
    *((name, None, False) for name in CELLS if name != "lstm"),
    *((name, "persistent", True) for name in CELLS if name != "layer norm"),
]


@pytest.mark.parametrize(("name", "way", "shortened"), WAYS)
def test_second_derivatives_after_any_way(
    name: str, way: BackendName | None, shortened: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", shortened)
    recurrent = nn.Recurrent(CELLS[name](), bidirectional=True)
    x = torch.randn(B, T, I)
    expected = _twice(copy.deepcopy(recurrent).double(), x.double().requires_grad_())
    there = recurrent.cuda()
    for _ in range(2):  # the second time it may be a replay
        with force(way):
            found = _twice(there, x.cuda().requires_grad_())
        for a, b in zip(found, expected, strict=True):
            assert (a.cpu().double() - b).norm() <= (1e-2 if shortened else 1e-4) * b.norm()


def test_cudnn_cannot_be_differentiated_twice() -> None:
    """PyTorch says so, and the same layer can be, another way."""
    recurrent = nn.Recurrent(CELLS["lstm"](), bidirectional=True).cuda()
    x = torch.randn(B, T, I, device="cuda", requires_grad=True)
    with force("cudnn"), pytest.raises(NotImplementedError, match="not supported for CuDNN"):
        _twice(recurrent, x)
    with force("cuda_graph"):
        assert all(g.isfinite().all() for g in _twice(recurrent, x))


@pytest.mark.parametrize("name", CELLS)
def test_many_at_once(name: str) -> None:
    """``vmap`` over inputs, and over the weights of several models."""
    models = [nn.Recurrent(CELLS[name](), layers=2).cuda().double() for _ in range(3)]
    x = torch.randn(3, B, T, I, device="cuda", dtype=torch.float64)
    together = vmap(lambda x: models[0](x)[0])(x)
    torch.testing.assert_close(together, torch.stack([models[0](each)[0] for each in x]))
    stacked, buffers = stack_module_state(models)
    found = vmap(lambda p, b, x: functional_call(models[0], (p, b), (x,))[0])(stacked, buffers, x)
    expected = torch.stack([model(each)[0] for model, each in zip(models, x, strict=True)])
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", CELLS)
def test_forward_derivatives(name: str) -> None:
    """The product with a direction from before and from behind: v · (J u) = (Jᵀ v) · u."""
    recurrent = nn.Recurrent(CELLS[name](), bidirectional=True).cuda().double()
    x, u = (torch.randn(B, T, I, device="cuda", dtype=torch.float64) for _ in range(2))
    y, tangent = jvp(lambda x: recurrent(x)[0], (x,), (u,))
    x.requires_grad_()
    (pulled,) = torch.autograd.grad((recurrent(x)[0] * y).sum(), x)
    torch.testing.assert_close((y * tangent).sum(), (pulled * u).sum())
    with forward_ad.dual_level():
        dual, _ = recurrent(forward_ad.make_dual(x.detach(), u))
        torch.testing.assert_close(forward_ad.unpack_dual(dual).tangent, tangent)


@pytest.mark.parametrize("name", CELLS)
def test_gradients_per_row(name: str) -> None:
    recurrent = nn.Recurrent(CELLS[name]()).cuda().double()
    params = {k: p.detach() for k, p in recurrent.named_parameters()}
    x = torch.randn(B, T, I, device="cuda", dtype=torch.float64)

    def loss(params: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(recurrent, params, (row[None],))[0].square().sum()

    found = vmap(grad(loss), (None, 0))(params, x)
    for k, row in enumerate(x):
        expected = torch.autograd.grad(recurrent(row[None])[0].square().sum(), list(recurrent.parameters()))
        for name_, e in zip(params, expected, strict=True):
            torch.testing.assert_close(found[name_][k], e)
