"""The one training loop. It knows steps, files and clocks, and nothing of tasks."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from anaphora.errors import RunError, TrainingError
from anaphora.settings import TrainingSettings
from anaphora.training import distributed, saving
from anaphora.training.checkpoint import Skipped
from anaphora.training.diagnosis import Diagnosis, diagnose
from anaphora.training.health import Finding
from anaphora.training.interrupts import Interrupts
from anaphora.training.journal import Journal
from anaphora.training.learner import Learner
from anaphora.training.objective import Batches, Objective, indices_of
from anaphora.training.progress import Clock, Reporter
from anaphora.training.run import RunFolder
from anaphora.training.state import TrainingState, changes
from anaphora.training.step import Outcome
from anaphora.training.weights import snapshot

SKIPS = 10  # steps in a row that on_nan="skip" leaves out before it gives up


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended. ``best`` and ``metrics`` are those of the weights in ``model.safetensors``."""

    steps: int
    best: float | None  # the dev metric
    best_step: int
    metrics: dict[str, float]
    stopped: Literal["finished", "patience", "interrupted"]
    trained: bool = True  # whether there was anything left to do


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
        self.settings, self.folder = settings, run
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.group = distributed.join(settings.device)
        self.learner = Learner(model, objective, batches, settings, self.group)
        self.reporter: Reporter = reporter if reporter and self.group.main else Reporter()
        self.metrics = Journal(run.metrics)
        self.samples = Journal(run.samples)
        self.bad_batches = Journal(run.bad_batches)
        self.timings = Journal(run.timings)
        # those a resumed run rewinds to the checkpoint, so that they end the same
        self.journals = {"metrics": self.metrics, "samples": self.samples, "bad-batches": self.bad_batches}
        self.interrupts = Interrupts(self.reporter.say, echo=1.0 if self.group.world > 1 else 0.0)
        self._exported: bytes | None = None  # model.safetensors as last written; every checkpoint repeats it
        self._marks: dict[str, Any] = {}  # where a resumed run continues its journals
        self._new = True  # until `resume` is called

    def resume(self) -> int:
        """Take up the newest verified checkpoint; the step it was made at, or 0 where there is none yet."""
        self._new = False
        now, folder = self.learner.state([], {}, None), self.folder.path
        found: list[TrainingState] = []

        def find() -> tuple[Path | None, list[Skipped]]:
            path, state, skipped = saving.newest(self.folder, now, lambda state: self._restore(state, now))
            found.extend([state] if state else [])
            return path, skipped

        path, skipped = self.group.on_main(find)
        for one in skipped:
            self.reporter.warn(f"{one.path}: skipped, {one.reason}.")
        if path is None:
            if skipped:
                raise RunError(
                    f"{folder}: none of its {len(skipped)} checkpoints can be used ({skipped[0].path.name}: "
                    f"{skipped[0].reason}); put back what was changed, restore one from a backup, or train anew."
                )
            self.reporter.say(f"{folder}: has no checkpoint yet, so training starts from the beginning.")
            return 0
        state = found[0] if found else saving.load(path)
        saving.check_files(self.folder, state)
        self._report_changes(state, now)
        if not found:
            self._restore(state, now)
        self._marks, self._exported = state.journals, state.exported
        if not self.learner.over():
            self.reporter.say(f"{folder}: goes on from the checkpoint of step {state.step}.")
        return state.step

    def _restore(self, state: TrainingState, now: TrainingState) -> None:
        try:
            self.learner.restore(state, now)
        except RunError as error:
            raise RunError(f"{self.folder.path}: {error}") from None

    def _report_changes(self, state: TrainingState, now: TrainingState) -> None:
        edited = state.edited(now)
        if edited:
            self.reporter.say(
                f"{self.folder.path}: {', '.join(edited)} since the checkpoint was written; the run goes on with that."
            )
        changed = changes({**dict.fromkeys(now.made_with), **state.made_with}, now.made_with)
        if changed:
            self.reporter.warn(
                f"{', '.join(changed)}: the run goes on, but not bit for bit as it would have without the change."
            )

    def run(self) -> TrainingResult:
        """Train until ``steps``, until patience ends, or until a signal asks to stop."""
        with contextlib.ExitStack() as held:
            held.enter_context(self.group.guarded())
            self.group.on_main(lambda: held.enter_context(self.folder.lock()))
            held.enter_context(self.interrupts.watched())
            try:
                self.group.on_main(self._open)
                standing = self.learner.standing
                self.clock = Clock(standing.step, self.settings.steps, standing.symbols)
                over = self.learner.over()
                stopped = self._loop()
                if not over:
                    self._note_time(event=stopped)
            finally:
                for journal in (*self.journals.values(), self.timings):
                    journal.close()
                self.reporter.finished()
        best = standing.best
        return TrainingResult(
            steps=standing.step,
            best=best["value"] if best else None,
            best_step=best["step"] if best else standing.step,
            metrics=best["metrics"] if best else standing.metrics,
            stopped=stopped,
            trained=not over,
        )

    def _open(self) -> None:
        step, folder = self.learner.standing.step, self.folder.path
        if self._new and self.folder.has_checkpoints():
            raise RunError(
                f"{folder}: already holds a run; continue it with `anaphora resume {folder}` "
                "or choose another folder."
            )
        self.folder.sweep()
        for name, journal in self.journals.items():
            problem = journal.open(self._marks.get(name))
            if problem:
                self.reporter.warn(problem)
        if self._exported is not None:
            self._exported = saving.put_model_back(self.folder, self._exported)
        if self.learner.over():
            more = f"; `anaphora resume {folder} --steps N` trains longer"
            self.reporter.say(
                f"{folder}: finished at step {step}, nothing is left to train"
                f"{more if step >= self.settings.steps else ''}."
            )
            return
        self.timings.open_whole()
        facts = {
            "steps": self.settings.steps,
            "from_step": step,
            "parameters": sum(p.numel() for p in self.learner.model.parameters()),
            "device": str(self.group.device),
            "precision": self.learner.precision,
            "world": self.group.world,
        }
        self.timings.append({"event": "resume" if step else "start", **facts, **self.learner.made_with()})
        self.reporter.started(facts)

    def _loop(self) -> Literal["finished", "patience", "interrupted"]:
        settings, learner = self.settings, self.learner
        while not learner.over():
            asked = self._step()
            step, last = learner.standing.step, learner.standing.step >= settings.steps
            if last or step % settings.log_every == 0:
                self._log()
            if last or step % settings.valid_every == 0:
                self._evaluate()
            asked = asked or (self.group.world == 1 and self.interrupts.asked)
            if last or asked or step % settings.save_every == 0 or learner.out_of_patience():
                self._save()
            if asked and not last:
                self.reporter.say(
                    f"stopped after step {step}; `anaphora resume {self.folder.path}` goes on from it."
                )
                return "interrupted"
        return "patience" if learner.standing.step < settings.steps else "finished"

    def _step(self) -> bool:
        """One step, and whether a process was asked to stop."""
        learner, standing = self.learner, self.learner.standing
        number = standing.step + 1
        batch = next(learner.batches)
        lr = learner.lr(number)
        outcome, factor = learner.stepper.gradient(batch, number, self.interrupts.asked, lr=lr)
        if not outcome.finite:
            self._not_finite(batch, number, outcome, lr)
            standing.step = number
            return outcome.asked
        if outcome.count:
            learner.stepper.apply(factor, lr)
        if learner.average:
            learner.average.update(learner.model, number)
        standing.step, standing.skipped = number, 0
        standing.add(outcome)
        diverged = learner.health.stepped(outcome.loss, outcome.norm, outcome.clipped)
        if diverged:
            raise TrainingError(
                f"step {number}: {diverged}; the steps are too large with lr = {lr:.3g}: lower lr or lengthen "
                f"warmup, then start again{saving.last_good(self.folder)}."
            )
        if self.group.main:
            self.reporter.stepped(self.clock.tick(number, standing.symbols, outcome.loss, lr))
        return outcome.asked

    def _not_finite(self, batch: Any, number: int, outcome: Outcome, lr: float) -> None:
        """Leave the step out if that is explained or allowed, else stop with a report."""
        learner = self.learner
        if math.isfinite(outcome.loss) and learner.stepper.scale.overflowed():
            return
        rerun = lambda: learner.stepper.repeat(batch, number)  # noqa: E731
        found = self.group.gather(diagnose(learner.model, self.settings, lr, learner.precision, rerun))
        # the process whose part of the batch is bad knows the layer; the others see the shared gradient only
        diagnosis: Diagnosis = min(
            found, key=lambda d: d.place == "the loss" or d.place.startswith("the gradient")
        )
        learner.standing.skipped += 1
        indices = indices_of(batch)
        what = "loss" if not math.isfinite(outcome.loss) else "gradient"
        line = {"step": number, "epoch": learner.batches.epoch, "what": what, "indices": indices}
        if self.group.main:
            self.bad_batches.append({**line, "place": diagnosis.place, "cause": diagnosis.cause})
            self.bad_batches.sync()
        more = f" and {len(indices) - 8} more" if len(indices) > 8 else ""
        shown = ", ".join(map(str, indices[:8])) + more
        examples = f" (examples {shown}; all in {self.folder.bad_batches})" if indices else ""
        text = f"step {number}: the {what} is not finite, first in {diagnosis.place}{examples}: {diagnosis.cause}"
        skip = self.settings.on_nan == "skip"
        if skip and learner.standing.skipped <= SKIPS:
            self._found([Finding("not-finite", f"{text}; this batch is left out.")])
            return
        many = f" {SKIPS} steps in a row were left out already;" if skip else ""
        raise TrainingError(
            f"{text};{many} the weights of that step are not saved{saving.last_good(self.folder)}."
        )

    def _log(self) -> None:
        learner, standing = self.learner, self.learner.standing
        line = standing.line(learner.batches.epoch, learner.lr(standing.step))
        findings = learner.health.logged(standing.step, line["loss"])
        if not self.group.main:
            return
        self.metrics.append(line)
        tick = self.clock.tick(standing.step, standing.symbols, line["loss"], line["lr"])
        self._note_time(tokens_per_second=round(tick.tokens_per_second, 1))
        self.reporter.logged(line, tick)
        self._found(findings)

    def _evaluate(self) -> None:
        learner, step = self.learner, self.learner.standing.step
        metrics, samples = self.group.on_main(learner.measure)
        best = learner.evaluated(metrics)
        if best:
            self.group.on_main(lambda: self._export("best"))
        findings = learner.health.evaluated(step, samples)
        if not self.group.main:
            return
        if metrics:
            self.metrics.append({"step": step, "dev": metrics, "best": best})
        for sample in samples:
            self.samples.append({"step": step, **sample})
        self.reporter.evaluated(step, metrics, best=best, samples=samples)
        self._found(findings)
        self._note_time(event="evaluate")

    def _export(self, chosen: Literal["best", "last"]) -> None:
        """Write the present (averaged, where there is an average) weights as the run's ``model.safetensors``."""
        learner = self.learner
        best = learner.standing.best if chosen == "best" else None
        facts = {
            "step": learner.standing.step,
            "chosen": chosen,
            "averaged": learner.average is not None and learner.average.active,
            "metric": learner.objective.metric if best else None,
            "value": best["value"] if best else None,
        }
        with learner.averaged():
            self._exported = saving.export(self.folder, snapshot(learner.model), facts)

    def _save(self) -> None:
        learner = self.learner
        carried = learner.carried()

        def write() -> Path:
            for journal in self.journals.values():
                journal.sync()
            if learner.standing.best is None:
                self._export("last")
            marks = {name: journal.mark() for name, journal in self.journals.items()}
            state = learner.state(carried, marks, self._exported)
            return saving.save(self.folder, state, keep=self.settings.keep)

        path = self.group.on_main(write)
        if self.group.main:
            self.reporter.saved(learner.standing.step, str(path))
            self._note_time(event="save")

    def _found(self, findings: list[Finding]) -> None:
        for finding in findings if self.group.main else ():
            self.metrics.append(
                {"step": self.learner.standing.step, "health": finding.kind, "message": finding.message}
            )
            self.reporter.warn(finding.message)

    def _note_time(self, **more: Any) -> None:
        if self.group.main:
            self.timings.append(
                {"step": self.learner.standing.step, "seconds": round(self.clock.seconds(), 3), **more}
            )
