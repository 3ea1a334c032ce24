"""``epochs``: passes over the data, counted in steps before training begins."""

from __future__ import annotations

import math
from typing import TypeVar

from anaphora.settings import TrainingSettings
from anaphora.training.objective import Batches

S = TypeVar("S", bound=TrainingSettings)


def counted(settings: S, batches: Batches) -> S:
    """The settings with the steps that their epochs take; as they are where ``epochs`` is 0.

    Schedules need the number of steps from the beginning, so the batches of the first epoch are counted and those of the
    others taken to be as many.
    """
    if not settings.epochs:
        return settings
    steps = max(1, math.ceil(settings.epochs * batches.per_epoch() - 1e-9))
    return settings.model_copy(update={"steps": steps})
