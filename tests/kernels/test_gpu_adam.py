"""Adam and the length of many tensors, each as one kernel: run by fibres on this machine, and on a GPU."""

from __future__ import annotations

import pytest
import torch
from kernels_by_fibres import on_fibres

from anaphora.ops import optimizer as adam
from anaphora.ops import optimizer as chunks
from anaphora.ops.optimizer import AdamGroup, Length

SHAPES = ((10, 13), (7,), (), (64, 3), (0, 4))


@pytest.fixture
def by_fibres(monkeypatch: pytest.MonkeyPatch) -> None:
    on_fibres(monkeypatch)
    monkeypatch.setattr(chunks, "serves", lambda *_: True)
    for module in (adam, chunks):
        monkeypatch.setattr(module, "sent", lambda table, device: table)
    monkeypatch.setattr(chunks, "CHUNK", 64)


def check_adam(kind: type[torch.optim.Optimizer], device: str, shapes: tuple[tuple[int, ...], ...]) -> None:
    torch.manual_seed(1)
    rates = {"lr": 1e-2, "betas": (0.9, 0.98), "eps": 1e-9}
    plain = [torch.nn.Parameter(torch.randn(shape, device=device)) for shape in shapes]
    own = [one.detach().clone() for one in plain]
    first, second, gradients = ([torch.zeros_like(one) for one in own] for _ in range(3))
    steps = [torch.zeros((), device=device) for _ in own]
    optimizer = kind(plain, weight_decay=0.1, **rates)
    group, divisor, good = AdamGroup(), torch.tensor(3.0, device=device), torch.tensor(0.0, device=device)
    for _ in range(4):
        gradients = [torch.randn_like(one) for one in own]  # each time somewhere else
        for one, gradient in zip(plain, gradients, strict=True):
            one.grad = gradient / 3
        optimizer.step()
        torch._foreach_add_(steps, 1)
        decoupled = kind is torch.optim.AdamW
        given = ((own, first, second, steps), gradients, divisor)
        assert group.step(*given, good, **rates, decay=0.1, decoupled=decoupled)
    for one, other in zip(plain, own, strict=True):
        torch.testing.assert_close(other, one.detach(), rtol=1e-5, atol=1e-6)
    before = [one.clone() for one in own]
    assert group.step(*given, torch.ones_like(good), **rates, decay=0.1, decoupled=True)
    assert all(
        torch.equal(one, other) for one, other in zip(own, before, strict=True)
    )  # a bad step changes nothing
    wanted = torch.cat([gradient.flatten().double() for gradient in gradients]).norm()
    length = Length().of(gradients)
    assert length is not None
    torch.testing.assert_close(length.double(), wanted, rtol=1e-6, atol=0)


@pytest.mark.usefixtures("by_fibres")
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_it_moves_as_torch_does(kind: type[torch.optim.Optimizer]) -> None:
    check_adam(kind, "cpu", SHAPES)


@pytest.mark.usefixtures("by_fibres")
def test_what_is_not_a_number_makes_the_length_none() -> None:
    assert Length().of([torch.ones(5), torch.tensor([1.0, torch.nan])]).isnan()


@pytest.mark.usefixtures("by_fibres")
def test_other_tensors_are_left_to_torch() -> None:
    whole = torch.ones(4, 4)
    assert Length().of([whole.double()]) is None
    assert Length().of([whole[:, 1:]]) is None  # not in one piece
    assert Length().of([whole.view(-1)[1:]]) is None  # not from a whole vector on
    assert Length().of([]) is None


def test_without_a_gpu_it_is_left_to_torch() -> None:
    assert Length().of([torch.ones(3)]) is None


@pytest.mark.cuda
@pytest.mark.parametrize("kind", [torch.optim.AdamW, torch.optim.Adam])
def test_it_moves_as_torch_does_on_a_gpu(kind: type[torch.optim.Optimizer]) -> None:
    check_adam(kind, "cuda", (*SHAPES, (700, 300)))
