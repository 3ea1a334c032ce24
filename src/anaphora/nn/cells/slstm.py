"""sLSTM: the LSTM with exponential gates, a normaliser and memory mixing within heads."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.affine import Affine
from anaphora.nn.cell import Cell


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
