"""Averages of the weights over steps, which evaluate and export better than the last weights."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from anaphora.settings import TrainingSettings
from anaphora.training.sharding import like


class WeightAverage(ABC):
    """Something kept beside the weights and used in their place for evaluation and export.

    ``tensors`` is all it remembers, for checkpoints.
    """

    def __init__(self, model: nn.Module):
        self.tensors = {name: p.detach().clone() for name, p in model.named_parameters()}

    @abstractmethod
    def update(self, model: nn.Module, step: int) -> None:
        """Take the weights after step n = 1, 2, … into account."""

    @abstractmethod
    def evaluated(self, since_best: int) -> None:
        """Take note of an evaluation, the ``since_best``-th one without a better dev metric."""

    @property
    @abstractmethod
    def active(self) -> bool:
        """Whether there is an average yet."""

    def restore(self, tensors: Mapping[str, Tensor]) -> None:
        for name, value in self.tensors.items():
            value.copy_(like(value, tensors[name]))

    @contextlib.contextmanager
    def in_place_of(self, model: nn.Module) -> Iterator[None]:
        """Inside, the model has the averaged weights, once there are any."""
        if not self.active:
            yield
            return
        own = {name: p.detach().clone() for name, p in model.named_parameters()}
        try:
            _assign(model, self.tensors)
            yield
        finally:
            _assign(model, own)

    @torch.no_grad()
    def _move(self, model: nn.Module, share: float) -> None:
        """ā ← ā + share·(a − ā)"""
        averages = [self.tensors[name] for name, _ in model.named_parameters()]
        torch._foreach_lerp_(averages, [p.detach() for p in model.parameters()], share)


class MovingAverage(WeightAverage):
    """ā ← d·ā + (1 − d)·a after each step n, with d = min(decay, n/(n + 9)), so that the start is forgotten."""

    def __init__(self, model: nn.Module, decay: float):
        super().__init__(model)
        self.decay = decay

    def update(self, model: nn.Module, step: int) -> None:
        self._move(model, 1 - min(self.decay, step / (step + 9)))

    def evaluated(self, since_best: int) -> None:
        pass

    @property
    def active(self) -> bool:
        return True


class TriggeredMean(WeightAverage):
    """The plain mean of all weights since the dev metric stopped improving: averaged SGD whose beginning is found by
    watching the dev metric (NT-ASGD, Merity et al. 2018).

    ``/state`` holds whether it has begun, and how many steps it is the mean of.
    """

    _STATE = "/state"

    def __init__(self, model: nn.Module, patience: int):
        super().__init__(model)
        self.patience = patience
        self.tensors[self._STATE] = torch.zeros(2, dtype=torch.int64)

    def update(self, model: nn.Module, step: int) -> None:
        begun, count = self.tensors[self._STATE].tolist()
        if begun:
            self._move(model, 1 / (count + 1))
            self.tensors[self._STATE][1] += 1

    def evaluated(self, since_best: int) -> None:
        if since_best >= self.patience:
            self.tensors[self._STATE][0] = 1

    @property
    def active(self) -> bool:
        return int(self.tensors[self._STATE][1]) > 0


def average_of(model: nn.Module, settings: TrainingSettings) -> WeightAverage | None:
    """The average that the settings ask for, if any."""
    if settings.average_after:
        return TriggeredMean(model, settings.average_after)
    return MovingAverage(model, settings.ema) if settings.ema else None


def with_average(weights: Mapping[str, Tensor], average: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``weights`` with the averages of a checkpoint in their place, where there are any yet, also under tied names."""
    state = average.get(TriggeredMean._STATE)
    if not average or (state is not None and int(state[1]) == 0):
        return dict(weights)
    first = {id(weights[name]): value for name, value in average.items() if name in weights}
    return {name: first.get(id(value), value) for name, value in weights.items()}


@torch.no_grad()
def _assign(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[name])
