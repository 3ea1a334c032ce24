"""The one training loop. It knows steps, files and clocks, and nothing of tasks."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import nn

from anaphora.errors import RunError, TrainingError
from anaphora.settings import TrainingSettings
from anaphora.training import distributed
from anaphora.training.averaging import average_of
from anaphora.training.clock import Clock
from anaphora.training.diagnosis import Diagnosis, diagnose
from anaphora.training.health import Finding, Health
from anaphora.training.interrupts import Interrupts
from anaphora.training.journal import Journal
from anaphora.training.objective import Batches, Objective, indices_of
from anaphora.training.precision import autocast, choose_precision
from anaphora.training.progress import Reporter, SilentReporter
from anaphora.training.run import RunFolder
from anaphora.training.saving import Keeper
from anaphora.training.schedules import Progress, learning_rate
from anaphora.training.seeding import seed_everything
from anaphora.training.step import Outcome, Stepper

SKIPS = 10  # steps in a row that on_nan="skip" leaves out before it gives up


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended. ``best`` and ``metrics`` are those of the weights in ``model.safetensors``."""

    steps: int
    best: float | None  # the dev metric
    best_step: int
    metrics: dict[str, float]
    stopped: Literal["finished", "patience", "interrupted"]


@dataclass
class Standing:
    """Everything that is counted from step to step; goes into every checkpoint."""

    step: int = 0
    symbols: int = 0
    skipped: int = 0  # steps left out in a row
    best: dict[str, Any] | None = None  # {"step", "value", "metrics"}
    metrics: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    # since the last line of metrics.jsonl
    total: float = 0.0
    count: float = 0.0
    norms: float = 0.0
    steps: int = 0
    clipped: int = 0

    def add(self, outcome: Outcome) -> None:
        self.symbols += int(outcome.count)
        self.total += outcome.loss * outcome.count
        self.count += outcome.count
        self.norms += outcome.norm
        self.steps += 1
        self.clipped += outcome.clipped

    def line(self, epoch: int, lr: float) -> dict[str, Any]:
        """The line for metrics.jsonl; begins the next stretch."""
        line = {
            "step": self.step,
            "epoch": epoch,
            "symbols": self.symbols,
            "loss": self.total / max(1.0, self.count),
            "lr": lr,
            "grad_norm": self.norms / max(1, self.steps),
            "clipped": self.clipped / max(1, self.steps),
        }
        self.total = self.count = self.norms = 0.0
        self.steps = self.clipped = 0
        return line


