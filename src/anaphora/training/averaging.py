"""Averages of the weights over steps, which evaluate and export better than the last weights."""

from __future__ import annotations

import contextlib
import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.settings import TrainingSettings
from anaphora.training.sharding import like

STATE = "/state"  # no name of a parameter


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
    def evaluated(self, values: Sequence[float | None]) -> None:
        """Take note of an evaluation: the last of the dev metrics so far, with the sign with which less is better; None is a
        metric that is not finite."""

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

    def evaluated(self, values: Sequence[float | None]) -> None:
        pass

    @property
    def active(self) -> bool:
        return True


class Mean(WeightAverage):
    """The plain mean of all weights after step ``after`` (stochastic weight averaging, Izmailov et al. 2018).

    ``/state`` holds whether it has begun, and how many steps it is the mean of.
    """

    def __init__(self, model: nn.Module, after: int | None):
        super().__init__(model)
        self.after = after
        self.tensors[STATE] = torch.zeros(2, dtype=torch.int64)

    def update(self, model: nn.Module, step: int) -> None:
        begun, count = self.tensors[STATE].tolist()
        if begun or (self.after is not None and step > self.after):
            self._move(model, 1 / (count + 1))
            self.tensors[STATE] = torch.tensor([1, count + 1])

    def evaluated(self, values: Sequence[float | None]) -> None:
        pass

    @property
    def active(self) -> bool:
        return int(self.tensors[STATE][1]) > 0


class TriggeredMean(Mean):
    """A mean that begins when the dev metric stops improving: averaged SGD, NT-ASGD (Merity et al. 2018).

    It begins after evaluation t where v_t > min(v_1 … v_{t−n}), n = ``patience``: a dev metric worse than the best of those at
    least n evaluations before.
    """

    def __init__(self, model: nn.Module, patience: int):
        super().__init__(model, None)
        self.patience = patience

    def evaluated(self, values: Sequence[float | None]) -> None:
        last, earlier = values[-1], [value for value in values[: -self.patience] if value is not None]
        if earlier and (last is None or last > min(earlier)):
            self.tensors[STATE][0] = 1


def average_of(model: nn.Module, settings: TrainingSettings) -> WeightAverage | None:
    """The average that the settings ask for, if any; a `SettingsError` where it would be one of no step."""
    if settings.trigger:
        return TriggeredMean(model, settings.trigger)
    if settings.swa:
        after = math.ceil(settings.swa * settings.steps)
        if after >= settings.steps:
            raise SettingsError(
                [
                    f"swa = {settings.swa:g} of {settings.steps} steps leaves none to average; lower swa, or train longer."
                ]
            )
        return Mean(model, after)
    return MovingAverage(model, settings.ema) if settings.ema else None


def with_average(weights: Mapping[str, Tensor], average: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """``weights`` with the averages of a checkpoint in their place, where there are any yet, also under tied names."""
    state = average.get(STATE)
    if not average or (state is not None and int(state[1]) == 0):
        return dict(weights)
    first = {id(weights[name]): value for name, value in average.items() if name in weights}
    return {name: first.get(id(value), value) for name, value in weights.items()}


@torch.no_grad()
def _assign(model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    for name, parameter in model.named_parameters():
        parameter.copy_(tensors[name])
