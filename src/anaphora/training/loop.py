"""The one training loop. It knows steps, files and clocks, and nothing of tasks."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from anaphora.errors import RunError, TrainingError
from anaphora.kinds.result import html_table
from anaphora.settings import TrainingSettings
from anaphora.training import distributed, saving
from anaphora.training.bad_steps import BadSteps
from anaphora.training.callbacks import Moment
from anaphora.training.film import Film
from anaphora.training.health import Finding
from anaphora.training.interrupts import Interrupts
from anaphora.training.journal import Journal
from anaphora.training.keeper import Keeper
from anaphora.training.learner import Learner
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Clock, Reporter
from anaphora.training.resuming import Resumed, go_back, take_up
from anaphora.training.run import RunFolder
from anaphora.training.step import Outcome
from anaphora.training.tuning import NONE, Tuning
from anaphora.training.weights import snapshot

Ending = Literal["finished", "patience", "interrupted", "callback"]


@dataclass(frozen=True)
class TrainingResult:
    """How a run ended. ``best`` and ``metrics`` are those of the weights in ``model.safetensors``."""

    steps: int
    best: float | None  # the dev metric
    best_step: int
    metrics: dict[str, float]
    stopped: Ending
    trained: bool = True  # whether there was anything left to do
    metric: str = ""  # the name of the dev metric
    greater_is_better: bool = True

    def _repr_html_(self) -> str:
        """A table for a notebook."""
        measured = {f"dev {name}": value for name, value in self.metrics.items()}
        return html_table(
            {"steps": self.steps, "best at step": self.best_step, "ended": self.stopped, **measured}
        )


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
        tuning: Tuning = NONE,
        film: Film | None = None,
    ):
        self.settings, self.folder = settings, run
        if settings.threads:
            torch.set_num_threads(settings.threads)
        self.group = distributed.join(settings.device)
        self.learner = Learner(model, objective, batches, settings, self.group, tuning)
        self.reporter: Reporter = reporter if reporter and self.group.main else Reporter()
        self.metrics = Journal(run.metrics)
        self.samples = Journal(run.samples)
        self.bad_batches = Journal(run.bad_batches)
        self.timings = Journal(run.timings)
        # those a resumed run rewinds to the checkpoint, so that they end the same
        self.journals = {"metrics": self.metrics, "samples": self.samples, "bad-batches": self.bad_batches}
        self.interrupts = Interrupts(self.reporter.say, echo=1.0 if self.group.world > 1 else 0.0)
        self.keeper = Keeper(run, self.journals, settings)
        self.film = film or Film(run, 0, 1)
        self.bad_steps = BadSteps(self.learner, run, self.bad_batches, self._found)
        self._resumed = Resumed()
        self._named: int | None = None  # the checkpoint that `resume` names
        self._new = True  # until `resume` is called
        self._last: Outcome | None = None
        self._parts = settings.accumulate
        self._next: Any = None  # the batch of a step that has begun before the last one was finished

    def resume(self, checkpoint: int | None = None) -> int:
        """Take up the newest verified checkpoint, or that of step ``checkpoint``; the step, or 0 where there is none.

        `run` then removes the checkpoints after the named one.
        """
        self._new = False
        self._resumed = take_up(self.learner, self.folder, self.reporter, checkpoint)
        self._named = checkpoint
        return self._resumed.step

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
                if not over:
                    self._first_frame()
                    self._call("on_start")
                stopped = self._loop()
                if not over:
                    self._call("on_end")
                if not over:
                    self._note_time(event=stopped)
            except KeyboardInterrupt:
                self.keeper.abandon()
                raise
            finally:
                self.keeper.close()
                self.timings.close()
                self.reporter.finished()
        best = standing.best
        return TrainingResult(
            steps=standing.step,
            best=best["value"] if best else None,
            best_step=best["step"] if best else standing.step,
            metrics=best["metrics"] if best else standing.metrics,
            stopped=stopped,
            trained=not over,
            metric=self.learner.objective.metric,
            greater_is_better=self.learner.objective.greater_is_better,
        )

    def _open(self) -> None:
        step, folder = self.learner.standing.step, self.folder.path
        if self._new and self.folder.has_checkpoints():
            raise RunError(
                f"{folder}: already holds a run; continue it with `anaphora resume {folder}` "
                "or choose another folder."
            )
        self.folder.sweep()
        if self._named is not None:
            go_back(self.folder, self._named, self.reporter)
        for problem in self.keeper.open(self._resumed):
            self.reporter.warn(problem)
        if not self.learner.over():
            self.film.rewind(step)
        if self.learner.over():
            more = ""
            if step >= self.settings.steps:
                more = f"; `anaphora resume {folder} --steps N` with N above {step} trains longer"
            elif self.learner.out_of_patience():
                more = f", since patience = {self.settings.patience} ran out; a larger one in its config.json, or 0, trains longer"
            self.reporter.say(f"{folder}: finished at step {step}, nothing is left to train{more}.")
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
        self.reporter.started({**facts, "counts": getattr(self.learner.objective, "counts", "symbols")})

    def _call(self, hook: str) -> None:
        """Let the callbacks know; one that stops in any process stops all."""
        learner, last = self.learner, self._last
        if not len(learner.callbacks):
            return
        standing, best = learner.standing, learner.standing.best
        now = Moment(
            standing.step,
            self.settings.steps,
            learner.model,
            self.folder.path,
            loss=last.loss if last else None,
            grad_norm=last.norm if last else None,
            lr=learner.lr(standing.step) if standing.step else None,
            metrics=dict(standing.metrics),
            best=bool(best and best["step"] == standing.step),
        )
        learner.callbacks.call(hook, now)
        if self.group.world > 1:
            learner.callbacks.stopped = next(filter(None, self.group.gather(learner.callbacks.stopped)), None)

    def _loop(self) -> Ending:
        settings, learner = self.settings, self.learner
        while not learner.over():
            asked = self._step()
            self._report_saved()
            if asked and settings.save_in_background:
                self.group.on_main(self.keeper.check)
            step, last = learner.standing.step, learner.standing.step >= settings.steps
            if last or step % settings.log_every == 0:
                self._log()
            if last or step % settings.valid_every == 0:
                self._evaluate()
            asked = asked or (self.group.world == 1 and self.interrupts.asked)
            if self._next is not None:  # a step has begun: it is finished first, with none begun after it
                continue
            due = step % settings.save_every == 0 or step in learner.ranked_steps()
            if last or asked or due or learner.over():
                self._save()
            if asked and not last:
                self._finish_saving()
                self.reporter.say(
                    f"stopped after step {step}; `anaphora resume {self.folder.path}` goes on from it."
                )
                return "interrupted"
        self._finish_saving()
        if learner.callbacks.stopped:
            return "callback"
        return "patience" if learner.standing.step < settings.steps else "finished"

    def _step(self) -> bool:
        """One step, and whether a process was asked to stop."""
        learner, standing = self.learner, self.learner.standing
        number = standing.step + 1
        batch, self._next = next(learner.batches) if self._next is None else self._next, None
        lr = learner.lr(number)
        stop = self.interrupts.asked or self.keeper.failed
        queued = learner.stepper.queue(batch, number, stop, lr=lr)
        if not stop and self._begins_early(number + 1):
            self._next = next(learner.batches)
            learner.stepper.begin(self._next, number + 1)
        outcome, factor = learner.stepper.finish(queued)
        self._note_parts(number, learner.stepper.parts)
        if not outcome.finite:
            self.bad_steps.met(batch, number, outcome, lr)
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
        self._last = outcome
        self._call("on_step")
        return outcome.asked

    def _begins_early(self, number: int) -> bool:
        """Whether step ``number`` may begin before the one before it is finished: not where that is looked at as a whole, to
        log it, to evaluate, to save, or by a callback."""
        settings, before = self.settings, number - 1
        seen = (settings.log_every, settings.valid_every, settings.save_every)
        if before >= settings.steps or any(before % every == 0 for every in seen):
            return False
        return self.learner.stepper.begins_early and not len(self.learner.callbacks)

    def _note_parts(self, number: int, parts: int) -> None:
        """Warn when a batch took more parts than any before: memory ran out with fewer."""
        if parts > self._parts:
            self._parts = parts
            text = (
                f"step {number}: memory ran out; the batch was worked through in {parts} parts, which costs time and "
                f"changes nothing but rounding and the random numbers of dropout. Set accumulate = {parts} to begin "
                "with that, or lower batch_tokens."
            )
            self._found([Finding("memory", text)])

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
        learner, step, begun = self.learner, self.learner.standing.step, time.monotonic()
        weights = learner.gathered()
        metrics, samples = self.group.on_main(lambda: learner.measure(weights))
        took = time.monotonic() - begun
        best = learner.evaluated(metrics)
        if best:
            self.group.on_main(lambda: self._export("best", weights))
        findings = learner.health.evaluated(step, samples)
        self.group.on_main(lambda: self._take_frame(weights))
        self._call("on_validation")
        if not self.group.main:
            return
        if metrics:
            self.metrics.append({"step": step, "dev": metrics, "best": best})
        for sample in samples:
            self.samples.append({"step": step, **sample})
        self.reporter.evaluated(step, metrics, best=best, samples=samples)
        self._found(findings)
        self._note_time(event="evaluate", took=round(took, 3))

    def note_after(self, event: str, took: float) -> None:
        """Add to ``timings.jsonl`` what was done after the training, and how many seconds it took."""
        self.timings.open_whole()
        self._note_time(event=event, took=round(took, 3))
        self.timings.close()

    def _first_frame(self) -> None:
        """The weights before the first step, as a frame of the film."""
        if self.learner.standing.step == 0 and self.film.on:
            weights = self.learner.gathered()
            self.group.on_main(lambda: self._take_frame(weights))

    def _take_frame(self, weights: dict[str, Tensor] | None) -> None:
        """Keep the weights that were evaluated; ``weights``: what `gathered` gave."""
        if not self.film.on:
            return
        step = self.learner.standing.step
        last = step >= self.settings.steps
        if weights is not None:
            self.film.take(step, weights, last=last)
        else:
            with self.learner.averaged():
                self.film.take(step, snapshot(self.learner.model), last=last)
        if self.film.problem and "cannot" in self.film.problem:
            self.reporter.warn(f"step {step}: {self.film.problem}.")

    def _export(self, chosen: Literal["best", "last"], weights: dict[str, Tensor] | None = None) -> None:
        """Write the present (averaged, where there is an average) weights as the run's ``model.safetensors``; ``weights``:
        what `gathered` gave."""
        facts = self.learner.facts(chosen)
        if weights is not None:
            self.keeper.export(weights, facts)
            return
        with self.learner.averaged():
            self.keeper.export(snapshot(self.learner.model), facts)

    def _save(self) -> None:
        learner = self.learner
        self._call("on_checkpoint")
        carried = learner.carried()

        last = learner.standing.best is None
        weights = learner.gathered() if last else None

        def write() -> None:
            if last:
                self._export("last", weights)
            if not learner.sharded:
                self.keeper.save(lambda marks: learner.state(carried, marks, None))

        self.group.on_main(write)
        if learner.sharded:
            self.keeper.save_parts(self.group, lambda marks: learner.state(carried, marks, None))
        self._report_saved()

    def _finish_saving(self) -> None:
        """Wait for what is written in the background; an error of it ends every process."""
        if self.settings.save_in_background:
            self.group.on_main(self.keeper.finish)
            self._report_saved()

    def _report_saved(self) -> None:
        for step, path in self.keeper.saved():
            self.reporter.saved(step, str(path))
            self._note_time(event="save", of_step=step)

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
