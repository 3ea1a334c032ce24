"""Training of the presets that are fitted in one go: counts, least squares, expectation and maximisation.

They leave the same run folder behind as those trained by steps. Interrupted, they begin again when resumed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from anaphora.errors import DataError
from anaphora.files.writing import remove_file
from anaphora.training.journal import Journal
from anaphora.training.loop import TrainingResult
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.weights import save_weights

_LESS_IS_BETTER = ("loss", "mse", "mae", "perplexity", "wer", "cer")

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator


def learn_directly(
    estimator: Estimator, run: RunFolder, data: Any, dev: Any, reporter: Reporter | None
) -> TrainingResult:
    """Fit the estimator's model, write it with its dev measures, and say what came of it."""
    if reporter is not None:
        reporter.say(
            f"fitting {estimator.settings_.model} to {len(data):,} examples in one go, which has no steps to report"
        )
    metrics = estimator._solve(data, dev, reporter)
    _check(estimator, metrics)
    facts = {"step": 1, "chosen": "fitted", "files": run.fingerprints()}
    save_weights(run.model, estimator._weights(), facts=facts)
    remove_file(run.metrics)
    journal = Journal(run.metrics)
    journal.open_whole()
    try:
        journal.append({"step": 1, "dev": metrics, "best": True})
    finally:
        journal.close()
    name = estimator._metric()
    return TrainingResult(
        steps=1,
        best=metrics.get(name),
        best_step=1,
        metrics=metrics,
        stopped="finished",
        metric=name,
        greater_is_better=name not in _LESS_IS_BETTER,
    )


def _check(estimator: Estimator, metrics: Mapping[str, float]) -> None:
    """A `DataError` where what was fitted, or a measure of it, is not finite: nothing is written then."""
    name = next((name for name, value in metrics.items() if not math.isfinite(value)), None)
    if name is None:
        weights = estimator._weights().items()
        name = next((name for name, one in weights if one.is_floating_point() and one.isnan().any()), None)
    if name is not None:
        raise DataError(
            f"fitting {estimator.settings_.model} to these values overflows ({name} is not finite); look for values that are "
            "far too large, or choose another model."
        )
