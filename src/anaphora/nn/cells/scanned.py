"""Linear recurrences: cells whose memory is an affine function of itself, column by column, so that it can be scanned.

Gates read the input only. Nothing has to be said for that: the engine finds it in the equations (docs/reference/engine.md).
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.nn.cell import Affine, Cell


def _parts(value: Tensor, count: int) -> tuple[Tensor, ...]:
    return value.chunk(count, -1)


class MinGRU(Cell):
    """Minimal GRU (Feng et al. 2024, "Were RNNs all we needed?").

    z   = σ(W x_t + b)
    h̃   = W x_t + b                       with its own W, b
    h_t = (1 − z) ∘ h_{t−1} + z ∘ h̃

    >>> an.nn.MinGRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.both = Affine(inputs, 2 * hidden, blocks=2)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        z, new = _parts(self.both(x), 2)
        z = torch.sigmoid(z)
        return (1 - z) * h + z * new


class MinLSTM(Cell):
    """Minimal LSTM (Feng et al. 2024), with gates that sum to one.

    f, i = σ(W x_t + b)                   each with its own W, b
    h̃    = W x_t + b
    h_t  = f / (f + i) ∘ h_{t−1} + i / (f + i) ∘ h̃

    >>> an.nn.MinLSTM(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.all = Affine(inputs, 3 * hidden, blocks=3)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        f, i, new = _parts(self.all(x), 3)
        f, i = torch.sigmoid(f), torch.sigmoid(i)
        total = f + i
        return f / total * h + i / total * new


class GILR(Cell):
    """Gated impulse linear recurrence (Martin & Cundy 2018).

    g   = σ(W x_t + b)
    i   = tanh(W x_t + b)                 with its own W, b
    h_t = g ∘ h_{t−1} + (1 − g) ∘ i

    >>> an.nn.GILR(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.both = Affine(inputs, 2 * hidden, blocks=2)

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        g, new = _parts(self.both(x), 2)
        g = torch.sigmoid(g)
        return g * h + (1 - g) * torch.tanh(new)


class QRNN(Cell):
    """Quasi-recurrent network with a window of one step (Bradbury et al. 2017, "ifo" pooling).

        z       = tanh(W x_t + b)
        i, f, o = σ(W x_t + b)            each with its own W, b
        c_t     = f ∘ c_{t−1} + i ∘ z
        h_t     = o ∘ c_t

    ``pooling="fo"``: c_t = f ∘ c_{t−1} + (1 − f) ∘ z. For a wider window put a convolution in front.

    >>> an.nn.QRNN(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int, *, pooling: str = "ifo") -> None:
        if pooling not in ("fo", "ifo"):
            raise ValueError(f"QRNN: pooling must be 'fo' or 'ifo', got {pooling!r}.")
        self.pooling = pooling
        self.all = Affine(inputs, (1 + len(pooling)) * hidden, blocks=1 + len(pooling))

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        z, *gates = _parts(self.all(x), 1 + len(self.pooling))
        f, o = torch.sigmoid(gates[0]), torch.sigmoid(gates[1])
        i = torch.sigmoid(gates[2]) if self.pooling == "ifo" else 1 - f
        c = f * c + i * torch.tanh(z)
        return o * c, c


class SRU(Cell):
    """Simple recurrent unit (Lei et al. 2017, first version).

        x̃    = W x_t
        f, r = σ(W x_t + b)               each with its own W, b
        c_t  = f ∘ c_{t−1} + (1 − f) ∘ x̃
        h_t  = r ∘ tanh(c_t) + (1 − r) ∘ x_t

    Where x is not as wide as the state, W x_t with a matrix of its own stands for x_t in the last line.

    >>> an.nn.SRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int) -> None:
        self.gates = Affine(inputs, 2 * hidden, blocks=2)
        self.enter = Affine(inputs, hidden, bias=False)
        self.skip = None if inputs == hidden else Affine(inputs, hidden, bias=False)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, r = torch.sigmoid(self.gates(x)).chunk(2, -1)
        c = f * c + (1 - f) * self.enter(x)
        return r * torch.tanh(c) + (1 - r) * (x if self.skip is None else self.skip(x)), c


