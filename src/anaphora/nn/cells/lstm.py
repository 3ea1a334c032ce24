"""Long short-term memory and its variants."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.affine import Affine
from anaphora.nn.cell import Cell


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