class Trainer:
    """Trains ``model`` on ``batches`` towards ``objective`` and keeps everything in ``run``.

    ``run()`` trains to the end. ``resume()`` before it continues from the newest checkpoint that verifies.
    Started by torchrun, all processes build the same Trainer; rank 0 alone writes.
    """

    def __init__(
        self,
        model: nn.Module,
        objective: Objective,
        batches: Batches,
        settings: TrainingSettings,
        run: RunFolder,
        reporter: Reporter | None = None,
    ):
        self.settings, self.objective, self.batches, self.folder = settings, objective, batches, run
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.group = distributed.join(settings.device)
        self.device = self.group.device
        self.precision = choose_precision(settings.precision, self.device)
        self.model = model.to(self.device)
        self.reporter: Reporter = reporter if reporter and self.group.main else SilentReporter()
        self.stepper = Stepper(self.model, objective, settings, self.group, self.precision)
        self.average = average_of(self.model, settings)
        self.health = Health(settings, objective.chance)
        self.progress = Progress()
        self.standing = Standing()
        self.metrics = Journal(run.metrics)
        self.samples = Journal(run.samples)
        self.bad_batches = Journal(run.bad_batches)
        self.timings = Journal(run.timings)
        self.keeper = Keeper(self)
        self.interrupts = Interrupts(self.reporter.say, echo=1.0 if self.group.world > 1 else 0.0)

    def resume(self) -> int:
        """Take up the newest verified checkpoint; the step it was made at, or 0 where there is none yet."""
        return self.keeper.restore()

    def run(self) -> TrainingResult:
        """Train until ``steps``, until patience ends, or until somebody asks to stop."""
        with contextlib.ExitStack() as held:
            self.group.on_main(lambda: held.enter_context(self.folder.lock()))
            held.enter_context(self.interrupts.watched())
            try:
                self.group.on_main(self._open)
                self.clock = Clock(self.standing.step, self.settings.steps, self.standing.symbols)
                over = self.over()
                stopped = self._loop()
                if not over:
                    self._note_time(event=stopped)
            finally:
                for journal in (self.metrics, self.samples, self.bad_batches, self.timings):
                    journal.close()
                self.reporter.finished()
        best = self.standing.best
        return TrainingResult(
            steps=self.standing.step,
            best=best["value"] if best else None,
            best_step=best["step"] if best else self.standing.step,
            metrics=best["metrics"] if best else self.standing.metrics,
            stopped=stopped,
        )

    def _open(self) -> None:
        if not self.keeper.asked_to_resume and self.folder.has_checkpoints():
            raise RunError(
                f"{self.folder.path}: already holds a run; continue it with `anaphora resume {self.folder.path}` "
                "or choose another folder."
            )
        self.folder.sweep()
        for name, journal in self.journals.items():
            problem = journal.open(self.keeper.marks.get(name))
            if problem:
                self.reporter.warn(problem)
        self.keeper.put_model_back()
        if self.over():
            more = f"; `anaphora resume {self.folder.path} --steps N` trains longer"
            self.reporter.say(
                f"{self.folder.path}: finished at step {self.standing.step}, nothing is left to train"
                f"{more if self.standing.step >= self.settings.steps else ''}."
            )
            return
        self.timings.open_whole()
        facts = {
            "steps": self.settings.steps,
            "from_step": self.standing.step,
            "parameters": sum(p.numel() for p in self.model.parameters()),
            "device": str(self.device),
            "precision": self.precision,
            "world": self.group.world,
        }
        self.timings.append(
            {"event": "resume" if self.standing.step else "start", **facts, **self.keeper.made_with()}
        )
        self.reporter.started(facts)

    @property
    def journals(self) -> dict[str, Journal]:
        """Those a resumed run rewinds to the checkpoint, so that they end the same."""
        return {"metrics": self.metrics, "samples": self.samples, "bad-batches": self.bad_batches}

    def _loop(self) -> Literal["finished", "patience", "interrupted"]:
        settings, standing = self.settings, self.standing
        while not self.over():
            asked = self._step()
            step, last = standing.step, standing.step >= settings.steps
            if last or step % settings.log_every == 0:
                self._log()
            if last or step % settings.valid_every == 0:
                self._evaluate()
            asked = asked or (self.group.world == 1 and self.interrupts.asked)
            if last or asked or step % settings.save_every == 0 or self._out_of_patience():
                self._save()
            if asked and not last:
                self.reporter.say(
                    f"stopped after step {step}; `anaphora resume {self.folder.path}` goes on from it."
                )
                return "interrupted"
        return "patience" if standing.step < settings.steps else "finished"

    def _step(self) -> bool:
        """One step, and whether somebody asked to stop."""
        standing = self.standing
        number = standing.step + 1
        batch = next(self.batches)
        lr = self._lr(number)
        outcome, factor = self.stepper.gradient(batch, number, self.interrupts.asked, lr=lr)
        if not outcome.finite:
            self._not_finite(batch, number, outcome, lr)
            standing.step = number
            return outcome.asked
        if outcome.count:
            self.stepper.apply(factor, lr)
        if self.average:
            self.average.update(self.model, number)
        standing.step, standing.skipped = number, 0
        standing.add(outcome)
        diverged = self.health.stepped(outcome.loss, outcome.norm, outcome.clipped)
        if diverged:
            raise TrainingError(
                f"step {number}: {diverged}; the steps are too large with lr = {lr:.3g}: lower lr or lengthen "
                f"warmup, then start again{self.keeper.last_good()}."
            )
        if self.group.main:
            self.reporter.stepped(self.clock.tick(number, standing.symbols, outcome.loss, lr))
        return outcome.asked

    def _lr(self, number: int) -> float:
        return learning_rate(self.settings, number, self.progress.halvings)

    def _not_finite(self, batch: Any, number: int, outcome: Outcome, lr: float) -> None:
        """Leave the step out if that is explained or allowed, else stop with a report."""
        if math.isfinite(outcome.loss) and self.stepper.scale.overflowed():
            return
        found = self.group.gather(
            diagnose(
                self.model, self.settings, lr, self.precision, lambda: self.stepper.repeat(batch, number)
            )
        )
        # the process whose part of the batch is bad knows the layer; the others see the shared gradient only
        diagnosis: Diagnosis = min(
            found, key=lambda d: d.place == "the loss" or d.place.startswith("the gradient")
        )
        self.standing.skipped += 1
        indices = indices_of(batch)
        what = "loss" if not math.isfinite(outcome.loss) else "gradient"
        line = {"step": number, "epoch": self.batches.epoch, "what": what, "indices": indices}
        if self.group.main:
            self.bad_batches.append({**line, "place": diagnosis.place, "cause": diagnosis.cause})
            self.bad_batches.sync()
        shown = ", ".join(map(str, indices[:8])) + (
            f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        )
        examples = f" (examples {shown}; all in {self.folder.bad_batches})" if indices else ""
        text = f"step {number}: the {what} is not finite, first in {diagnosis.place}{examples}: {diagnosis.cause}"
        if self.settings.on_nan == "skip" and self.standing.skipped <= SKIPS:
            self._found([Finding("not-finite", f"{text}; this batch is left out.")])
            return
        many = f" {SKIPS} steps in a row were left out already;" if self.settings.on_nan == "skip" else ""
        raise TrainingError(f"{text};{many} the weights of that step are not saved{self.keeper.last_good()}.")

    def _log(self) -> None:
        line = self.standing.line(self.batches.epoch, self._lr(self.standing.step))
        findings = self.health.logged(self.standing.step, line["loss"])
        if not self.group.main:
            return
        self.metrics.append(line)
        tick = self.clock.tick(self.standing.step, self.standing.symbols, line["loss"], line["lr"])
        self._note_time(tokens_per_second=round(tick.tokens_per_second, 1))
        self.reporter.logged(line, tick)
        self._found(findings)

    def _evaluate(self) -> None:
        step, standing = self.standing.step, self.standing

        def measure() -> tuple[dict[str, float], list[dict[str, str]]]:
            averaged = self.average.in_place_of(self.model) if self.average else contextlib.nullcontext()
            seed_everything(self.settings.seed, step, "evaluate")
            self.model.eval()
            with averaged, torch.no_grad(), autocast(self.device, self.precision):
                return dict(self.objective.evaluate(self.model)), list(self.objective.samples(self.model))

        metrics, samples = self.group.on_main(measure)
        self.model.train()
        value = metrics.get(self.objective.metric)
        best = value is not None and self._better(value)
        if value is not None:
            self.progress.evaluated(best)
            if self.average:
                self.average.evaluated(self.progress.since_best)
        standing.metrics = metrics
        if best:
            standing.best = {"step": step, "value": value, "metrics": metrics}
            self.group.on_main(lambda: self.keeper.export("best"))
        findings = self.health.evaluated(step, samples)
        if not self.group.main:
            return
        if metrics:
            self.metrics.append({"step": step, "dev": metrics, "best": best})
        for sample in samples:
            self.samples.append({"step": step, **sample})
        self.reporter.evaluated(step, metrics, best=best, samples=samples)
        self._found(findings)
        self._note_time(event="evaluate")

    def _better(self, value: float) -> bool:
        if not math.isfinite(value):
            return False
        if self.standing.best is None:
            return True
        sign = 1 if self.objective.greater_is_better else -1
        return bool(sign * value > sign * float(self.standing.best["value"]))

    def over(self) -> bool:
        """Whether nothing is left to train."""
        return self.standing.step >= self.settings.steps or self._out_of_patience()

    def _out_of_patience(self) -> bool:
        return 0 < self.settings.patience <= self.progress.since_best

    def _save(self) -> None:
        path = self.keeper.save()
        if self.group.main:
            self.reporter.saved(self.standing.step, str(path))
            self._note_time(event="save")

    def _found(self, findings: list[Finding]) -> None:
        for finding in findings if self.group.main else ():
            self.metrics.append(
                {"step": self.standing.step, "health": finding.kind, "message": finding.message}
            )
            self.reporter.warn(finding.message)

    def _note_time(self, **more: Any) -> None:
        if self.group.main:
            self.timings.append(
                {"step": self.standing.step, "seconds": round(self.clock.seconds(), 3), **more}
            )
