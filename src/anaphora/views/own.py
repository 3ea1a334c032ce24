"""``an.view``: a view of the user's own, shown by ``trace.view``, ``inspect`` and the studio."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.heatmap import Heatmap
from anaphora.views.picture import Chart
from anaphora.views.registry import VIEWS
from anaphora.views.view import View

F = TypeVar("F", bound=Callable[..., Any])
_OURS = frozenset(VIEWS)


def view(
    name: str, *, needs: Sequence[str] = (), title: str = "", reading: str = "", caution: str = ""
) -> Callable[[F], F]:
    """Register a function of a trace as the view ``name``, a decorator.

    The function returns a chart of `anaphora.views`, or numbers ``(rows, columns)``, which become a heatmap; its further
    parameters are options of the view. On the command line: ``anaphora inspect RUN --view module:norms --text TEXT``.

    Args:
        name: a word; `Trace.view` and ``inspect --view`` find the view by it.
        needs: the arrays that a trace must hold.
        title: the heading of the picture; by default the name.
        reading: one sentence below it, how to read the picture.
        caution: one sentence more, what not to conclude from it.

    Raises an `AnaphoraError` where a view of ours has that name.

    >>> @an.view("norms", needs=("states",), title="Norms of the states")
    ... def norms(trace):
    ...     return np.linalg.norm(trace.array("states", "time", "unit"), axis=-1)[None]
    >>> from anaphora.probe.trace import Array, Trace
    >>> trace = Trace({}, {"states": Array(("time", "unit"), np.ones((3, 4)))}, {})
    >>> trace.view("norms").chart.values.round(1).tolist()
    [[2.0, 2.0, 2.0]]
    """
    if name in _OURS or not name.isidentifier():
        raise AnaphoraError(f"{name!r} cannot be the name of a view of your own; choose another word.")

    def register(function: F) -> F:
        head = title or name.replace("_", " ").capitalize()

        @wraps(function)
        def draw(trace: Trace, **options: Any) -> Chart:
            found = function(trace, **options)
            return _heatmap(found, head, reading, caution) if isinstance(found, np.ndarray) else found

        without = "the model that was looked into has none."
        VIEWS[name] = View(name, head, tuple(needs), reading, caution, without, draw)
        function.view_name = name  # type: ignore[attr-defined]
        return function

    return register


def _heatmap(values: Any, title: str, reading: str, caution: str) -> Heatmap:
    if values.ndim != 2 or not values.size or not np.isfinite(values).all():
        raise AnaphoraError(
            f"The view {title} must return finite numbers (rows, columns), but returned {values.shape}."
        )
    low, high = float(values.min()), float(values.max())
    return Heatmap(
        title=title,
        subtitle=f"from {low:.3g} to {high:.3g}",
        values=values.astype(np.float32),
        rows=[str(row + 1) for row in range(values.shape[0])],
        columns=[str(column + 1) for column in range(values.shape[1])],
        row_title="row",
        column_title="column",
        value_title="value",
        low=low,
        high=high if high > low else low + 1.0,
        reading=reading,
        caution=caution,
    )
