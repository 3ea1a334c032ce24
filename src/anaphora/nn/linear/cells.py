"""Layers around cells of the linear kind: Griffin, sLSTM and mLSTM."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.attention import masks
from anaphora.nn.cell import Cell
from anaphora.nn.cells.gated import SLSTM
from anaphora.nn.cells.scanned import RGLRU
from anaphora.nn.exporting import loop, scanning
from anaphora.nn.linear.layer import EPSILON, LinearLayer, ShortConvolution, States, rms
from anaphora.nn.recurrent import Recurrent


# ----------------------------------------------------------------------
# A recurrent cell as a mixer, so that it can stand in a residual block.
class CellLayer(LinearLayer):
    """Any cell behind a short convolution: the block of minGRU and minLSTM (Feng et al. 2024, appendix C).

        u_t = swish(convolution of x over four steps),   h_t, … = cell(u_t, h_{t−1}, …),   out_t = W_o h_t

    The cell reads ``width`` values; its states may be wider. States: the last three steps, then those of the cell.

    >>> y, state = CellLayer(an.nn.MinGRU(16, 32))(torch.randn(2, 10, 16))
    >>> y.shape
    torch.Size([2, 10, 16])
    """

    def __init__(self, cell: Cell):
        super().__init__(cell.inputs)
        self.convolution = ShortConvolution(self.width)
        self.recurrent = Recurrent(cell)
        self.output = nn.Linear(cell.hidden, self.width, bias=False)

    def reset_parameters(self) -> None:
        """A cell of its own: its parts alone do not know what they begin as (the bias of a forget gate)."""
        cell = self.recurrent.cells[0]
        assert isinstance(cell, Cell)
        self.recurrent = Recurrent(cell.another(self.width))

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = (like.new_zeros(batch, width, dtype=kind) for width in self.recurrent.widths)
        return self.convolution.initial_state(batch, like), *empty

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, past = self.convolution(x, state[0], lengths)
        y, last = self.recurrent(u, lengths, tuple(s[None].to(u.dtype) for s in state[1:]))
        return self.output(y), (past, *(s[0].to(state[1].dtype) for s in last))


# ----------------------------------------------------------------------
# Griffin's recurrent block: the real-gated linear recurrent unit behind a convolution, beside a gate.
class Griffin(LinearLayer):
    """The recurrent block of Griffin and Hawk (De et al. 2024, figure 2c).

        u_t = convolution of W x over four steps,   h_t = RG-LRU(u_t, h_{t−1}) (`RGLRU` has its equations)
        out_t = W_o (gelu(W_g x_t) ∘ h_t)

    The recurrence is ``inner`` wide, 4/3 of the width if None, as published. Griffin puts two such blocks before each
    block of `LocalAttention`; Hawk has no attention. States: the last three steps ``(B, 3, inner)``, h ``(B, inner)``.

    >>> y, state = Griffin(48)(torch.randn(2, 10, 48))
    """

    def __init__(self, width: int, heads: int = 1, *, inner: int | None = None):
        super().__init__(width, heads)
        self.inner = -(-4 * width // 3 // 8) * 8 if inner is None else inner
        self.project = nn.Linear(width, 2 * self.inner, bias=False)
        self.convolution = ShortConvolution(self.inner, activated=False)
        self.recurrent = Recurrent(RGLRU(self.inner, self.inner))
        self.output = nn.Linear(self.inner, width, bias=False)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        return self.convolution.initial_state(batch, like), like.new_zeros(batch, self.inner, dtype=kind)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, gate = self.project(x).chunk(2, -1)
        u, past = self.convolution(u, state[0], lengths)
        y, (last,) = self.recurrent(u, lengths, (state[1][None].to(u.dtype),))
        return self.output(F.gelu(gate) * y), (past, last[0].to(state[1].dtype))


# ---------------------------------------------------------------------- sLSTM behind a short convolution: the other block of xLSTM
class SLSTMLayer(LinearLayer):
    """The recurrent half of xLSTM's sLSTM block (Beck et al. 2024, figure 9); a gated network of 4/3 the width follows it.

        u_t = swish(convolution of x over four steps),   h_t = sLSTM(x_t, u_t, h_{t−1}), whose gates i and f read u_t
        out_t = norm(h_t) by heads

    Memory mixing makes it a loop over time, not a scan. The recurrence is never computed in 16 bits.
    States: the last three steps ``(B, 3, width)``, and h, c, n, m of `SLSTM` ``(B, width)``.

    >>> an.nn.linear.SLSTMLayer(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    in_full_precision = True  # of its weights: see `anaphora.nn.casting`

    def __init__(self, width: int, heads: int = 4):
        super().__init__(width, heads)
        self.convolution = ShortConvolution(width)
        self.recurrent = Recurrent(SLSTM(2 * width, width, heads=heads, halves=True))
        self.norm = nn.GroupNorm(heads, width, eps=EPSILON)

    def reset_parameters(self) -> None:
        self.recurrent = Recurrent(SLSTM(2 * self.width, self.width, heads=self.heads, halves=True))

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = like.new_zeros(batch, self.width, dtype=kind)
        return self.convolution.initial_state(batch, like), *(empty for _ in self.recurrent.state)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        u, past = self.convolution(x, state[0], lengths)
        both = torch.cat((x.to(state[1].dtype), u.to(state[1].dtype)), -1)
        with torch.autocast(x.device.type, enabled=False):
            y, last = self.recurrent(both, lengths, tuple(s[None] for s in state[1:]))
        normed = self.norm(y.flatten(0, 1)).view_as(y)
        return normed.to(x.dtype), (past, *(s[0] for s in last))


# ---------------------------------------------------------------------- mLSTM: the LSTM with a matrix as its cell
class MLSTM(LinearLayer):
    """The block of xLSTM with a matrix memory and exponential gates (Beck et al. 2024).

        u_t, z_t = W x_t (each twice as wide),   c_t = swish(convolution of u over four steps)
        q_t = W_q c_t,   k_t = W_k c_t / √D,   v_t = W_v u_t,   i_t = exp(w_i c_t + b_i),   f_t = σ(w_f c_t + b_f)
        C_t = f_t C_{t−1} + i_t k_t v_tᵀ,   n_t = f_t n_{t−1} + i_t k_t,   h_t = C_tᵀ q_t / max(|n_tᵀ q_t|, 1)
        out_t = W_o ((norm(h_t) + s ∘ c_t) ∘ swish(z_t))

    exp(i) may be large: C and n are kept divided by e^m with m_t = max(log f_t + m_{t−1}, log i_t), which leaves h as it
    is. States: the last three steps, C with n as one more column ``(B, heads, D, D+1)``, and m ``(B, heads)``.

    >>> an.nn.linear.MLSTM(16, heads=2)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 4):
        super().__init__(width, heads)
        self.inner = 2 * width
        self.up = nn.Linear(width, 2 * self.inner, bias=False)
        self.convolution = ShortConvolution(self.inner)
        self.query_key = nn.Linear(self.inner, 2 * self.inner, bias=False)
        self.value = nn.Linear(self.inner, self.inner, bias=False)
        self.gates = nn.Linear(self.inner, 2 * heads)
        self.skip = nn.Parameter(torch.ones(self.inner))
        self.output = nn.Linear(self.inner, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.gates.weight)
        with torch.no_grad():
            self.gates.bias[: self.heads] = -2.0  # write little at first
            self.gates.bias[self.heads :] = torch.linspace(3.0, 6.0, self.heads)  # and forget slowly
            self.skip.fill_(1.0)

    def initial_state(self, batch: int, like: Tensor) -> States:
        size, kind = self.inner // self.heads, torch.promote_types(like.dtype, torch.float32)
        matrix = like.new_zeros(batch, self.heads, size, size + 1, dtype=kind)
        largest = like.new_full((batch, self.heads), -torch.inf, dtype=kind)
        return self.convolution.initial_state(batch, like), matrix, largest

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        past, matrix, before = state
        u, z = self.up(x).chunk(2, -1)
        c, past = self.convolution(u, past, lengths)
        q, k = (self.split(part) for part in self.query_key(c).chunk(2, -1))
        v = self.split(self.value(u))
        write, forget = self.gates(c).to(matrix.dtype).chunk(2, -1)  # (B, T, heads)
        keep = F.logsigmoid(forget)
        if lengths is not None:
            live = masks.padding(lengths, x.shape[1])[..., None]
            keep, write = torch.where(live, keep, 0.0), torch.where(live, write, -torch.inf)
        largest = _largest(write, keep, before)  # (B, T, heads)
        shifted = torch.cat((before[:, None], largest[:, :-1]), 1)
        log_w = torch.where(torch.isinf(shifted), -torch.inf, keep + shifted - largest)
        value = torch.cat((v, v.new_ones(*v.shape[:-1], 1)), -1)
        written = (write - largest).exp()[..., None]
        # A row of no steps has no largest gate: nothing is written there.
        log_w, written = log_w.nan_to_num(nan=0.0, neginf=-torch.inf), written.nan_to_num(nan=0.0)
        scale = (self.inner // self.heads) ** -0.5
        y, matrix = self.scan(q, k * scale * written, value.to(matrix.dtype), log_w, lengths, matrix)
        bound = torch.maximum(y[..., -1:].abs(), (-largest).exp()[..., None].to(y.dtype))
        h = rms((y[..., :-1] / bound).to(x.dtype)).flatten(-2)
        return self.output((h + self.skip * c) * F.silu(z)), (past, matrix, largest[:, -1])


def _largest(write: Tensor, keep: Tensor, before: Tensor) -> Tensor:
    """m_t = max(keep_t + m_{t−1}, write_t) for all steps, ``(B, T, N)``; it only scales, so it has no gradient."""
    if scanning():
        given = (keep.transpose(0, 1), write.transpose(0, 1))
        return loop(_larger, (before,), given)[1].transpose(0, 1)
    with torch.no_grad():
        kept = keep.double().cumsum(1)
        highest = (write.double() - kept).cummax(1).values
        return (kept + torch.maximum(highest, before.double()[:, None])).to(write.dtype)


def _larger(before: States, here: States) -> tuple[States, Tensor]:
    """One step of `_largest`."""
    largest = torch.maximum(here[0] + before[0], here[1])
    return (largest,), largest.clone()
