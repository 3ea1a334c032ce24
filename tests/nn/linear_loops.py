"""The cells of linear recurrence once more, each as a plain loop over numbers: independent of the engine and of ``step``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

sigmoid, tanh, exp = torch.sigmoid, torch.tanh, torch.exp
Loop = Callable[[Any, Tensor, list[Tensor]], tuple[Tensor, list[Tensor]]]


def project(affine: Any, x: Tensor) -> Tensor:
    """W x + b for all steps."""
    y = torch.einsum("ok,btk->bto", affine.weights[0], x)
    return y if affine.bias is None else y + affine.bias


def _scan(a: Tensor, b: Tensor, h: Tensor) -> Tensor:
    """h_t = a_t h_{t−1} + b_t, ``(B, T, H)``."""
    found = []
    for now, add in zip(a.unbind(1), b.unbind(1), strict=True):
        h = now * h + add
        found.append(h)
    return torch.stack(found, 1)


def _one(h: Tensor) -> tuple[Tensor, list[Tensor]]:
    return h, [h[:, -1]]


def _read(y: Tensor, c: Tensor) -> tuple[Tensor, list[Tensor]]:
    return y, [y[:, -1], c[:, -1]]


def mingru(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    z, new = project(cell.both, x).chunk(2, -1)
    return _one(_scan(1 - sigmoid(z), sigmoid(z) * new, s[0]))


def minlstm(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    f, i, new = project(cell.all, x).chunk(3, -1)
    share = sigmoid(f) / (sigmoid(f) + sigmoid(i))
    return _one(_scan(share, (1 - share) * new, s[0]))


def gilr(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    g, new = project(cell.both, x).chunk(2, -1)
    return _one(_scan(sigmoid(g), (1 - sigmoid(g)) * tanh(new), s[0]))


def qrnn(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    z, f, o, i = project(cell.all, x).chunk(4, -1)
    c = _scan(sigmoid(f), sigmoid(i) * tanh(z), s[1])
    return _read(sigmoid(o) * c, c)


def sru(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    f, r = sigmoid(project(cell.gates, x)).chunk(2, -1)
    c = _scan(f, (1 - f) * project(cell.enter, x), s[1])
    return _read(r * tanh(c) + (1 - r) * project(cell.skip, x), c)


def hgrn(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    f, new, o = project(cell.all, x).chunk(3, -1)
    f = cell.lower + (1 - cell.lower) * sigmoid(f)
    c = _scan(f, (1 - f) * new * sigmoid(new), s[1])
    return _read(sigmoid(o) * c, c)


def rglru(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    r, i = sigmoid(project(cell.gates, x)).chunk(2, -1)
    a = sigmoid(-cell.decay) ** (8 * r)  # σ(−Λ) = e^(−softplus(Λ))
    return _one(_scan(a, torch.sqrt(1 - a**2) * i * project(cell.enter, x), s[0]))


def _complex(rate: Tensor, given: Tensor, s: list[Tensor]) -> Tensor:
    return _scan(rate.expand(given.shape), given, torch.complex(s[0], s[1]))


def lru(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    rate = exp(torch.complex(-exp(cell.nu), exp(cell.theta)))
    b = torch.complex(*project(cell.enter, x).chunk(2, -1))
    h = _complex(rate, torch.sqrt(1 - rate.abs() ** 2) * b, s[1:])
    y = project(cell.out, torch.cat((h.real, h.imag), -1)) + project(cell.skip, x)
    return y, [y[:, -1], h.real[:, -1], h.imag[:, -1]]


def s5(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    rate = torch.complex(-exp(cell.decay), cell.turn)
    step = exp(rate * exp(cell.length))
    b = torch.complex(*project(cell.enter, x).chunk(2, -1))
    h = _complex(step, (step - 1) / rate * b, s[1:])
    y = 2 * project(cell.out, torch.cat((h.real, h.imag), -1)) + project(cell.skip, x)
    return y, [y[:, -1], h.real[:, -1], h.imag[:, -1]]


def s4d(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    u, n = project(cell.enter, x), cell.order
    y, reals, imaginaries = cell.through * u, [], []
    for k in range(n):
        rate = torch.complex(-exp(cell.decay[k]), cell.turn[k])
        step = exp(rate * exp(cell.length))
        h = _complex(step, (step - 1) / rate * u, [s[1 + k], s[1 + n + k]])
        y = y + 2 * (torch.complex(cell.real[k], cell.imaginary[k]) * h).real
        reals.append(h.real[:, -1])
        imaginaries.append(h.imag[:, -1])
    return y, [y[:, -1], *reals, *imaginaries]


def indrnn(cell: Any, x: Tensor, s: list[Tensor]) -> tuple[Tensor, list[Tensor]]:
    found, h = [], s[0]
    for now in project(cell.enter, x).unbind(1):
        h = (now + cell.own * h).clamp(min=0)
        found.append(h)
    return _one(torch.stack(found, 1))


LOOPS: dict[str, Loop] = {
    "MinGRU": mingru,
    "MinLSTM": minlstm,
    "GILR": gilr,
    "QRNN": qrnn,
    "SRU": sru,
    "HGRN": hgrn,
    "RGLRU": rglru,
    "LRU": lru,
    "S5": s5,
    "S4D": s4d,
    "IndRNN": indrnn,
}
