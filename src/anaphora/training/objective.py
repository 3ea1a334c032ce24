"""What the loop asks of a task: a sum of losses to descend, numbers on dev data, and examples to look at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from torch import Tensor


@dataclass
class LossSum:
    """A loss summed over symbols, with the number of symbols: sums can be added over parts, means cannot."""

    total: Tensor  # scalar, carries the gradient
    count: Tensor | int


B = TypeVar("B", bound="Batch")


class Batch(Protocol):
    """One global batch. ``shard(i, of)`` holds its rows i, i + of, i + 2·of … and may be empty."""

    def shard(self: B, index: int, of: int) -> B: ...

    def __len__(self) -> int: ...

    @property
    def symbols(self) -> int:
        """How many symbols the loss is summed over (an estimate is enough: it only scales)."""
        ...


class Batches(Protocol):
    """An endless stream of global batches that can tell, and take up again, where it is."""

    @property
    def epoch(self) -> int: ...

    def __next__(self) -> Any: ...

    def per_epoch(self) -> int:
        """How many batches the first epoch has; others have about as many."""
        ...

    def state(self) -> dict[str, Any]: ...

    def restore(self, state: dict[str, Any]) -> None: ...


class Objective(Protocol):
    """What is minimised and what is measured.

    ``counts``, where it is there, names what the loss is a mean over if that is not symbols. ``chance`` is the loss per symbol of a uniform guess, ln V, or None where there is no such thing.
    ``loss`` is called with a shard of a batch, in training mode; ``evaluate`` and ``samples`` in evaluation
    mode without gradients. ``evaluate`` may return ``{}`` where there is no dev data. An objective that
    carries tensors from step to step also has ``state_dict()`` and ``load_state_dict(tensors)``; and where a run may go
    on with another number of processes, ``load_shares(tensors of all, indices, of)``: shards ``indices`` of ``of``; one
    whose loss depends on the step has ``begin_step(number)``, called before each loss of a step; one whose loss overwrites the
    memory of the step before has ``captured = True``; one that searches for outputs, which takes long, has ``evaluations``, how often a training
    measures where the settings leave it open.
    """

    @property
    def metric(self) -> str: ...

    @property
    def greater_is_better(self) -> bool: ...

    @property
    def chance(self) -> float | None: ...

    def loss(self, model: Any, batch: Any) -> LossSum: ...

    def evaluate(self, model: Any) -> dict[str, float]: ...

    def samples(self, model: Any) -> Sequence[dict[str, str]]: ...


def carried_state(objective: Objective) -> dict[str, Tensor]:
    """The tensors an objective carries from step to step; ``{}`` for most."""
    read = getattr(objective, "state_dict", None)
    return dict(read()) if callable(read) else {}


def indices_of(batch: Any) -> list[int]:
    """The numbers of the examples in a batch, where it knows them."""
    return [int(i) for i in getattr(batch, "indices", None) or []]
