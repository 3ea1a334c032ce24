"""mLSTM: the LSTM with a matrix as its cell."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.attention import masks
from anaphora.nn.exporting import loop, scanning
from anaphora.nn.linear.layer import LinearLayer, ShortConvolution, States, rms


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
