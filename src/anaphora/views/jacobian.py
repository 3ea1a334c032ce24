"""The Jacobian spectrum: in how many directions a state's change survives, and how fast it grows or dies."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter
from anaphora.views.states import facts_line, proof

TITLE = "Jacobian spectrum"
READING = (
    "A small change of the state so many symbols before the end is stretched or shrunk by the singular values of ∂s_T/∂s_k, a line for "
    "each of some ranks: where all fall, no direction remembers. Eigenvalues of one step's Jacobian: inside the circle a direction "
    "shrinks, on it it is kept, outside it grows; an angle turns it. The Lyapunov exponent is the mean growth of a change per step."
)
CAUTION = (
    "All is taken along this one input: another text has other Jacobians. Singular values below 10⁻¹⁴ of the greatest are not "
    "known and left out. The interval of the exponent comes from resampling stretches of this input."
)
SAMPLES, EXACT = 1000, 1e-14


def jacobians(trace: Trace, *, step: int | None = None) -> Panels:
    """The fan of singular values, and the eigenvalues at ``step`` (from 1; by default the last)."""
    singular = trace.array("jacobian_singular", "time", "rank")
    eigenvalues = trace.array("jacobian_eigenvalues", "time", "coordinate", "unit")
    steps, width = singular.shape
    if step is not None and not 1 <= step <= steps:
        raise AnaphoraError(f"There are steps 1 to {steps}, not {step}.")
    at = steps - 1 if step is None else step - 1
    exponent, low, high = lyapunov(trace.array("jacobian_growth", "time"))
    note = (
        f"largest Lyapunov exponent {exponent:.4f} per symbol (95 % interval {low:.4f} to {high:.4f}); a change falls to 1/e "
        f"in {-1 / exponent:.1f} symbols"
        if exponent < 0
        else f"largest Lyapunov exponent {exponent:.4f} per symbol (95 % interval {low:.4f} to {high:.4f}): changes do not die out"
    )
    charts: list[Any] = [_fan(singular), _circle(eigenvalues[at], at, trace.tokens.get("time", []))]
    subtitle = f"{facts_line(trace)} · a state of {width} numbers"
    return Panels(TITLE, subtitle, charts, [note, *proof(trace)], READING, CAUTION)


def _fan(singular: NDArray[Any]) -> Lines:
    steps, width = singular.shape
    ranks = sorted({0, *(round(share * (width - 1)) for share in (0.1, 0.25, 0.5, 0.75, 1.0))})
    lags = [float(steps - 1 - k) for k in range(steps)][::-1]
    known = np.where(singular >= EXACT * singular[:, :1], singular, np.nan)[::-1]
    lines = []
    for rank in ranks:
        kept = [(lag, float(v)) for lag, v in zip(lags, known[:, rank], strict=True) if v > 0]
        lines.append(Line(f"σ{rank + 1}", [lag for lag, _ in kept], [v for _, v in kept]))
    return Lines(
        "Singular values of ∂s_T/∂s_k",
        f"{len(ranks)} of {width}, by rank",
        "symbols back",
        "σ",
        lines,
        log=True,
    )


def _circle(values: NDArray[Any], at: int, tokens: list[str]) -> Scatter:
    """Eigenvalues (coordinate, unit) in the plane with the unit circle."""
    sizes = np.hypot(values[0], values[1])
    edge = 1.15 * max(1.0, float(sizes.max(initial=0.0)))
    turn = [2 * math.pi * i / 72 for i in range(73)]
    circle = [(math.cos(a), math.sin(a)) for a in turn]
    where = f" ({tokens[at]})" if at < len(tokens) else ""
    return Scatter(
        "Eigenvalues of one step",
        f"step {at + 1}{where} · {int((sizes > 1).sum())} of {len(sizes)} outside the unit circle",
        "real part",
        "imaginary part",
        [Point(float(re), float(im), f"|λ| {size:.4g}") for re, im, size in zip(*values, sizes, strict=True)],
        ["eigenvalues"],
        x_range=(-edge, edge),
        y_range=(-edge, edge),
        guides=list(itertools.pairwise(circle)),
    )


def lyapunov(growth: NDArray[Any]) -> tuple[float, float, float]:
    """The mean of ``growth`` (time,), without the first quarter, in which the carried vector still turns; and its 95 % interval by
    a bootstrap of stretches √T long, which keeps neighbours together."""
    kept = np.asarray(growth, np.float64)[len(growth) // 4 :]
    mean = float(kept.mean())
    size = max(1, round(math.sqrt(len(kept))))
    draws = np.random.default_rng(1)
    starts = draws.integers(0, len(kept) - size + 1, (SAMPLES, -(-len(kept) // size)))
    picked = kept[starts[..., None] + np.arange(size)].reshape(SAMPLES, -1)[:, : len(kept)]
    low, high = np.quantile(picked.mean(1), (0.025, 0.975))
    return mean, float(low), float(high)
