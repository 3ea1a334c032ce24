"""Small models of Keras (on its torch backend) and inputs for them: what the tests of its files share."""

from __future__ import annotations

import os
from typing import Any

import pytest
import torch
from torch import Tensor

os.environ.setdefault("KERAS_BACKEND", "torch")
h5py = pytest.importorskip("h5py")
keras = pytest.importorskip("keras")
L = keras.layers


def numbers(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(5))


X = numbers(4, 6, 5)


def sequence(*layers: Any, shape: tuple[int | None, ...] = (None, 5)) -> Any:
    return keras.Sequential([keras.Input(shape), *layers])


def stirred(model: Any) -> Any:
    """With every weight at random, also those that begin at 0 or 1."""
    draw = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for one in model.weights:
            spread = 0.3 * torch.randn(tuple(one.shape), generator=draw)
            value = torch.as_tensor(one.value).detach().cpu() + spread
            one.assign(value.abs() if "variance" in one.path else value)
    return model
