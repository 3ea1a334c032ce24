"""A moving average of the weights, which evaluates and exports better than the last weights."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """ā ← d·ā + (1 − d)·a after each step n, with d = min(decay, n/(n + 9)), so that the start is forgotten."""

    def __init__(self, model: nn.Module, decay: float):
        self.decay = decay
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}

    @torch.no_grad()
    def update(self, model: nn.Module, step: int) -> None:
        decay = min(self.decay, step / (step + 9))
        averages = [self.tensors[name] for name, _ in model.named_parameters()]
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], 1 - decay)

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.tensors.items():
            value.copy_(tensors[name])

    @contextlib.contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights."""
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        try:
            _assign(model, self.tensors)
            yield
        finally:
            _assign(model, own)


@torch.no_grad()
def _assign(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[name])
