"""``epochs``: passes over the data, counted in steps before training begins."""

from __future__ import annotations

import math
from typing import TypeVar

from anaphora.settings import TrainingSettings
from anaphora.training.objective import Batches

S = TypeVar("S", bound=TrainingSettings)


def counted(settings: S, batches: Batches) -> S:
    """The settings with the steps that their epochs take, and those between evaluations where ``valid_every`` is 0.

    Schedules need the number of steps from the beginning, so the batches of the first epoch are counted and those of the
    others taken to be as many.
    """
    steps = settings.steps
    if settings.epochs:
        steps = max(1, settings.min_steps, math.ceil(settings.epochs * batches.per_epoch() - 1e-9))
        steps = min(steps, settings.max_steps or steps)
    every = settings.valid_every or min(_RAREST, math.ceil(steps / _EVALUATIONS))
    if (steps, every) == (settings.steps, settings.valid_every):
        return settings
    return settings.model_copy(update={"steps": steps, "valid_every": every})


_EVALUATIONS = 20  # in a training, where `valid_every` leaves it open
_RAREST = 1000  # steps between them at most
