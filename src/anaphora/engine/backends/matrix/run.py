"""The entry of the matrix backend."""

from __future__ import annotations

import torch

from anaphora.engine.backends import reference
from anaphora.engine.backends.base import BackendName, Case, Job, LayerRun, Result
from anaphora.engine.backends.matrix.solve import Solver
from anaphora.engine.graph import CannotTrace
from anaphora.engine.rings import Ring
from anaphora.engine.symbols import NoDraws

name: BackendName = "matrix"
about = "the step once for all steps; matrix-valued states by a scan"
planned = False
FEW = 5  # steps: below, running the step on symbols takes longer than the loop (measured on a CPU, forward and backward)


def why_not(case: Case) -> str | None:
    """Why a cell is not run by its matrices; None when it is."""
    if case.barred is not None:
        return case.barred
    if not case.matrix_rings:
        return case.no_plan if case.plan is None and case.no_plan else "all its states are vectors"
    if any(ring.kind == "loop" for ring in case.matrix_rings):
        return "a state is a loop over time"
    return f"fewer than {FEW} steps are faster one after the other" if case.time < FEW else None


def run(job: Job) -> Result:
    """Run all steps at once."""
    given = job.run
    try:
        return Solver(given, shapes_of(given)).result()
    except CannotTrace:  # with other numbers than the example's, the step does other things
        return reference.run(job)


def shapes_of(run: LayerRun) -> tuple[tuple[int, ...], ...]:
    """The shapes of a step's states; empty where all are vectors."""
    found: tuple[tuple[int, ...], ...] = getattr(run.step, "shapes", ())
    return found


def classify(run: LayerRun) -> tuple[Ring, ...]:
    """The rings of a step with matrix-valued states, found on a few rows like those of ``run``; raises CannotTrace."""
    shapes = shapes_of(run)

    def small(width: int, *before: int) -> torch.Tensor:
        # No random numbers: this must not change what the model draws next.
        count = width * torch.Size(before).numel()
        return torch.linspace(0.1, 0.6, count, dtype=like.dtype, device=like.device).view(*before, width)

    like = run.steps[0]
    with torch.inference_mode(False), torch.no_grad(), torch._C._DisableAutocast():
        example = run._replace(
            params={name: p.detach() for name, p in (run.params or {}).items()},
            steps=tuple([small(s.shape[-1], 3, 2) for s in run.steps]),
            rows=tuple([small(r.shape[-1], 3) for r in run.rows]),
            initial=tuple([small(s.shape[-1], 3) for s in run.initial]),
            lengths=None,
        )
        with NoDraws():  # type: ignore[no-untyped-call]
            solver = Solver(example, shapes)
        solver.solve()
    return tuple(solver.rings)
