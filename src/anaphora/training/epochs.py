"""``epochs``: passes over the data, counted in steps before training begins."""

from __future__ import annotations

import math
from typing import TypeVar

from anaphora.settings import TrainingSettings
from anaphora.training.objective import Batches

S = TypeVar("S", bound=TrainingSettings)
EVALUATIONS = 20
"""In a training, where `valid_every` leaves it open."""
_RAREST = 1000  # steps between them at most
_WARMUP = 0.25  # of the steps at most: what suits thousands of them would be most of a short training


def counted(settings: S, batches: Batches, *, evaluations: int = EVALUATIONS) -> S:
    """The settings with the steps that their epochs take, and those between ``evaluations`` where ``valid_every`` is 0.

    Schedules need the number of steps from the beginning, so the batches of the first epoch are counted and those of the
    others taken to be as many. A warm-up then takes at most a quarter of the steps.
    """
    steps, warmup = settings.steps, settings.warmup
    if settings.epochs:
        steps = max(1, settings.min_steps, math.ceil(settings.epochs * batches.per_epoch() - 1e-9))
        steps = min(steps, settings.max_steps or steps)
        warmup = min(warmup, int(steps * _WARMUP))
    every = settings.valid_every or min(_RAREST, math.ceil(steps / evaluations))
    update = {"steps": steps, "valid_every": every, "warmup": warmup}
    if all(getattr(settings, key) == value for key, value in update.items()):
        return settings
    return settings.model_copy(update=update)