class HGRN(Cell):
    """Hierarchically gated recurrent network, real form (Qin et al. 2023).

        f   = γ + (1 − γ) ∘ σ(W x_t + b)
        h̃   = silu(W x_t + b)             with its own W, b
        c_t = f ∘ c_{t−1} + (1 − f) ∘ h̃
        h_t = σ(W x_t + b) ∘ c_t          with its own W, b

    ``lower``: γ, the least the forget gate can be; higher in upper layers, so that they remember longer.

    >>> an.nn.HGRN(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h", "c")

    def setup(self, inputs: int, hidden: int, *, lower: float = 0.0) -> None:
        if not 0 <= lower < 1:
            raise ValueError(f"HGRN: lower must lie in 0 … 1, got {lower}.")
        self.lower = float(lower)
        self.all = Affine(inputs, 3 * hidden, blocks=3)

    def step(self, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
        f, new, o = _parts(self.all(x), 3)
        f = self.lower + (1 - self.lower) * torch.sigmoid(f)
        c = f * c + (1 - f) * F.silu(new)
        return torch.sigmoid(o) * c, c


class RGLRU(Cell):
    """Real-gated linear recurrent unit of Griffin (De et al. 2024).

        r, i = σ(W x_t + b)               each with its own W, b
        a    = exp(−8 softplus(Λ) ∘ r)
        h_t  = a ∘ h_{t−1} + √(1 − a²) ∘ (i ∘ x_t)

    Λ starts where a^(1/r) is spread over 0.9 … 0.999. Where x is not as wide as the state, W x_t stands for x_t in the
    last line. 1 − a² is at least 1e-7, so that the root's gradient stays below 1600 (the authors bound it by 1000).

    >>> an.nn.RGLRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.gates = Affine(inputs, 2 * hidden, blocks=2)
        self.enter = None if inputs == hidden else Affine(inputs, hidden, bias=False)
        rates = torch.linspace(0.9, 0.999, hidden)
        self.decay = nn.Parameter(torch.log(torch.expm1(-torch.log(rates) / 8)))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        r, i = torch.sigmoid(self.gates(x)).chunk(2, -1)
        log_a = -8 * F.softplus(self.decay) * r
        a = torch.exp(log_a)
        given = x if self.enter is None else self.enter(x)
        return a * h + torch.sqrt(torch.clamp(1 - a * a, min=1e-7)) * (i * given)


