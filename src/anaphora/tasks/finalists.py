"""Which weights a run ends with: the best evaluations, decided by the decoding that users get."""

from __future__ import annotations

import time
from dataclasses import replace

from torch import Tensor, nn

from anaphora.errors import RunError
from anaphora.training import saving
from anaphora.training.averaging import with_average
from anaphora.training.checkpoint import Unusable
from anaphora.training.loop import Trainer, TrainingResult
from anaphora.training.precision import autocast
from anaphora.training.run import RunFolder


def choose_finalist(
    run: RunFolder, model: nn.Module, trainer: Trainer, result: TrainingResult
) -> TrainingResult:
    """Judge the ``keep_best`` best evaluations of a run once more, as outputs are searched for in use, and keep the best one.

    Dev outputs are greedy while a run is trained, which costs a fifth of a beam; the ranking of the best few under the
    user's beam and length penalty may differ. Nothing is done where the objective has no ``final`` measure, fewer than two
    evaluations were kept, or the run was interrupted. A run that is killed here is judged when it is resumed.
    """
    learner = trainer.learner
    final = getattr(learner.objective, "final", None)
    steps = [int(one["step"]) for one in learner.standing.ranked]
    if final is None or len(steps) < 2 or result.stopped == "interrupted" or learner.sharded is not None:
        return result
    sign = 1 if learner.objective.greater_is_better else -1
    metric = learner.objective.metric

    def judge() -> TrainingResult:
        judged: list[tuple[float, int, dict[str, float]]] = []
        begun = time.monotonic()
        kept = {step: weights for step in sorted(steps) if (weights := _weights(run, step))}
        for step, weights in kept.items():
            model.load_state_dict(weights)
            model.eval()
            with autocast(learner.group.device, learner.precision):
                metrics = dict(final(model))
            judged.append((sign * metrics[metric], step, metrics))
        if result.trained:  # a run that was over already stays as it is, byte for byte
            trainer.note_after("finalists", time.monotonic() - begun)
        if len(judged) < 2:
            return result
        value, step, metrics = max(judged, key=lambda one: (one[0], -one[1]))
        if step != result.best_step:
            facts = {**learner.facts("best"), "step": step, "value": sign * value}
            saving.export(run, kept[step], facts)
        return replace(result, best=sign * value, best_step=step, metrics=metrics)

    return learner.group.on_main(judge)


def _weights(run: RunFolder, step: int) -> dict[str, Tensor] | None:
    """The (averaged) weights of a checkpoint; None for one that cannot be read, which then is no finalist."""
    try:
        state = saving.load(saving.checkpoint_path(run, step))
    except (RunError, Unusable):
        return None
    return with_average(state.tensors["model"], state.tensors.get("ema", {}))
