"""The parts of a training that change from step to step, read as one value and restored from one."""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Mapping
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anaphora.errors import RunError
from anaphora.native.cuda import check_kernels
from anaphora.settings import TrainingSettings
from anaphora.settings.own import Part
from anaphora.training.averaging import average_of
from anaphora.training.callbacks import Callbacks
from anaphora.training.distributed import Group
from anaphora.training.health import Health
from anaphora.training.objective import Batches, Objective, carried_state
from anaphora.training.optimizers import optimizer_tensors, restore_optimizer
from anaphora.training.own import group_numbers, unsaved
from anaphora.training.precision import Precision, autocast, choose_precision, fallback
from anaphora.training.schedules import Progress, learning_rate
from anaphora.training.seeding import seed_everything
from anaphora.training.sharding import Sharded, check, like
from anaphora.training.state import Standing, TrainingState, made_with
from anaphora.training.step import Stepper
from anaphora.training.tuning import NONE, Tuning
from anaphora.training.weights import snapshot


class Learner:
    """A model, its optimizer and all that is counted. It knows neither files nor clocks."""

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        batches: Batches,
        settings: TrainingSettings,
        group: Group,
        tuning: Tuning = NONE,
    ):
        self.objective, self.batches, self.settings, self.group = objective, batches, settings, group
        self.precision: Precision = choose_precision(settings.precision, group.device)
        if settings.shard == "full":
            check(settings)
        self.model = model.to(group.device)
        self.stepper = Stepper(self.model, objective, settings, group, self.precision, tuning)
        self.average = average_of(self.model, settings)
        self.health = Health(settings, objective.chance)
        self.progress = Progress()
        self.standing = Standing()
        self.carried_lost = (
            False  # what was carried from step to step could not be divided among these processes
        )
        self.callbacks = Callbacks(settings.callbacks)

    def lr(self, step: int) -> float:
        return learning_rate(self.settings, step, self.progress.halvings)

    def over(self) -> bool:
        """Whether nothing is left to train."""
        stopped = self.callbacks.stopped is not None
        return stopped or self.standing.step >= self.settings.steps or self.out_of_patience()

    def out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.progress.since_best

    def averaged(self) -> contextlib.AbstractContextManager[None]:
        """Inside, the model has the averaged weights, where there is an average."""
        return self.average.in_place_of(self.model) if self.average else contextlib.nullcontext()

    @property
    def sharded(self) -> Sharded | None:
        """The processes' parts of the weights, where those are divided."""
        return self.stepper.sharded

    def gathered(self) -> dict[str, Tensor] | None:
        """The whole (averaged) weights in the first process, where they are divided. All processes must call this."""
        if self.sharded is None:
            return None
        with self.averaged():
            return self.sharded.gathered()

    def measure(
        self, weights: Mapping[str, Tensor] | None = None
    ) -> tuple[dict[str, float], list[dict[str, str]]]:
        """The dev metrics and sample outputs of the (averaged) weights; ``weights``: what `gathered` gave."""
        seed_everything(self.settings.seed, self.standing.step, "evaluate")
        if self.sharded is not None and weights is not None:
            try:
                return self._measured(self.sharded.whole(weights))
            finally:
                self.sharded.put_away()
        with self.averaged():
            return self._measured(self.model)

    def _measured(self, model: nn.Module) -> tuple[dict[str, float], list[dict[str, str]]]:
        model.eval()
        with torch.no_grad(), autocast(self.group.device, self.precision):
            measured = dict(self.objective.evaluate(model)), list(self.objective.samples(model))
        check_kernels()
        return measured

    def evaluated(self, metrics: dict[str, float]) -> bool:
        """Count an evaluation; whether its dev metric is the best so far."""
        self.model.train()
        self.standing.metrics = metrics
        value = metrics.get(self.objective.metric)
        if value is None:
            return False
        best = self._better(value, metrics.get("loss", math.nan))
        sign = 1 if self.objective.greater_is_better else -1
        self.progress.evaluated(best, -sign * value, metrics.get("loss", math.nan))
        if self.average:
            self.average.evaluated(self.progress.values)
        if best:
            self.standing.best = {"step": self.standing.step, "value": value, "metrics": metrics}
        self.standing.rank(value, sign, self.settings.keep_best)
        return best

    def ranked_steps(self) -> set[int]:
        """The steps with the best dev metrics so far, whose checkpoints stay: ``keep_best``."""
        return {int(one["step"]) for one in self.standing.ranked}

    def _better(self, value: float, loss: float) -> bool:
        """Whether the dev metric is better than ever, or as good with a lower loss: of few examples the same share is right again and again."""
        if not math.isfinite(value):
            return False
        best = self.standing.best
        if best is None:
            return True
        sign = 1 if self.objective.greater_is_better else -1
        if value == best["value"]:
            return bool(loss < best["metrics"].get("loss", -math.inf))
        return bool(sign * value > sign * float(best["value"]))

    def facts(self, chosen: Literal["best", "last"]) -> dict[str, Any]:
        """What the present (averaged) weights say of themselves as the run's ``model.safetensors``."""
        best = self.standing.best if chosen == "best" else None
        return {
            "step": self.standing.step,
            "chosen": chosen,
            "averaged": self.average is not None and self.average.active,
            "metric": self.objective.metric if best else None,
            "value": best["value"] if best else None,
        }

    def fall_back(self, precision: Precision) -> None:
        """Compute in ``precision`` for the rest of the run: fp16 cannot hold its numbers."""
        self.precision = precision
        self.stepper.fall_back(precision)

    def carried(self) -> list[dict[str, Tensor]]:
        """What the objective of each process carries to the next step, by rank. All processes must call this."""
        return self.group.gather({k: v.cpu() for k, v in carried_state(self.objective).items()})

    def state(
        self, carried: list[dict[str, Tensor]], journals: dict[str, Any], exported: bytes | None
    ) -> TrainingState:
        """The training as it stands, with the marks of its journals and the bytes of its exported weights."""
        tensors = {
            "model": snapshot(self.model),
            "optimizer": optimizer_tensors(self.model, self.stepper.optimizer),
            "ema": self.average.tensors if self.average else {},
            "objective": {f"{rank}/{k}": v for rank, mine in enumerate(carried) for k, v in mine.items()},
            "callbacks": self.callbacks.tensors(),
        }
        return TrainingState(
            standing=self.standing.noted(),
            progress=self.progress.state(),
            health=self.health.state(),
            scale=self.stepper.scale.state(),
            batches=self.batches.state(),
            journals=journals,
            made_with=self.made_with(),
            settings=json.loads(self.settings.model_dump_json()),
            own=self._own(),
            tensors=tensors,
            exported=exported,
        )

    def _own(self) -> dict[str, Any]:
        """What own parts keep besides tensors."""
        kept: dict[str, Any] = {}
        if len(self.callbacks):
            kept |= {"callbacks": self.callbacks.state(), "stopped": self.callbacks.stopped}
        if isinstance(self.settings.optimizer, Part):
            optimizer = self.stepper.optimizer
            kept |= {"groups": group_numbers(optimizer), "lost": unsaved(optimizer)}
        return kept

    def _restore_own(self, state: TrainingState, now: TrainingState) -> None:
        if state.own.get("lost"):
            raise RunError(f"cannot be resumed, as {state.own['lost']}.")
        for group, noted in zip(
            self.stepper.optimizer.param_groups, state.own.get("groups", ()), strict=False
        ):
            group.update(noted)
        self.callbacks.restore(state.own.get("callbacks", []), state.tensors.get("callbacks", {}))
        if state.settings.get("steps") == now.settings["steps"]:  # a run that is made longer goes on
            self.callbacks.stopped = state.own.get("stopped")

    def restore(self, state: TrainingState, now: TrainingState) -> None:
        """Continue from ``state``; ``now`` is this training before its first step."""
        self._restore_own(state, now)
        ours = self.model.state_dict()
        self.model.load_state_dict(
            {name: like(ours[name], value) for name, value in state.tensors["model"].items()}
        )
        restore_optimizer(self.model, self.stepper.optimizer, state.tensors["optimizer"])
        if self.average:
            self.average.restore(state.tensors["ema"])
        if state.same_batches(now):
            self._restore_carried(state)
        self.standing = Standing.of(state.standing)
        self.progress = Progress(**state.progress)
        self.health.restore(state.health)
        self.stepper.scale.restore(state.scale)
        if self.precision == "fp16" and self.stepper.scale.fallen:
            self.fall_back(fallback(self.group.device))
        try:
            self.batches.restore(state.batches)
        except (LookupError, TypeError, ValueError):
            if state.same_batches(now):
                raise
            raise RunError(
                "the position in the data cannot be found again, as by config.json "
                f"{', '.join(state.edited(now))}; put back what was changed, or train again."
            ) from None

    def _restore_carried(self, state: TrainingState) -> None:
        """What each process carried, to each; to another number of processes as far as the objective can divide it."""
        same = state.made_with["world"] == self.group.world
        mine = state.carried(self.group.rank if same else None, self.group.device)
        if not mine:
            return
        if same:
            self.objective.load_state_dict(mine)  # type: ignore[attr-defined]
        self.carried_lost = not same and not hasattr(self.objective, "load_shares")
        if not same and callable(divide := getattr(self.objective, "load_shares", None)):
            parts = self.settings.accumulate
            divide(mine, [self.group.rank * parts + part for part in range(parts)], self.group.world * parts)

    def made_with(self) -> dict[str, Any]:
        return made_with(self.group.device, self.group.world, self.precision)
