"""Cells drawn at random from operations that keep an update affine, bend it, or mix columns; and what calculus says of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from anaphora import nn

INPUTS, HIDDEN = 2, 3
AFFINE = ("gated", "blend", "shift", "choose", "ratio")
BENT = ("tanh", "times", "softplus")
MIXED = ("product", "row sum", "moved")

Program = list[tuple[str, int, int]]


class RingCell(nn.Cell):
    """Each instruction makes a value from earlier ones; new states are the last values, or blends of gates of x with them."""

    def setup(self, inputs: int, hidden: int, *, states: int, program: Program) -> None:
        self.state = tuple(f"s{i}" for i in range(states))
        self.program = program
        self.enter = nn.Affine(inputs, 2 * hidden)
        self.scale = torch.nn.Parameter(torch.linspace(0.3, 0.9, hidden))
        wanted = [k for k, (op, _, _) in enumerate(program) if op == "product"]
        self.maps = torch.nn.ModuleDict({str(k): nn.Affine(hidden, hidden, recurrent=0) for k in wanted})

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        values = self._values(x, states)
        # Every state is read by someone: a step that ignores one is another matter.
        chosen = values[-len(states) :]
        return tuple(v + self.scale * s for v, s in zip(chosen, (*states[1:], states[0]), strict=True))

    def _values(self, x: Tensor, states: Sequence[Tensor]) -> list[Tensor]:
        """What the program makes, one value after the other, behind those it begins with."""
        a, b = self.enter(x).chunk(2, -1)
        gate = torch.sigmoid(a)
        values = [a, b, *states]
        for k, (op, first, second) in enumerate(self.program):
            left, right = values[first % len(values)], values[second % len(values)]
            values.append(self._made(op, k, left, right, gate))
        return values

    def _made(self, op: str, k: int, left: Tensor, right: Tensor, gate: Tensor) -> Tensor:
        if op == "product":
            return self.maps[str(k)](left)  # type: ignore[no-any-return]
        return {
            "gated": lambda: gate * left,
            "blend": lambda: 0.7 * left - (1 - gate) * right,
            "shift": lambda: left + torch.tanh(gate) - self.scale,
            "choose": lambda: torch.where(gate > 0.5, left, 0.3 * right),
            "ratio": lambda: left / (1 + gate),
            "tanh": lambda: torch.tanh(left),
            "times": lambda: left * right,
            "softplus": lambda: torch.nn.functional.softplus(left),
            "row sum": lambda: right + 0.2 * left.sum(-1, keepdim=True),
            "moved": lambda: torch.cat((left[:, 1:], left[:, :1]), -1),
        }[op]()


class OwnCell(RingCell):
    """As above, but each state keeps to itself where the program does, so that there are rings of one state."""

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        values = self._values(x, states)
        return tuple(v + self.scale * s for v, s in zip(values[-len(states) :], states, strict=True))


def programs(*operations: str) -> st.SearchStrategy[Program]:
    return st.lists(
        st.tuples(st.sampled_from(operations), st.integers(0, 20), st.integers(0, 20)), min_size=3, max_size=7
    )


ANY_PROGRAM = st.one_of(
    programs(*AFFINE), programs(*AFFINE, *AFFINE, *BENT), programs(*AFFINE, *AFFINE, *BENT, *MIXED)
)


def draw_cell(own: bool, states: int, program: Program) -> RingCell:
    torch.manual_seed(len(program) + states)
    kind = OwnCell if own else RingCell
    return kind(INPUTS, HIDDEN, states=states, program=program).double()


def kinds_by_calculus(cell: nn.Cell) -> dict[tuple[int, ...], str]:
    """The kind of every ring, from derivatives of the step: which are zero, and which depend on the states."""
    torch.manual_seed(5)
    count = len(cell.state)
    x = torch.randn(1, cell.inputs, dtype=torch.float64)
    places = [torch.randn(count, cell.hidden, dtype=torch.float64) for _ in range(2)]

    def jacobian(states: Tensor) -> Tensor:
        """``(new state, column, old state, column)``."""

        def step(s: Tensor) -> Tensor:
            return torch.cat(cell.advance(x, tuple(s[i : i + 1] for i in range(count))))

        found: Any = torch.autograd.functional.jacobian(step, states)  # type: ignore[no-untyped-call]
        return found

    at = jacobian(places[0])
    reach = at.abs().amax((1, 3)) > 1e-12
    for k in range(count):
        reach |= reach[:, k : k + 1] & reach[k : k + 1]
    found: dict[tuple[int, ...], str] = {}
    for i in range(count):
        ring = tuple(j for j in range(count) if j == i or (reach[i, j] and reach[j, i]))
        rows = list(ring)
        own = at[rows][:, :, rows]
        moved = places[0].clone()
        moved[rows] = places[1][rows]
        same = torch.allclose(own, jacobian(moved)[rows][:, :, rows], atol=1e-12, rtol=0)
        diagonal = torch.diagonal_scatter(
            own.permute(0, 2, 1, 3), torch.zeros(len(ring), len(ring), cell.hidden, dtype=own.dtype), 0, 2, 3
        )
        if not reach[i, i]:
            found[ring] = "map"
        elif diagonal.abs().max() > 1e-12:
            found[ring] = "loop"
        else:
            found[ring] = "scan" if same else "walk"
    return found
