"""What the tests of losses by GPU kernels share: where the kernels run, and a loss with its gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from kernels_by_fibres import on_fibres
from persistent_emulated import COMPILER
from torch import Tensor

DEVICES = [
    pytest.param("cpu", marks=pytest.mark.skipif(COMPILER is None, reason="no C++ compiler here")),
    pytest.param("cuda", marks=pytest.mark.cuda),
]


def device_of(fused: Any) -> Any:
    """A fixture: a GPU, or the memory of this machine with the kernels of the module ``fused`` run by fibres."""

    @pytest.fixture(params=DEVICES)
    def device(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
        if request.param == "cpu":
            on_fibres(monkeypatch)
            monkeypatch.setattr(fused, "serves", lambda *_: True)
        return request.param

    return device


def with_gradient(
    loss_of: Callable[..., Tensor], logits: Tensor, *given: Any, **options: Any
) -> tuple[Tensor, Tensor]:
    """Loss and gradient, whatever the reduction."""
    z = logits.detach().clone().requires_grad_()
    loss = loss_of(z, *given, **options)
    weights = torch.arange(1.0, 1 + loss.numel(), device=z.device, dtype=loss.dtype)
    (gradient,) = torch.autograd.grad((loss.flatten() * weights).sum(), z)
    return loss.detach().cpu(), gradient.cpu()
