"""RWKV-4: attention whose weights decay by channel, and a feed-forward network that also reads the step before."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.cell import Cell
from anaphora.nn.linear.layer import EPSILON, LinearLayer, States, last_steps
from anaphora.nn.linear.stack import LinearBlock
from anaphora.nn.recurrent import Recurrent

_LEAST = -1e38  # log of a sum of nothing; finite, so that −∞ − −∞ never occurs


class WKV(Cell):
    """The recurrence of RWKV-4 (Peng et al. 2023, eq. 16): a mean of all values so far, whose weights decay by channel.

        y_t = (a_{t−1} + e^(u + k_t) v_t) / (b_{t−1} + e^(u + k_t))
        a_t = e^(−w) a_{t−1} + e^(k_t) v_t,   b_t = e^(−w) b_{t−1} + e^(k_t),   w = e^decay,   u = first

    x is k and v side by side. e^k may be large: a and b are kept divided by e^m with m_t = max(m_{t−1} − w, k_t), which leaves
    y as it is (appendix D there). m must start at about −1e38, where nothing was written yet.

    A `ValueError` where ``inputs`` is not twice ``hidden``.

    >>> an.nn.linear.WKV(6, 3)(torch.zeros(2, 6))[0].shape              # one step: k and v of width 3
    torch.Size([2, 3])
    """

    state = ("y", "a", "b", "m")

    def setup(self, inputs: int, hidden: int) -> None:
        if inputs != 2 * hidden:
            raise ValueError(f"WKV reads k and v side by side: {2 * hidden} inputs, got {inputs}.")
        self.decay, self.first = nn.Parameter(torch.empty(hidden)), nn.Parameter(torch.empty(hidden))
        with torch.no_grad():
            self.decay.copy_(
                -5 + 8 * torch.linspace(0, 1, hidden) ** 1.35
            )  # as published, for a middle layer
            self.first.copy_(math.log(0.3) + 0.5 * ((torch.arange(hidden) + 1) % 3 - 1))

    def step(self, x: Tensor, y: Tensor, a: Tensor, b: Tensor, m: Tensor) -> tuple[Tensor, ...]:
        k, v = x.chunk(2, -1)
        now = k + self.first
        top = torch.maximum(m, now)
        before, here = torch.exp(m - top), torch.exp(now - top)
        read = (before * a + here * v) / (before * b + here)
        kept = m - torch.exp(self.decay)
        top = torch.maximum(kept, k)
        keep, write = torch.exp(kept - top), torch.exp(k - top)
        return read, keep * a + write * v, keep * b + write, top


class RWKV4(LinearLayer):
    """Time mixing of RWKV-4 (Peng et al. 2023).

        x^j_t = μ_j ∘ x_t + (1 − μ_j) ∘ x_{t−1}  for j = k, v, r
        k, v, r = W_k x^k, W_v x^v, W_r x^r;   out_t = W_o (σ(r_t) ∘ wkv_t), with `WKV` of k and v

    States: the last step ``(B, 1, width)``, and a, b, m of `WKV` ``(B, width)``.

    >>> an.nn.linear.RWKV4(16)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 1):
        super().__init__(width, heads)
        self.mixing = nn.Parameter(torch.empty(3, width))  # k, v, r
        self.key, self.value, self.receive = (nn.Linear(width, width, bias=False) for _ in range(3))
        self.recurrent = Recurrent(WKV(2 * width, width))
        self.output = nn.Linear(width, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        self.recurrent = Recurrent(WKV(2 * self.width, self.width))
        _graded(self.mixing)

    def initial_state(self, batch: int, like: Tensor) -> States:
        kind = torch.promote_types(like.dtype, torch.float32)
        empty = like.new_zeros(batch, self.width, dtype=kind)
        return like.new_zeros(batch, 1, self.width), empty, empty, empty + _LEAST

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        joined = torch.cat((state[0].to(x.dtype), x), 1)
        k, v, r = (
            part(read)
            for part, read in zip(
                (self.key, self.value, self.receive), _mixed(joined, self.mixing), strict=True
            )
        )
        inside.note(self, "keys", k)
        inside.note(self, "values", v)
        kind = state[1].dtype
        both = torch.cat((k.to(kind), v.to(kind)), -1)
        first = tuple(s[None] for s in (torch.zeros_like(state[1]), *state[1:]))
        with torch.autocast(x.device.type, enabled=False):
            y, last = self.recurrent(both, lengths, first)
        out = self.output(torch.sigmoid(r) * y.to(x.dtype))
        return out, (last_steps(joined, 1, lengths), *(s[0] for s in last[1:]))


class ChannelMixing(LinearLayer):
    """Channel mixing of RWKV-4: σ(W_r x^r) ∘ W_v relu(W_k x^k)², with x^k and x^r mixed as in `RWKV4`.

    ``inner``: the width between, four times the width if None. State: the last step ``(B, 1, width)``.

    >>> an.nn.linear.ChannelMixing(16)(torch.zeros(2, 5, 16))[0].shape
    torch.Size([2, 5, 16])
    """

    def __init__(self, width: int, heads: int = 1, *, inner: int | None = None):
        super().__init__(width, heads)
        inner = 4 * width if inner is None else inner
        self.mixing = nn.Parameter(torch.empty(2, width))  # k, r
        self.key, self.receive = (nn.Linear(width, size, bias=False) for size in (inner, width))
        self.value = nn.Linear(inner, width, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _graded(self.mixing)

    def initial_state(self, batch: int, like: Tensor) -> States:
        return (like.new_zeros(batch, 1, self.width),)

    def mix(self, x: Tensor, state: States, lengths: Tensor | None) -> tuple[Tensor, States]:
        joined = torch.cat((state[0].to(x.dtype), x), 1)
        k, r = _mixed(joined, self.mixing)
        y = self.value(torch.relu(self.key(k)).square())
        return torch.sigmoid(self.receive(r)) * y, (last_steps(joined, 1, lengths),)


class RWKV4Block(LinearBlock):
    """x + `RWKV4`(norm(x)), then x + `ChannelMixing`(norm(x)), with LayerNorms; a stack of them also norms what it reads. x ``(B, T, width)``.

    >>> stack = an.nn.linear.LinearStack(16, [RWKV4Block(16)], layers=2)
    """

    norms = nn.LayerNorm
    norms_inputs = True

    def __init__(self, width: int, *, dropout: float = 0.0, row_dropout: float = 0.0):
        super().__init__(RWKV4(width), dropout=dropout, row_dropout=row_dropout)
        self.channels, self.norm_channels = ChannelMixing(width), nn.LayerNorm(width, EPSILON)

    def initial_state(self, batch: int, like: Tensor) -> States:
        return *self.mixer.initial_state(batch, like), *self.channels.initial_state(batch, like)

    def forward(self, x: Tensor, lengths: Tensor | None, state: States | None) -> tuple[Tensor, States]:
        before, beside = (None, None) if state is None else (state[:-1], state[-1:])
        x, after = super().forward(x, lengths, before)
        y, last = self.channels(self._read(self.norm_channels(x)), lengths, beside)
        return x + self.dropout(y), (*after, *last)


def _mixed(joined: Tensor, mixing: Tensor) -> list[Tensor]:
    """``(B, 1 + T, width)``, the step before in front: μ ∘ x_t + (1 − μ) ∘ x_{t−1} for each μ."""
    before, x = joined[:, :-1], joined[:, 1:]
    return [x * share + before * (1 - share) for share in mixing]


def _graded(mixing: nn.Parameter) -> None:
    """From the step before in the first channel to this one in the last, as published for a middle layer."""
    with torch.no_grad():
        mixing.copy_(torch.linspace(0, 1, mixing.shape[1]).sqrt().expand_as(mixing))
