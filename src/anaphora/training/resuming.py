"""Taking up a training where a checkpoint left it: which one, whether it fits, and what has changed since."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.training import saving
from anaphora.training.checkpoint import CheckpointFolder, Skipped, Unusable
from anaphora.training.learner import Learner
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.state import TrainingState, changes


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on: ``marks`` say how long its journals were, ``exported`` is its ``model.safetensors``."""

    step: int = 0
    marks: dict[str, Any] = field(default_factory=dict)
    exported: bytes | None = None


def take_up(learner: Learner, run: RunFolder, reporter: Reporter, checkpoint: int | None = None) -> Resumed:
    """Restore ``learner`` from the newest checkpoint that verifies, or from that of step ``checkpoint``.

    All processes must call this. Later checkpoints stay until the run is locked: see `go_back`.
    """
    now, folder = learner.state([], {}, None), run.path
    found: list[TrainingState] = []

    def find() -> tuple[Path | None, list[Skipped]]:
        if checkpoint is not None:
            found.append(_named(learner, run, now, checkpoint))
            return CheckpointFolder(run.checkpoints).path_of(checkpoint), []
        path, state, skipped = saving.newest(run, now, lambda state: _restore(learner, run, state, now))
        found.extend([state] if state else [])
        return path, skipped

    path, skipped = learner.group.on_main(find)
    for one in skipped:
        reporter.warn(f"{one.path}: skipped, {one.reason}.")
    if path is None:
        if skipped:
            raise RunError(
                f"{folder}: none of its {len(skipped)} checkpoints can be used ({skipped[0].path.name}: "
                f"{skipped[0].reason}); put back what was changed, or train again."
            )
        reporter.say(f"{folder}: has no checkpoint yet, so training starts from the beginning.")
        return Resumed()
    state = found[0] if found else saving.load(path)
    saving.check_files(run, state)
    if not found:
        _restore(learner, run, state, now)
    _report_changes(learner, run, reporter, state, now)
    if not learner.over():
        reporter.say(f"{folder}: goes on from the checkpoint of step {state.step}.")
    return Resumed(state.step, state.journals, state.exported)


def go_back(run: RunFolder, step: int, reporter: Reporter) -> None:
    """Remove the checkpoints after ``step``, newest first: at every instant the newest is one to go on from."""
    removed = CheckpointFolder(run.checkpoints).remove_after(step)
    if removed:
        names = ", ".join(str(one) for one in reversed(removed))
        reporter.say(f"{run.path}: goes back to step {step}; the checkpoints after it ({names}) are removed.")


def _named(learner: Learner, run: RunFolder, now: TrainingState, step: int) -> TrainingState:
    try:
        return saving.named(run, step, now, lambda state: _restore(learner, run, state, now))
    except Unusable as reason:
        path = CheckpointFolder(run.checkpoints).path_of(step)
        raise RunError(f"{path}: cannot be used, {reason}; name another checkpoint.") from None


def _restore(learner: Learner, run: RunFolder, state: TrainingState, now: TrainingState) -> None:
    try:
        learner.restore(state, now)
    except RunError as error:
        raise RunError(f"{run.path}: {error}") from None


def _report_changes(
    learner: Learner, run: RunFolder, reporter: Reporter, state: TrainingState, now: TrainingState
) -> None:
    edited = state.edited(now)
    if edited and not learner.over():
        reporter.say(
            f"{run.path}: {', '.join(edited)} since the checkpoint was written; the run goes on with that."
        )
    if learner.carried_lost:
        reporter.warn(
            "what is carried from step to step cannot be divided among another number of processes; it starts again."
        )
    here = learner.made_with()
    changed = changes({**dict.fromkeys(here), **state.made_with}, here)
    if changed:
        reporter.warn(
            f"{', '.join(changed)}: the run goes on, but not bit for bit as it would have without the change."
        )
