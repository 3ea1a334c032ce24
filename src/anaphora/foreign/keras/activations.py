"""Functions by their names in Keras."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.foreign.mapping import UnmappedError

Function = Callable[[Tensor], Tensor]


def _hard_sigmoid_2(x: Tensor) -> Tensor:
    """That of Keras 1 and 2: 0.2 x + 0.5, between 0 and 1."""
    return torch.relu(1 - torch.relu(0.5 - 0.2 * x))


def _hard_sigmoid_3(x: Tensor) -> Tensor:
    """That of Keras 3: x / 6 + 0.5, between 0 and 1."""
    return torch.relu(1 - torch.relu(0.5 - x / 6))


def _softmax(x: Tensor) -> Tensor:
    return torch.softmax(x, -1)


def _same(x: Tensor) -> Tensor:
    return x


_FUNCTIONS: dict[str, Function] = {
    "linear": _same,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "relu": torch.relu,
    "softmax": _softmax,
    "softplus": F.softplus,
    "softsign": F.softsign,
    "elu": F.elu,
    "selu": F.selu,
    "gelu": F.gelu,
    "silu": F.silu,
    "swish": F.silu,
    "exponential": torch.exp,
    "leaky_relu": lambda x: F.leaky_relu(x, 0.2),
    "relu6": F.relu6,
    "log_softmax": lambda x: torch.log_softmax(x, -1),
}


def activation(given: Any, version: str) -> Function:
    """The function that a config names; an `UnmappedError` for one that is not known."""
    name = "linear" if given is None else given
    if isinstance(name, dict):
        name = name.get("config") if isinstance(name.get("config"), str) else name.get("class_name")
    if name == "hard_sigmoid":
        return _hard_sigmoid_3 if _major(version) >= 3 else _hard_sigmoid_2
    if not isinstance(name, str) or name not in _FUNCTIONS:
        raise UnmappedError(f"the activation {name!r}")
    return _FUNCTIONS[name]


def _major(version: str) -> int:
    first = version.split(".")[0]
    return int(first) if first.isdigit() else 2
