"""The programs of `anaphora.ops.invariant` in plain torch, for a CPU; and a watch for sums that go another way."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from anaphora.native import following
from anaphora.ops.invariant import operations

SUMMING = (
    "mm",
    "addmm",
    "bmm",
    "baddbmm",
    "mv",
    "addmv",
    "dot",
    "_softmax",
    "_log_softmax",
    "sum",
    "mean",
    "var",
)
SUMMING += (
    "std",
    "logsumexp",
    "native_layer_norm",
    "native_group_norm",
    "convolution",
    "cumsum",
    "prod",
    "topk",
)
SUMMING += ("linalg_vector_norm", "einsum", "cudnn_convolution", "_cudnn_rnn", "lstm", "gru")
SUMMING += ("_scaled_dot_product_flash_attention_for_cpu",)
_inside = [0]


@contextmanager
def allowed() -> Iterator[None]:
    """Within, sums are those of a program."""
    _inside[0] += 1
    try:
        yield
    finally:
        _inside[0] -= 1


def product(a: Tensor, b: Tensor, bias: Tensor | None, precision: str, dtype: torch.dtype) -> Tensor:
    with allowed():
        found = torch.matmul(a, b).to(dtype)
        return found if bias is None else found + bias


def row(x: Tensor, kind: str, dtype: torch.dtype) -> Tensor:
    with allowed():
        found: Tensor = getattr(torch, kind)(x, -1)
        return found.to(dtype)


def norm(x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    with allowed():
        found, mean, scale = torch.native_layer_norm(x, [x.shape[1]], weight, bias, eps)
        return found, mean.view(-1), scale.view(-1)


def column_sum(x: Tensor, dtype: torch.dtype) -> Tensor:
    with allowed():
        return x.sum(1).to(dtype)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, causal: bool, scale: float, precision: str
) -> Tensor:
    with allowed():
        seen = torch.nn.functional.scaled_dot_product_attention
        return seen(q, k, v, attn_mask=mask, is_causal=causal, scale=scale).nan_to_num(0.0)


@pytest.fixture
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode serves CPUs, by the programs above, and no one notices a `Watch`: all runs as it does unwatched."""
    from anaphora.ops.invariant import mode

    programs = SimpleNamespace(
        product=product, row=row, norm=norm, column_sum=column_sum, attention=attention
    )
    monkeypatch.setattr(operations, "DEVICES", {"cpu"})
    monkeypatch.setitem(sys.modules, "anaphora.ops.invariant.programs", programs)
    monkeypatch.setattr(mode, "_ready", lambda: True)
    monkeypatch.setattr(following, "_len_torch_dispatch_stack", _others)


def _others() -> int:
    """How many modes other than a `Watch` follow the operations."""
    return sum(not isinstance(one, Watch) for one in _get_current_dispatch_mode_stack())


class Watch(TorchDispatchMode):
    """Notes every operation that sums or chooses among floating-point numbers: those outside a program, and those of one."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()
        self.by_programs: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.overloadpacket.__name__
        tensors = [a for a in args if isinstance(a, Tensor)]
        if name in SUMMING and any(t.is_floating_point() for t in tensors):
            (self.by_programs if _inside[0] else self.found).add(name)
        return func(*args, **(kwargs or {}))
