"""Which weights a run ends with: the best evaluations, decided by the decoding that users get."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from anaphora.errors import RunError
from anaphora.training import saving
from anaphora.training.averaging import with_average
from anaphora.training.checkpoint import Unusable
from anaphora.training.learner import Learner
from anaphora.training.loop import Trainer, TrainingResult
from anaphora.training.precision import autocast
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


def choose_finalist(
    run: RunFolder, model: nn.Module, trainer: Trainer, result: TrainingResult
) -> TrainingResult:
    """Judge the ``keep_best`` best evaluations of a run once more, as outputs are searched for in use, and keep the best one.

    Dev outputs are greedy while a run is trained, which costs a fifth of a beam; the ranking of the best few under the
    user's beam and length penalty may differ. With ``average_best``, the mean of their weights is one more finalist (checkpoint
    averaging, Vaswani et al. 2017). An objective with few dev examples says how uncertain its measure is (``uncertainty``): the last
    weights are then a finalist too, and of those that are within it of the best the latest stay. Nothing is done where the objective has no ``final`` measure and nothing is averaged, fewer than
    two evaluations were kept, or the run was interrupted. A run that is killed here is judged when it is resumed.
    """
    learner = trainer.learner
    many = learner.settings.average_best
    ranked = [int(one["step"]) for one in learner.standing.ranked]  # the best one first
    searched = getattr(learner.objective, "final", None) is not None
    if not (searched or many) or len(ranked) < 2:
        return result
    if result.stopped == "interrupted" or learner.sharded is not None:
        return result

    def judge() -> TrainingResult:
        begun = time.monotonic()
        asked = {*ranked, result.steps} if hasattr(learner.objective, "uncertainty") else set(ranked)
        kept = {step: weights for step in sorted(asked) if (weights := _weights(run, step))}
        if len(kept) < 2:
            return result
        found = [_judged(learner, model, weights, step) for step, weights in kept.items() if searched]
        if not found:
            found = [Finalist(result.best_step, {}, dict(result.metrics))]
        averaged = [step for step in ranked if step in kept][:many]
        if len(averaged) > 1:
            mean = mean_of([kept[step] for step in averaged])
            found.append(replace(_judged(learner, model, mean, max(averaged)), of=tuple(sorted(averaged))))
        if result.trained:  # a run that was over already stays as it is, byte for byte
            trainer.note_after("finalists", time.monotonic() - begun)
        return _chosen(run, trainer, result, found)

    return learner.group.on_main(judge)


@dataclass(frozen=True)
class Finalist:
    """Weights that a run may end with: those of an evaluation, or the mean of the steps ``of``; ``error``: how uncertain the dev
    measure is by which they are compared."""

    step: int
    weights: Mapping[str, Tensor]
    metrics: dict[str, float]
    of: tuple[int, ...] = ()
    error: float = 0.0


def _judged(learner: Learner, model: nn.Module, weights: Mapping[str, Tensor], step: int) -> Finalist:
    """The dev measures of ``weights``, by the search that users get where there is one."""
    objective = learner.objective
    measure = getattr(objective, "final", None) or objective.evaluate
    seed_everything(learner.settings.seed, learner.standing.step, "evaluate")
    model.load_state_dict(weights)
    model.eval()
    with torch.no_grad(), autocast(learner.group.device, learner.precision):
        measured = dict(measure(model))
        return Finalist(step, weights, measured, error=getattr(objective, "uncertainty", 0.0))


def _chosen(
    run: RunFolder, trainer: Trainer, result: TrainingResult, found: list[Finalist]
) -> TrainingResult:
    """Export the best finalist, where it is not what the run has exported; of equal ones the first, and the latest of those
    that the dev data cannot tell from the best."""
    learner = trainer.learner
    metric, sign = learner.objective.metric, 1 if learner.objective.greater_is_better else -1
    best = max(found, key=lambda one: (sign * one.metrics[metric], not one.of, -one.step))
    if best.error and not best.of:
        near = [one for one in found if sign * (best.metrics[metric] - one.metrics[metric]) <= best.error]
        best = max((one for one in near if not one.of), key=lambda one: one.step)
    if best.of:
        steps = ", ".join(map(str, best.of))
        trainer.reporter.say(
            f"the mean of the weights of steps {steps} is better than each: {metric} {best.metrics[metric]:.4g}"
        )
    if best.of or best.step != result.best_step:
        facts = {**learner.facts("best"), "step": best.step, "value": best.metrics[metric]}
        saving.export(run, best.weights, facts | ({"averaged": True} if best.of else {}))
    return replace(result, best=best.metrics[metric], best_step=best.step, metrics=best.metrics)


def mean_of(weights: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of several weights of one model; what is no floating-point number is that of the first.

    >>> from anaphora.training.finalists import mean_of
    >>> mean_of([{"w": torch.tensor([1.0, 4.0])}, {"w": torch.tensor([3.0, 4.0])}])
    {'w': tensor([2., 4.])}
    """
    first = weights[0]
    return {
        name: torch.stack([one[name].double() for one in weights]).mean(0).to(value.dtype)
        if value.is_floating_point()
        else value
        for name, value in first.items()
    }


def _weights(run: RunFolder, step: int) -> dict[str, Tensor] | None:
    """The (averaged) weights of a checkpoint; None for one that cannot be read, which then is no finalist."""
    try:
        state = saving.load(saving.checkpoint_path(run, step))
    except (RunError, Unusable):
        return None
    return with_average(state.tensors["model"], state.tensors.get("ema", {}))