class LRU(Cell):
    """Linear recurrent unit (Orvieto et al. 2023): a complex number per unit, rotated and shrunk at every step.

        λ   = exp(−exp(ν) + i exp(θ)),  γ = √(1 − |λ|²)
        s_t = λ ∘ s_{t−1} + γ ∘ (B x_t)           complex: states re, im
        y_t = Re(C s_t) + D x_t

    |λ| starts between ``least`` and ``most``, the angle between 0 and ``angle``.

    >>> an.nn.LRU(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("y", "re", "im")

    def setup(
        self, inputs: int, hidden: int, *, least: float = 0.4, most: float = 0.99, angle: float = 3.14
    ) -> None:
        if not 0 < least < most < 1 or angle <= 0:
            raise ValueError(
                f"LRU: needs 0 < least < most < 1 and a positive angle, got {least}, {most}, {angle}."
            )
        self.enter = Affine(inputs, 2 * hidden, bias=False, blocks=2)
        self.out = Affine(2 * hidden, hidden, bias=False, recurrent=1)
        self.skip = Affine(inputs, hidden)
        u = torch.linspace(0.5 / hidden, 1 - 0.5 / hidden, hidden)
        size = torch.sqrt(least**2 + (most**2 - least**2) * u)
        self.nu = nn.Parameter(torch.log(-torch.log(size)))
        self.theta = nn.Parameter(torch.log(angle * u[torch.randperm(hidden)]))

    def step(self, x: Tensor, y: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
        size, turn = torch.exp(-torch.exp(self.nu)), torch.exp(self.theta)
        c, s, scale = size * torch.cos(turn), size * torch.sin(turn), torch.sqrt(1 - size * size)
        a, b = _parts(self.enter(x), 2)
        re, im = c * re - s * im + scale * a, s * re + c * im + scale * b
        return self.out(torch.cat((re, im), -1)) + self.skip(x), re, im


class S5(Cell):
    """Simplified state space layer (Smith et al. 2023), diagonal, discretised by zero-order hold.

        λ̄   = exp(λ ∘ Δ),  b̄ = (λ̄ − 1) / λ
        s_t = λ̄ ∘ s_{t−1} + b̄ ∘ (B x_t)           complex: states re, im
        y_t = 2 Re(C s_t) + D x_t

    λ starts at −½ + i π n (S4D-Lin); the step Δ, one per unit, between ``shortest`` and ``longest``.

    >>> an.nn.S5(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("y", "re", "im")

    def setup(self, inputs: int, hidden: int, *, shortest: float = 0.001, longest: float = 0.1) -> None:
        if not 0 < shortest < longest:
            raise ValueError(f"S5: needs 0 < shortest < longest, got {shortest} and {longest}.")
        self.enter = Affine(inputs, 2 * hidden, bias=False, blocks=2)
        self.out = Affine(2 * hidden, hidden, bias=False, recurrent=1)
        self.skip = Affine(inputs, hidden)
        self.decay = nn.Parameter(torch.full((hidden,), 0.5).log())
        self.turn = nn.Parameter(torch.pi * torch.arange(hidden, dtype=torch.float32))
        u = torch.rand(hidden)
        low, high = torch.tensor(shortest).log(), torch.tensor(longest).log()
        self.length = nn.Parameter(low + u * (high - low))

    def step(self, x: Tensor, y: Tensor, re: Tensor, im: Tensor) -> tuple[Tensor, ...]:
        decay, turn, length = -torch.exp(self.decay), self.turn, torch.exp(self.length)
        size, angle = torch.exp(decay * length), turn * length
        c, s = size * torch.cos(angle), size * torch.sin(angle)
        square = decay * decay + turn * turn  # 1 / λ = (decay − i turn) / |λ|²
        g_re = ((c - 1) * decay + s * turn) / square
        g_im = (s * decay - (c - 1) * turn) / square
        a, b = _parts(self.enter(x), 2)
        re, im = c * re - s * im + (g_re * a - g_im * b), s * re + c * im + (g_re * b + g_im * a)
        return 2 * self.out(torch.cat((re, im), -1)) + self.skip(x), re, im


class S4D(Cell):
    """Diagonal structured state space (Gu et al. 2022, S4D-Lin): each unit has ``order`` complex numbers of its own.

        λ̄    = exp(λ Δ),  b̄ = (λ̄ − 1) / λ         for each unit and n = 0 … order − 1
        s_nt = λ̄_n ∘ s_n,t−1 + b̄_n ∘ u_t           complex: states re n, im n
        y_t  = 2 Re(Σ_n c_n ∘ s_nt) + d ∘ u_t,  u_t = W x_t + b

    λ_n starts at −½ + i π n; the step Δ, one per unit, between ``shortest`` and ``longest``.

    >>> an.nn.S4D(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    def setup(
        self, inputs: int, hidden: int, *, order: int = 4, shortest: float = 0.001, longest: float = 0.1
    ) -> None:
        if order < 1 or not 0 < shortest < longest:
            raise ValueError(
                f"S4D: needs order ≥ 1 and 0 < shortest < longest, got {order}, {shortest}, {longest}."
            )
        self.order = order
        self.state = ("y", *(f"re{n}" for n in range(order)), *(f"im{n}" for n in range(order)))
        self.enter = Affine(inputs, hidden)
        self.decay = nn.ParameterList([nn.Parameter(torch.full((hidden,), 0.5).log()) for _ in range(order)])
        self.turn = nn.ParameterList(
            [nn.Parameter(torch.full((hidden,), torch.pi * n)) for n in range(order)]
        )
        self.real = nn.ParameterList([nn.Parameter(torch.randn(hidden)) for _ in range(order)])
        self.imaginary = nn.ParameterList([nn.Parameter(torch.randn(hidden)) for _ in range(order)])
        self.through = nn.Parameter(torch.ones(hidden))
        low, high = torch.tensor(shortest).log(), torch.tensor(longest).log()
        self.length = nn.Parameter(low + torch.rand(hidden) * (high - low))

    def step(self, x: Tensor, y: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        u, length = self.enter(x), torch.exp(self.length)
        total = self.through * u
        reals, imaginaries = [], []
        for n in range(self.order):
            decay, turn = -torch.exp(self.decay[n]), self.turn[n]
            size, angle = torch.exp(decay * length), turn * length
            c, s = size * torch.cos(angle), size * torch.sin(angle)
            square = decay * decay + turn * turn
            g_re = ((c - 1) * decay + s * turn) / square
            g_im = (s * decay - (c - 1) * turn) / square
            re, im = states[n], states[self.order + n]
            re, im = c * re - s * im + g_re * u, s * re + c * im + g_im * u
            total = total + 2 * (self.real[n] * re - self.imaginary[n] * im)
            reals.append(re)
            imaginaries.append(im)
        return total, *reals, *imaginaries


class IndRNN(Cell):
    """Independently recurrent network (Li et al. 2018): h_t = ReLU(W x_t + u ∘ h_{t−1} + b).

    Each unit sees its own past only. Not affine, but column by column: the engine walks it.

    >>> an.nn.IndRNN(3, 4)(torch.zeros(2, 3))[0].shape  # one step of two rows
    torch.Size([2, 4])
    """

    state = ("h",)

    def setup(self, inputs: int, hidden: int) -> None:
        self.enter = Affine(inputs, hidden)
        self.own = nn.Parameter(torch.linspace(0, 1, hidden))

    def step(self, x: Tensor, h: Tensor) -> Tensor:
        return torch.relu(self.enter(x) + self.own * h)
