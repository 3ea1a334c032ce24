"""Which way a recurrence takes on a GPU: the one place where that is decided.

- ``persistent``: one kernel for all steps that keeps the recurrent weights on the chip. The fastest wherever the
  weights fit: what a step costs otherwise is mostly waiting for memory and for the next kernel.
- ``triton``: kernels printed for the cell, a few per step, recorded as a CUDA graph. For cells too wide to stay on the
  chip, and for wide cells with so many rows that a persistent kernel would have to take them in several rounds. Shapes
  that are not recorded yet go another way meanwhile.
- ``cudnn``: PyTorch's own layer, for the cells it has, where neither of the two can serve (float64, say), and for large
  layers in somebody else's recording when the printed kernels have not run before: they cannot be compiled there.
- ``graph``: torch's operations, recorded as a CUDA graph: any cell, any type, many kernels per step.
- ``reference``: the loop of torch operations as it stands. Never chosen here; whoever differentiates twice gets it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Literal, get_args

from anaphora.errors import AnaphoraError

Way = Literal["persistent", "triton", "graph", "cudnn", "reference"]
_forced: ContextVar[Way | None] = ContextVar("forced", default=None)


@dataclass(frozen=True)
class Case:
    """All that the choice looks at. Reasons are None where a way can serve."""

    time: int
    batch: int
    hidden: int
    native: bool  # PyTorch has this very cell
    no_persistent: str | None
    no_triton: str | None


WIDE, LARGE = 512, 80_000  # units, and rows times units, beyond which step kernels win; measured on an H200


def large(case: Case) -> bool:
    """Whether a step is so much work that a kernel of its own is no loss."""
    return case.hidden > WIDE and case.batch * case.hidden > LARGE


def choose(case: Case, uncompiled: bool = False) -> Way:
    """The fastest way that can serve, or the forced one.

    ``uncompiled``: the printed kernels would have to be compiled while somebody records this stream.
    """
    asked = forced()
    if asked is not None:
        _check(asked, case)
        return asked
    if uncompiled and case.native and large(case):
        return "cudnn"
    printed = case.no_triton is None and not uncompiled
    if case.no_persistent is None and not (large(case) and printed):
        return "persistent"
    if printed:
        return "triton"
    return "cudnn" if case.native else "graph"


def forced() -> Way | None:
    """The way that was asked for, if one was."""
    return _forced.get()


def _check(way: Way, case: Case) -> None:
    reasons = {
        "persistent": case.no_persistent,
        "triton": case.no_triton,
        "cudnn": None if case.native else "PyTorch has no layer for this cell",
    }
    reason = reasons.get(way)
    if reason is not None:
        raise AnaphoraError(
            f"Recurrent: the way {way!r} was asked for, but {reason}; leave the choice to the library."
        )


@contextmanager
def force(way: Way | None) -> Iterator[None]:
    """Within, recurrences on a GPU go this way, or say why they cannot: ``with force("triton"): …``.

    For tests and measurements; ``None`` leaves the choice to the library again.
    """
    if way is not None and way not in get_args(Way):
        raise ValueError(f"force: the ways are {', '.join(get_args(Way))}, got {way!r}.")
    token = _forced.set(way)
    try:
        yield
    finally:
        _forced.reset(token)
