"""Whether everything in a run folder is what was written."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

from anaphora.errors import RunError
from anaphora.training.checkpoint import CheckpointFolder, Unusable, read
from anaphora.training.film import frame_weights, frames
from anaphora.training.journal import read_journal
from anaphora.training.run import RunFolder
from anaphora.training.weights import first_not_finite


@dataclass(frozen=True)
class Verdict:
    """One file or checkpoint. ``detail`` says what it holds, or what is wrong with it."""

    name: str
    state: Literal["good", "damaged", "missing"]
    detail: str


def verify_run(run: RunFolder) -> list[Verdict]:
    """Read every file of a run and compare it with its checksums; nothing is changed."""
    return [_model(run), *_base(run), *_checkpoints(run), *_film(run), *_journals(run)]


def _model(run: RunFolder) -> Verdict:
    if not os.path.lexists(run.model) and run.has_checkpoints():  # no checkpoint is written before it
        return Verdict(run.model.name, "damaged", f"is gone; `anaphora resume {run.path}` puts it back")
    if not os.path.lexists(run.model):
        return Verdict(run.model.name, "missing", "no weights were written yet")
    try:
        tensors, facts = run.load_model()
    except RunError as error:
        return Verdict(run.model.name, "damaged", str(error))
    bad = first_not_finite(tensors)
    if bad is not None:
        return Verdict(run.model.name, "damaged", f"{bad} holds NaN or infinity")
    return Verdict(
        run.model.name, "good", f"{len(tensors)} tensors of step {facts.get('step')}, {facts.get('chosen')}"
    )


def _base(run: RunFolder) -> list[Verdict]:
    if not os.path.lexists(run.base):
        return []
    try:
        count = len(run.load_base())
    except RunError as error:
        return [Verdict(run.base.name, "damaged", str(error))]
    return [Verdict(run.base.name, "good", f"{count} tensors that were not trained")]


def _checkpoints(run: RunFolder) -> list[Verdict]:
    verdicts = []
    for step, path in sorted(CheckpointFolder(run.checkpoints).steps()):
        name = f"{run.checkpoints.name}/{path.name}"
        try:
            read(path)
        except Unusable as reason:
            verdicts.append(Verdict(name, "damaged", str(reason)))
        else:
            verdicts.append(Verdict(name, "good", f"can be resumed from step {step}"))
    return verdicts


def _film(run: RunFolder) -> list[Verdict]:
    """One line for all frames that are good, and one for each that is not."""
    there, damaged = frames(run), []
    for step in there:
        try:
            frame_weights(run, step)
        except RunError as error:
            damaged.append(Verdict(run.film.name, "damaged", str(error)))
    good = len(there) - len(damaged)
    return [*([Verdict(run.film.name, "good", f"{good} frames")] if good else []), *damaged]


def _journals(run: RunFolder) -> list[Verdict]:
    verdicts = []
    for path in (run.metrics, run.samples, run.timings, run.bad_batches):
        if not os.path.lexists(path):
            continue
        try:
            count = sum(1 for _ in read_journal(path))
        except RunError as error:
            verdicts.append(Verdict(path.name, "damaged", str(error)))
        else:
            verdicts.append(Verdict(path.name, "good", f"{count} lines"))
    return verdicts
