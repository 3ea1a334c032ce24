"""A step whose loss or gradient is not finite: left out where that is explained or allowed, else the end of the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from anaphora.errors import TrainingError
from anaphora.training import saving
from anaphora.training.diagnosis import Diagnosis, diagnose
from anaphora.training.health import Finding
from anaphora.training.journal import Journal
from anaphora.training.learner import Learner
from anaphora.training.objective import indices_of
from anaphora.training.precision import fallback
from anaphora.training.run import RunFolder
from anaphora.training.step import Outcome

SKIPS = 10  # steps in a row that on_nan="skip" leaves out before it gives up


class BadSteps:
    """What to do with them. ``warn`` takes a finding to the user and to ``metrics.jsonl``."""

    def __init__(
        self, learner: Learner, run: RunFolder, journal: Journal, warn: Callable[[list[Finding]], None]
    ):
        self.learner, self.run, self.journal, self.warn = learner, run, journal, warn

    def met(self, batch: Any, number: int, outcome: Outcome, lr: float) -> None:
        """Leave step ``number`` out, or raise a `TrainingError` that says where the first bad number is."""
        learner = self.learner
        if math.isfinite(outcome.loss) and learner.stepper.scale.overflowed():
            return
        if learner.precision == "fp16" and self._overflow_of_fp16(batch, number, outcome):
            self._fall_back(number, outcome)
            return
        learner.standing.skipped += 1
        text = self._report(batch, number, outcome, self._diagnosis(batch, number, lr))
        skip = learner.settings.on_nan == "skip"
        if skip and learner.standing.skipped <= SKIPS:
            self.warn([Finding("not-finite", f"{text}; this batch is left out.")])
            return
        many = f" {SKIPS} steps in a row were left out already;" if skip else ""
        raise TrainingError(
            f"{text};{many} the weights of that step are not saved{saving.last_good(self.run)}."
        )

    def _overflow_of_fp16(self, batch: Any, number: int, outcome: Outcome) -> bool:
        """Whether a wider arithmetic would have had finite numbers. All processes must call this.

        With a finite loss the scale is at its end, so only the gradient's own range is left to blame; the next step in
        the wider arithmetic shows whether that was all.
        """
        if math.isfinite(outcome.loss):
            return True
        learner = self.learner
        with torch.no_grad():
            finite = learner.stepper.repeat(batch, number, fallback(learner.group.device))
        return all(learner.group.gather(finite))

    def _fall_back(self, number: int, outcome: Outcome) -> None:
        learner = self.learner
        wider = fallback(learner.group.device)
        what = "gradient" if math.isfinite(outcome.loss) else "loss"
        learner.fall_back(wider)
        text = (
            f"step {number}: the {what} overflows fp16 whatever the scale of the loss; the step is left out, and the run "
            f"goes on in {wider}, also when it is resumed. Set precision = {wider} to begin with it."
        )
        self.warn([Finding("fp16-overflow", text)])

    def _diagnosis(self, batch: Any, number: int, lr: float) -> Diagnosis:
        learner = self.learner
        # weights that are divided cannot be gathered by those processes alone that get so far
        rerun = (lambda: None) if learner.stepper.sharded else lambda: learner.stepper.repeat(batch, number)
        found = learner.group.gather(diagnose(learner.model, learner.settings, lr, learner.precision, rerun))
        # the process whose part of the batch is bad knows the layer; the others see the shared gradient only
        return min(found, key=lambda d: d.place == "the loss" or d.place.startswith("the gradient"))

    def _report(self, batch: Any, number: int, outcome: Outcome, diagnosis: Diagnosis) -> str:
        """Write the batch down; a clause that says what was found where."""
        indices = indices_of(batch)
        what = "loss" if not math.isfinite(outcome.loss) else "gradient"
        line = {"step": number, "epoch": self.learner.batches.epoch, "what": what, "indices": indices}
        if self.learner.group.main:
            self.journal.append({**line, "place": diagnosis.place, "cause": diagnosis.cause})
            self.journal.sync()
        more = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        shown = ", ".join(map(str, indices[:8])) + more
        examples = f" (examples {shown}; all in {self.run.bad_batches})" if indices else ""
        return f"step {number}: the {what} is not finite, first in {diagnosis.place}{examples}: {diagnosis.cause}"
