"""The minimum of a function of a few numbers, without its gradient."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def minimised(
    of: Callable[[Floats], float],
    begin: Floats,
    *,
    step: float = 1.0,
    most: int = 200,
    tolerance: float = 1e-7,
) -> tuple[Floats, float]:
    """Where ``of`` is smallest near ``begin`` (n,), and its value there, by the simplex of Nelder & Mead (1965).

    The worst corner is reflected at the middle of the others, and the simplex grows, shrinks or moves by what is found there, ``most`` times or
    until its corners differ by less than ``tolerance`` of the best. A value that is not finite counts as larger than all others.

    >>> place, value = minimised(lambda x: float((x[0] - 3) ** 2 + abs(x[1])), np.zeros(2))
    >>> [round(float(one), 2) + 0.0 for one in place]
    [3.0, 0.0]
    """

    def value(x: Floats) -> float:
        found = of(x)
        return found if np.isfinite(found) else np.inf

    corners = [begin, *(begin + step * row for row in np.eye(len(begin)))]
    values = [value(corner) for corner in corners]
    for _ in range(most):
        order = np.argsort(values, kind="stable")
        corners, values = [corners[i] for i in order], [values[i] for i in order]
        if values[-1] - values[0] <= tolerance * abs(values[0]):
            break
        middle = np.mean(corners[:-1], axis=0)
        reflected = 2 * middle - corners[-1]
        there = value(reflected)
        if there < values[0]:
            further = 3 * middle - 2 * corners[-1]
            beyond = value(further)
            corners[-1], values[-1] = (further, beyond) if beyond < there else (reflected, there)
        elif there < values[-2]:
            corners[-1], values[-1] = reflected, there
        else:
            nearer = (middle + (corners[-1] if there >= values[-1] else reflected)) / 2
            inside = value(nearer)
            if inside < min(there, values[-1]):
                corners[-1], values[-1] = nearer, inside
            else:
                corners = [corners[0], *((corners[0] + corner) / 2 for corner in corners[1:])]
                values = [values[0], *(value(corner) for corner in corners[1:])]
    best = int(np.argmin(values))
    return corners[best], values[best]
