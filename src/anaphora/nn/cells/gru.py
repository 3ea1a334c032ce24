"""Gated recurrent units: as published, as in PyTorch, without reset gate, and minimal."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from anaphora.nn import inside
from anaphora.nn.affine import Affine
from anaphora.nn.cell import Cell


class GRU(Cell):
    """Gated recurrent unit (Cho et al. 2014).

        r, u = σ(W x_t + U h_{t−1} + b)            each with its own W, U, b
        h̃    = tanh(W x_t + U (r ∘ h_{t−1}) + b)    reset="before": as published
        h̃    = tanh(W x_t + b + r ∘ (U h_{t−1} + b′))  reset="after": as in PyTorch and cuDNN
        h_t  = (1 − u) ∘ h_{t−1} + u ∘ h̃

    Here ``u`` opens the way for the *new* value, as in the lectures (and Chung et al. 2014). Cho et al. and
    PyTorch write z = 1 − u, h_t = z ∘ h_{t−1} + (1 − z) ∘ h̃: the same model with the weights and bias of
    that gate negated, since σ(−a) = 1 − σ(a). ``from_torch`` and ``to_torch`` do this.

    >>> an.nn.GRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int, *, reset: Literal["before", "after"] = "before") -> None:
        if reset not in ("before", "after"):
            raise ValueError(f"GRU: reset must be 'before' or 'after' the product, got {reset!r}.")
        self.reset = reset
        self.gates = Affine(inputs, hidden, 2 * hidden, blocks=2)
        if reset == "before":
            self.candidate = Affine(inputs, hidden, hidden)
        else:
            self.candidate = Affine(inputs, hidden)
            self.recurrent = Affine(hidden, hidden, recurrent=0)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        gates = self.gates(x, h)
        r, u = torch.sigmoid(gates).chunk(2, -1)
        if self.reset == "before":
            candidate = self.candidate(x, r * h)
        else:
            candidate = self.candidate(x) + r * self.recurrent(h)
        new = torch.tanh(candidate)
        if inside.recording():
            for name, before in zip(("reset", "update"), gates.chunk(2, -1), strict=True):
                inside.note(self, f"pre_{name}", before)
            inside.note(self, "pre_candidate", candidate)
            inside.note(self, "reset", r)
            inside.note(self, "update", u)
            inside.note(self, "candidate", new)
        return (1 - u) * h + u * new


class SimpleGRU(Cell):
    """A GRU without reset gate.

    u   = σ(W x_t + U h_{t−1} + b)
    h̃   = tanh(W x_t + U h_{t−1} + b)          with its own W, U, b
    h_t = (1 − u) ∘ h_{t−1} + u ∘ h̃

    >>> an.nn.SimpleGRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.both = Affine(inputs, hidden, 2 * hidden, blocks=2)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        u, new = self.both(x, h).chunk(2, -1)
        u, new = torch.sigmoid(u), torch.tanh(new)
        if inside.recording():
            inside.note(self, "update", u)
            inside.note(self, "candidate", new)
        return (1 - u) * h + u * new


class MGU(Cell):
    """Minimal gated unit (Zhou et al. 2016): one gate does the work of two.

    f   = σ(W x_t + U h_{t−1} + b)
    h̃   = tanh(W x_t + U (f ∘ h_{t−1}) + b)     with its own W, U, b
    h_t = (1 − f) ∘ h_{t−1} + f ∘ h̃

    >>> an.nn.MGU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.forget = Affine(inputs, hidden, hidden)
        self.candidate = Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f = torch.sigmoid(self.forget(x, h))
        new = torch.tanh(self.candidate(x, f * h))
        if inside.recording():
            inside.note(self, "forget", f)
            inside.note(self, "candidate", new)
        return (1 - f) * h + f * new
