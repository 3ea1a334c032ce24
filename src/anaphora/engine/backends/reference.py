"""The recurrence as plain torch operations: the definition every faster backend must equal.

It also serves whatever the faster backends do not: double backward, forward-mode derivatives, vmap, and looking
inside a cell.

Axes: B batch, T time, I input width, H state width.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.engine.backends.base import BackendName, Case, Job, Params, Result, States, StepFunction

name: BackendName = "reference"
about = "a loop of plain torch operations"
planned = False


def why_not(case: Case) -> None:
    """It can always serve."""


def run(job: Job) -> Result:
    """Run the step function itself."""
    run = job.run
    return run_reference(
        run.step, run.params or {}, run.steps, run.rows, run.initial, run.lengths, run.reverse
    )


def reverse_rows(value: Tensor, lengths: Tensor | None) -> Tensor:
    """Reverse each row of ``(B, T, …)`` within its own length; what lies past the end stays in place."""
    if lengths is None:
        return value.flip(1)
    time = torch.arange(value.shape[1], device=value.device)
    ends = lengths.to(value.device)[:, None]
    index = torch.where(time < ends, ends - 1 - time, time)
    return value.gather(1, index.reshape(*index.shape, *[1] * (value.dim() - 2)).expand_as(value))


def live_rows(x: Tensor, lengths: Tensor | None) -> Sequence[Tensor] | None:
    """For each step of x ``(B, T, ·)``, which rows have not ended yet, ``(B, 1)``; None when all run to the end."""
    if lengths is None:
        return None
    time = torch.arange(x.shape[1], device=x.device)
    return (time[:, None] < lengths.to(x.device)).unsqueeze(-1).unbind(0)


def run_reference(
    function: StepFunction,
    params: Params,
    steps: Sequence[Tensor],
    rows: Sequence[Tensor],
    initial: States,
    lengths: Tensor | None = None,
    reverse: bool = False,
) -> tuple[Tensor, States]:
    """s_t = function(x_t, s_{t−1}) for t = 1 … T, or from each row's end to its start when ``reverse``.

    ``steps``: inputs of each step, ``(B, T, ·)``; ``rows``: inputs that stay, ``(B, ·)``; ``initial``:
    ``(B, H)`` each. Past a row's length the states stay as they are and the output is zero.

    Returns the first state at every step, ``(B, T, H)``, and the last states.
    """
    if reverse:
        steps = [reverse_rows(s, lengths) for s in steps]
    states, outputs = initial, []
    constant = tuple(rows)
    live = live_rows(steps[0], lengths)
    for t, now in enumerate(zip(*(s.unbind(1) for s in steps), strict=True)):
        new = function(params, now, constant, states)
        if live is None:
            states = new
            outputs.append(new[0])
        else:
            states = tuple(torch.where(live[t], n, old) for n, old in zip(new, states, strict=True))
            outputs.append(torch.where(live[t], new[0], new[0].new_zeros(())))
    if not outputs:
        return initial[0].new_zeros(initial[0].shape[0], 0, initial[0].shape[1]), initial
    y = torch.stack(outputs, 1)
    return (reverse_rows(y, lengths) if reverse else y), states
