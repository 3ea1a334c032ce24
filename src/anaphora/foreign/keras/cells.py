"""Recurrent cells with functions of Keras in the place of σ and tanh."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.foreign.keras.activations import Function
from anaphora.nn import GRU, LSTM, Cell, Elman


class OtherLSTM(LSTM):
    """An LSTM with ``gate`` in the place of σ and ``inner`` in the place of tanh."""

    def setup(self, inputs: int, hidden: int, *, gate: Function, inner: Function, **options: Any) -> None:  # type: ignore[override]
        super().setup(inputs, hidden, **options)
        self.gate, self.inner = gate, inner

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        i, f, new, o = self.gates(x, h).chunk(4, -1)
        c = self.gate(f) * c + self.gate(i) * self.inner(new)
        return self.gate(o) * self.inner(c), c


class OtherGRU(GRU):
    """A GRU with ``gate`` in the place of σ and ``inner`` in the place of tanh; its update gate keeps what is old, as in
    Keras: 1 − gate(a) is not gate(−a) for every function."""

    def setup(self, inputs: int, hidden: int, *, gate: Function, inner: Function, **options: Any) -> None:  # type: ignore[override]
        super().setup(inputs, hidden, **options)
        self.gate, self.inner = gate, inner

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r, u = self.gates(x, h).chunk(2, -1)
        r, z = self.gate(r), self.gate(-u)
        if self.reset == "before":
            candidate = self.candidate(x, r * h)
        else:
            candidate = self.candidate(x) + r * self.recurrent(h)
        return z * h + (1 - z) * self.inner(candidate)


class OtherRNN(Elman):
    """h_t = inner(W x_t + U h_{t−1} + b)."""

    def setup(self, inputs: int, hidden: int, *, gate: Function, inner: Function, **options: Any) -> None:  # type: ignore[override]
        super().setup(inputs, hidden)
        self.inner = inner

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return self.inner(self.affine(x, h))


def cell(kind: str, inputs: int, hidden: int, gate: Function, inner: Function, *, reset_after: bool) -> Cell:
    """The cell of a layer of Keras (``LSTM``, ``GRU``, ``SimpleRNN``): ours where it has the usual functions."""
    usual = inner is torch.tanh and (gate is torch.sigmoid or kind == "SimpleRNN")
    more: dict[str, Any] = {} if usual else {"gate": gate, "inner": inner}
    if kind == "LSTM":
        return (LSTM if usual else OtherLSTM)(inputs, hidden, **more)
    if kind == "GRU":
        return (GRU if usual else OtherGRU)(
            inputs, hidden, reset="after" if reset_after else "before", **more
        )
    if inner is torch.relu:
        return Elman(inputs, hidden, activation="relu")
    return (Elman if usual else OtherRNN)(inputs, hidden, **more)
