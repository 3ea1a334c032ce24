"""The cells of Elman, GRU, LSTM and sLSTM, with their relatives."""

from __future__ import annotations

from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.cell import Affine, Cell


# ----------------------------------------------------------------------
# The simple recurrent network, and the one that starts as the identity.
class Elman(Cell):
    """h_t = g(W x_t + U h_{t−1} + b) with g = tanh or ReLU (Elman 1990). Equals ``nn.RNN``.

    >>> an.nn.Elman(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int, *, activation: Literal["tanh", "relu"] = "tanh") -> None:
        if activation not in ("tanh", "relu"):
            raise ValueError(
                f"{type(self).__name__}: activation must be 'tanh' or 'relu', got {activation!r}."
            )
        self.activation = activation
        self.affine = Affine(inputs, hidden, hidden)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        a = self.affine(x, h)
        inside.note(self, "pre_state", a)
        return torch.tanh(a) if self.activation == "tanh" else torch.relu(a)


class IRNN(Elman):
    """h_t = ReLU(W x_t + U h_{t−1} + b) with U = I and b = 0 at the start (Le, Jaitly, Hinton 2015).

    At the start each unit keeps what it has seen, so gradients neither vanish nor explode.

    >>> an.nn.IRNN(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    def setup(self, inputs: int, hidden: int, **options: Any) -> None:
        super().setup(inputs, hidden, **{"activation": "relu", **options})
        nn.init.eye_(self.affine.weights[1])
        nn.init.normal_(self.affine.weights[0], std=0.001)


# ---------------------------------------------------------------------- skip connections through time
class Shortcut(Cell):
    """Any cell with connections that jump back over time, each with weights of its own.

        s_t = cell([x_t; h_{t−k}], s_{t−1})        k = ``by``

    The gradient reaches h_{t−k} in one step instead of k, so it vanishes more slowly. ``cell`` is the class
    of the cell inside and further options are its own: ``Shortcut(64, 128, cell=LSTM, by=8, peephole=True)``.
    The outputs of the last k steps are states of this cell, after those of the cell inside.

    A `ValueError` where ``by`` is below 2.

    >>> cell = an.nn.Shortcut(3, 4, cell=an.nn.GRU, by=3)
    >>> cell.state
    ('h', 'h-2', 'h-3')
    >>> an.nn.Recurrent(cell)(torch.zeros(2, 5, 3))[0].shape
    torch.Size([2, 5, 4])
    """

    def setup(
        self, inputs: int, hidden: int, *, cell: type[Cell] = Elman, by: int = 4, **options: Any
    ) -> None:
        if by < 2:
            raise ValueError(
                f"Shortcut: by must be at least 2 (the cell itself sees one step back), got {by}."
            )
        self.by = by
        self.inner = cell(inputs + hidden, hidden, **options)
        self.state = (*self.inner.state, *(f"{self.inner.state[0]}-{k}" for k in range(2, by + 1)))

    def step(self, x: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        count = len(self.inner.state)
        inner, back = states[:count], states[count:]
        new = self.inner.advance(torch.cat((x, back[-1]), -1), inner)
        return (*new, inner[0], *back[:-1])


# ----------------------------------------------------------------------
# Gated recurrent units: as published, as in PyTorch, without reset gate, and minimal.
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


# ---------------------------------------------------------------------- long short-term memory and its variants
class LSTM(Cell):
    """Long short-term memory (Hochreiter & Schmidhuber 1997; forget gate: Gers et al. 2000).

        i, f, o = σ(W x_t + U h_{t−1} + b)        each with its own W, U, b
        c̃       = tanh(W x_t + U h_{t−1} + b)
        c_t     = f ∘ c_{t−1} + i ∘ c̃
        h_t     = o ∘ tanh(c_t)

    The variants:

    - ``forget=False``: c_t = c_{t−1} + i ∘ c̃, so that ∂c_t/∂c_{t−1} = 1 along the direct path;
    - ``coupled=True``: one gate decides both, c_t = f ∘ c_{t−1} + (1 − f) ∘ c̃;
    - ``peephole=True``: the gates see the cell, i and f through p ∘ c_{t−1}, o through p ∘ c_t
      (Gers & Schmidhuber 2000);
    - ``layer_norm=True``: LN(W x_t) + LN(U h_{t−1}) + b in place of the sums, and tanh(LN(c_t))
      (Ba et al. 2016);
    - ``forget_bias``: what the forget gate's bias starts at; high values remember from the start
      (Jozefowicz et al. 2015).

    The default equals ``nn.LSTM``, whose order of gates (i, f, c̃, o) the weights follow.

    >>> an.nn.LSTM(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h", "c")

    def setup(
        self,
        inputs: int,
        hidden: int,
        *,
        forget: bool = True,
        peephole: bool = False,
        coupled: bool = False,
        forget_bias: float = 1.0,
        layer_norm: bool = False,
    ) -> None:
        if coupled and not forget:
            raise ValueError("LSTM: coupled gates need a forget gate; leave forget=True or coupled=False.")
        self.forget, self.peephole, self.coupled, self.layer_norm = forget, peephole, coupled, layer_norm
        self.gate_names: tuple[str, ...] = ("input", "forget", "candidate", "output")
        if coupled:
            self.gate_names = ("forget", "candidate", "output")
        elif not forget:
            self.gate_names = ("input", "candidate", "output")
        gates = len(self.gate_names)
        if layer_norm:
            self.input = Affine(inputs, gates * hidden, bias=False, blocks=gates)
            self.recurrent = Affine(hidden, gates * hidden, bias=False, blocks=gates, recurrent=0)
            self.norm_input = nn.LayerNorm(gates * hidden)
            self.norm_recurrent = nn.LayerNorm(gates * hidden, bias=False)
            self.norm_cell = nn.LayerNorm(hidden)
            bias: nn.Parameter | None = self.norm_input.bias
        else:
            self.gates = Affine(inputs, hidden, gates * hidden, blocks=gates)
            bias = self.gates.bias
        if forget and bias is not None:
            at = self.gate_names.index("forget") * hidden
            with torch.no_grad():
                bias[at : at + hidden] = forget_bias
        if peephole:
            self.peepholes = nn.ParameterDict(
                {name: nn.Parameter(torch.zeros(hidden)) for name in self.gate_names if name != "candidate"}
            )

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        if self.layer_norm:
            a = self.norm_input(self.input(x)) + self.norm_recurrent(self.recurrent(h))
        else:
            a = self.gates(x, h)
        parts = dict(zip(self.gate_names, a.chunk(len(self.gate_names), -1), strict=True))
        peep = self.peepholes if self.peephole else None
        if peep is not None:
            for name in ("input", "forget"):
                if name in parts:
                    parts[name] = parts[name] + peep[name] * c
        new = torch.tanh(parts["candidate"])
        if self.coupled:
            f = torch.sigmoid(parts["forget"])
            i = 1 - f
            c = f * c + i * new
        elif self.forget:
            i, f = torch.sigmoid(parts["input"]), torch.sigmoid(parts["forget"])
            c = f * c + i * new
        else:
            i = torch.sigmoid(parts["input"])
            f = None
            c = c + i * new
        if peep is not None:
            parts["output"] = parts["output"] + peep["output"] * c
        o = torch.sigmoid(parts["output"])
        h = o * torch.tanh(self.norm_cell(c) if self.layer_norm else c)
        if inside.recording():
            for name, before in parts.items():
                inside.note(self, f"pre_{name}", before)
            inside.note(self, "input", i)
            if f is not None:
                inside.note(self, "forget", f)
            inside.note(self, "candidate", new)
            inside.note(self, "output", o)
        return h, c


# ----------------------------------------------------------------------
# sLSTM: the LSTM with exponential gates, a normaliser and memory mixing within heads.
class SLSTM(Cell):
    """Scalar LSTM of xLSTM (Beck et al. 2024, section 2.2).

        z, ĩ, f̃, õ = W x_t + R h_{t−1} + b              each with its own W, R, b
        i = exp(ĩ),  f = σ(f̃),  o = σ(õ)
        c_t = f ∘ c_{t−1} + i ∘ tanh(z)
        n_t = f ∘ n_{t−1} + i
        h_t = o ∘ c_t / n_t

    exp(ĩ) may be large: c and n are kept divided by e^m with m_t = max(log f + m_{t−1}, ĩ), which leaves h as it is
    (eqs. 15 to 17); where nothing was written yet (n = 0), m_t = ĩ.
    R is block-diagonal: units mix within each of the ``heads``. It starts at zero, the bias of f̃ spread over 3 … 6.

    ``halves``: x is two inputs side by side; z and õ read the first, ĩ and f̃ the second (in xLSTM's block the convolved one).

    >>> an.nn.SLSTM(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h", "c", "n", "m")

    def setup(self, inputs: int, hidden: int, *, heads: int = 1, halves: bool = False) -> None:
        if heads < 1 or hidden % heads:
            raise ValueError(
                f"SLSTM: {hidden} units cannot be divided among {heads} heads; choose heads that divide them."
            )
        if halves and inputs % 2:
            raise ValueError(f"SLSTM: halves needs an even number of inputs, got {inputs}.")
        self.heads, self.halves = heads, halves
        read = inputs // 2 if halves else inputs
        self.content = Affine(read, 2 * hidden, blocks=2)  # z, õ
        self.gates = Affine(read, 2 * hidden, blocks=2)  # ĩ, f̃
        self.mixing = nn.Parameter(torch.zeros(4, heads, hidden // heads, hidden // heads))
        assert self.gates.bias is not None
        with torch.no_grad():
            self.gates.bias[hidden:] = torch.linspace(3.0, 6.0, hidden)  # forget slowly at first

    def step(self, x: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        first, second = x.chunk(2, -1) if self.halves else (x, x)
        whole = torch.cat([_block_diagonal(gate) for gate in self.mixing])  # (4·hidden, hidden)
        mixed = F.linear(h, whole)
        z, o, i, f = (torch.cat((self.content(first), self.gates(second)), -1) + mixed).chunk(4, -1)
        kept = torch.where(n > 0, m - F.softplus(-f), i)
        largest = torch.maximum(kept, i)
        keep, write = torch.exp(kept - largest), torch.exp(i - largest)
        c, n = keep * c + write * torch.tanh(z), keep * n + write
        if inside.recording():
            for name, value in (("forget", keep), ("input", write), ("output", torch.sigmoid(o))):
                inside.note(self, name, value)
        return torch.sigmoid(o) * (c / n), c, n, largest


def _block_diagonal(blocks: Tensor) -> Tensor:
    """``(heads, D, D)`` -> ``(heads·D, heads·D)``."""
    whole: Tensor = torch.block_diag(*blocks)  # type: ignore[no-untyped-call]
    return whole
