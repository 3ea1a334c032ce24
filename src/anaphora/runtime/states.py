"""A graph that is run step by step: its states by name, and their rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from anaphora.runtime.folder import Array, OnnxGraph

NEW = "new_"
State = dict[str, Array]


class Steps:
    """``log_probs, state = steps(symbols, state)``; ``symbols`` ``(rows,)``, or ``(rows, time)`` as the graph takes them."""

    def __init__(self, session: OnnxGraph):
        self._session = session
        self._axes = {name: axes for name, axes in session.described.inputs.items() if name != "symbols"}
        self._kept = set(session.described.kept)

    def start(self, rows: int, given: Mapping[str, Array] | None = None) -> State:
        """The states before the first step: those ``given``, and the others empty or zero."""
        found = dict(given or {})
        for name, axes in self._axes.items():
            if name not in found:
                shape = [rows if axis == "rows" else axis if isinstance(axis, int) else 0 for axis in axes]
                described = self._session.described
                found[name] = np.full(shape, described.fills.get(name, 0), dtype=described.types[name])
        return {name: found[name] for name in self._axes}

    def __call__(self, symbols: Array, state: State) -> tuple[Array, State]:
        found = self._session(symbols=np.asarray(symbols, dtype=np.int64), **state)
        new = {name: found.get(NEW + name, value) for name, value in state.items()}
        return found["log_probs"], new

    def select(self, state: State, rows: Sequence[int], *, moved: bool = True) -> State:
        """The states of these rows, which may repeat; not ``moved``: every row still belongs to the item it belonged to, so
        that what depends on the item alone stays as it is."""
        return {
            name: value
            if not moved and name in self._kept
            else np.take(value, rows, axis=self._axes[name].index("rows"))
            for name, value in state.items()
        }
