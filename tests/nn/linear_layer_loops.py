"""Layers with a linear recurrence once more, each as its published equations, step by step for one row (T, width)."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.nn import MinGRU, linear
from anaphora.nn.linear import LinearLayer

WIDTH, HEADS = 16, 2
WINDOW = 6


def local_attention(width: int, heads: int) -> linear.LocalAttention:
    return linear.LocalAttention(width, heads, window=WINDOW)


def mingru_layer(width: int, heads: int) -> linear.CellLayer:
    return linear.CellLayer(MinGRU(width, 2 * width))


LAYERS: list[Callable[..., LinearLayer]] = [
    linear.RetNet,
    linear.GLA,
    linear.Mamba2,
    linear.MLSTM,
    linear.DeltaNet,
    linear.GatedDeltaNet,
    linear.RWKV4,
    linear.ChannelMixing,
    linear.RWKV7,
    linear.Mamba,
    linear.SLSTMLayer,
    linear.Griffin,
    local_attention,
    mingru_layer,
]


def made(kind: Callable[..., LinearLayer], **options: object) -> LinearLayer:
    torch.manual_seed(1)
    layer = kind(WIDTH, HEADS, **options).double()
    for parameter in layer.parameters():
        parameter.data += 0.2 * torch.randn_like(parameter)
    return layer


def heads(x: Tensor) -> Tensor:
    return x.reshape(HEADS, -1)


def normed(x: Tensor, weight: Tensor | float = 1.0) -> Tensor:
    return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * weight


def convolved(x: Tensor, part: linear.ShortConvolution) -> Tensor:
    """x (T, W) over the last four steps of each channel."""
    rows = []
    for t in range(len(x)):
        total = part.bias.clone()
        for back in range(4):
            if t >= back:
                total = total + part.weight[:, 0, 3 - back] * x[t - back]
        rows.append(F.silu(total))
    return torch.stack(rows)


def retnet(m: linear.RetNet, x: Tensor) -> list[Tensor]:
    size, out = WIDTH // HEADS, []
    state = [torch.zeros(size, size, dtype=x.dtype) for _ in range(HEADS)]
    for t, xt in enumerate(x):
        q, k, v, gate = (m.project.weight @ xt).chunk(4)
        rates = torch.tensor([10000 ** (-2 * i / size) for i in range(size // 2)], dtype=x.dtype)
        turn = torch.polar(torch.ones_like(rates), t * rates)
        ys = []
        for n in range(HEADS):
            qn, kn = (
                torch.view_as_real(torch.view_as_complex(heads(p)[n].reshape(-1, 2)) * turn).flatten()
                for p in (q, k)
            )
            state[n] = (1 - 2 ** (-5 - n)) * state[n] + torch.outer(kn, heads(v)[n]) / math.sqrt(size)
            ys.append(normed(state[n].T @ qn))
        out.append(m.output.weight @ (F.silu(gate) * torch.cat(ys)))
    return out


def gla(m: linear.GLA, x: Tensor) -> list[Tensor]:
    state, out = [torch.zeros(m.keys, WIDTH // HEADS, dtype=x.dtype) for _ in range(HEADS)], []
    for xt in x:
        q, k = (m.query_key.weight @ xt).chunk(2)
        v, gate = (m.value_gate.weight @ xt).chunk(2)
        alpha = torch.sigmoid(m.forget(xt)) ** (1 / 16)
        ys = []
        for n in range(HEADS):
            state[n] = heads(alpha)[n][:, None] * state[n] + torch.outer(heads(k)[n], heads(v)[n])
            ys.append(normed(state[n].T @ heads(q)[n] / math.sqrt(m.keys), m.norm.weight))
        out.append(m.output.weight @ (F.silu(gate) * torch.cat(ys)))
    return out


def mamba2(m: linear.Mamba2, x: Tensor) -> list[Tensor]:
    z, mixed, step = (x @ m.project.weight.T).split((m.inner, m.inner + 2 * m.size, HEADS), -1)
    mixed = convolved(mixed, m.convolution)
    state, out = torch.zeros(HEADS, m.size, m.inner // HEADS, dtype=x.dtype), []
    for t in range(len(x)):
        u, b, c = mixed[t].split((m.inner, m.size, m.size))
        delta = torch.log(1 + torch.exp(step[t] + m.offset))
        ys = []
        for n in range(HEADS):
            state[n] = torch.exp(-delta[n] * m.rate[n].exp()) * state[n] + torch.outer(
                b, delta[n] * heads(u)[n]
            )
            ys.append(state[n].clone().T @ c + m.skip[n] * heads(u)[n])
        out.append(m.output.weight @ normed(torch.cat(ys) * F.silu(z[t]), m.scale))
    return out


def mlstm(m: linear.MLSTM, x: Tensor) -> list[Tensor]:
    """Without the division by e^m, which changes nothing while the gates are small."""
    u, z = (x @ m.up.weight.T).chunk(2, -1)
    c = convolved(u, m.convolution)
    size, out = m.inner // HEADS, []
    cell, norm = torch.zeros(HEADS, size, size, dtype=x.dtype), torch.zeros(HEADS, size, dtype=x.dtype)
    for t in range(len(x)):
        q, k = (m.query_key.weight @ c[t]).chunk(2)
        v = m.value.weight @ u[t]
        write, keep = (m.gates.weight @ c[t] + m.gates.bias).chunk(2)
        hs = []
        for n in range(HEADS):
            kn = heads(k)[n] / math.sqrt(size)
            f, i = torch.sigmoid(keep[n]), write[n].exp()
            cell[n] = f * cell[n] + i * torch.outer(kn, heads(v)[n])
            norm[n] = f * norm[n] + i * kn
            h = cell[n].T @ heads(q)[n] / max(float((norm[n] @ heads(q)[n]).abs()), 1.0)
            hs.append(normed(h))
        out.append(m.output.weight @ ((torch.cat(hs) + m.skip * c[t]) * F.silu(z[t])))
    return out


def deltanet(m: linear.DeltaNet, x: Tensor) -> list[Tensor]:
    mixed, size, out = convolved(x @ m.project.weight.T, m.convolution), WIDTH // HEADS, []
    state = [torch.zeros(size, size, dtype=x.dtype) for _ in range(HEADS)]
    for t, xt in enumerate(x):
        q, k, v = (heads(p) for p in mixed[t].chunk(3))
        beta, decay = torch.sigmoid(m.write(xt)), torch.ones(HEADS, dtype=x.dtype)
        if isinstance(m, linear.GatedDeltaNet):
            decay = torch.exp(-m.rate.exp() * torch.log(1 + torch.exp(m.forget.weight @ xt + m.offset)))
        ys = []
        for n in range(HEADS):
            qn, kn = q[n] / q[n].norm(), k[n] / k[n].norm()
            erase = torch.eye(size, dtype=x.dtype) - beta[n] * torch.outer(kn, kn)
            state[n] = decay[n] * erase @ state[n] + beta[n] * torch.outer(kn, v[n])
            ys.append(normed(state[n].T @ qn, m.norm.weight))
        y = torch.cat(ys)
        if isinstance(m, linear.GatedDeltaNet):
            y = y * F.silu(m.gate.weight @ xt)
        out.append(m.output.weight @ y)
    return out


def rwkv7(m: linear.RWKV7, x: Tensor) -> list[Tensor]:
    size, out, before = WIDTH // HEADS, [], torch.zeros(WIDTH, dtype=x.dtype)
    state = [torch.zeros(size, size, dtype=x.dtype) for _ in range(HEADS)]
    for xt in x:
        xr, xw, xk, xv, xa, xg = (xt + (before - xt) * m.mixing[j] for j in range(6))
        before = xt
        r, k, v = m.receive.weight @ xr, m.key.weight @ xk, m.value.weight @ xv
        slow = m.decay_offset + m.decay["up"] @ torch.tanh(m.decay["down"] @ xw)
        w = torch.exp(-math.exp(-0.5) * torch.sigmoid(slow))
        a = torch.sigmoid(m.rate_offset + m.rate["up"] @ (m.rate["down"] @ xa))
        kappa, kt = heads(k * m.key_scale), heads(k * (1 + (a - 1) * m.key_rate))
        reads, bonus = [], []
        for n in range(HEADS):
            unit = kappa[n] / kappa[n].norm()
            moved = torch.diag(heads(w)[n]) - torch.outer(heads(a)[n] * unit, unit)
            state[n] = moved @ state[n] + torch.outer(kt[n], heads(v)[n])
            reads.append(state[n].T @ heads(r)[n])
            bonus.append((heads(r)[n] * m.bonus[n] * kt[n]).sum() * heads(v)[n])
        y = m.norm(torch.cat(reads)[None])[0] + torch.cat(bonus)
        out.append(m.output.weight @ (y * (m.gate["up"] @ torch.sigmoid(m.gate["down"] @ xg))))
    return out


def rwkv4(m: linear.RWKV4, x: Tensor) -> list[Tensor]:
    """Eqs. 11 to 16 of the paper as they stand, with sums over all steps before."""
    cell, out, before = m.recurrent.cells[0], [], torch.zeros_like(x[0])
    keys, values = [], []
    for t, xt in enumerate(x):
        xk, xv, xr = (mu * xt + (1 - mu) * before for mu in m.mixing)
        before = xt
        keys.append(m.key.weight @ xk)
        values.append(m.value.weight @ xv)
        scores = [-(t - 1 - s) * cell.decay.exp() + keys[s] for s in range(t)] + [cell.first + keys[t]]  # type: ignore[operator]
        shares = torch.softmax(torch.stack(scores), 0)  # (t + 1, width): for each channel
        wkv = (shares * torch.stack(values)).sum(0)
        out.append(m.output.weight @ (torch.sigmoid(m.receive.weight @ xr) * wkv))
    return out


def channel_mixing(m: linear.ChannelMixing, x: Tensor) -> list[Tensor]:
    out, before = [], torch.zeros_like(x[0])
    for xt in x:
        xk, xr = (mu * xt + (1 - mu) * before for mu in m.mixing)
        before = xt
        inner = torch.clamp(m.key.weight @ xk, min=0) ** 2
        out.append(torch.sigmoid(m.receive.weight @ xr) * (m.value.weight @ inner))
    return out


def mamba(m: linear.Mamba, x: Tensor) -> list[Tensor]:
    u, z = (x @ m.project.weight.T).chunk(2, -1)
    u, out = convolved(u, m.convolution), []
    h = torch.zeros(m.inner, m.size, dtype=x.dtype)
    for t in range(len(x)):
        low, b, c = (m.select.weight @ u[t]).split((m.rank, m.size, m.size))
        delta = torch.log(1 + torch.exp(m.step_size(low)))
        h = torch.exp(-delta[:, None] * m.rate.exp()) * h + torch.outer(delta * u[t], b)
        out.append(m.output.weight @ ((h @ c + m.skip * u[t]) * F.silu(z[t])))
    return out


def griffin(m: linear.Griffin, x: Tensor) -> list[Tensor]:
    inward, gate = (x @ m.project.weight.T).chunk(2, -1)
    cell, h, out = m.recurrent.cells[0], x.new_zeros(m.inner), []
    for t in range(len(x)):
        u = m.convolution.bias.clone()
        for back in range(min(4, t + 1)):
            u = u + m.convolution.weight[:, 0, 3 - back] * inward[t - back]
        r, i = torch.sigmoid(cell.gates.weights[0] @ u + cell.gates.bias).chunk(2)  # type: ignore[union-attr, index, operator]
        a = torch.exp(-8 * torch.log1p(torch.exp(cell.decay)) * r)  # type: ignore[arg-type]
        h = a * h + (1 - a**2).sqrt() * i * u
        out.append(m.output.weight @ (F.gelu(gate[t]) * h))
    return out


def slstm(m: linear.SLSTMLayer, x: Tensor) -> list[Tensor]:
    cell, size, out = m.recurrent.cells[0], WIDTH // HEADS, []
    h, c, n = (x.new_zeros(WIDTH) for _ in range(3))
    for xt, ut in zip(x, convolved(x, m.convolution), strict=True):
        given = [part.weights[0] @ v + part.bias for part, v in ((cell.content, xt), (cell.gates, ut))]  # type: ignore[union-attr, index, operator]
        z, o, i, f = torch.cat(given).chunk(4)
        mixed = [
            torch.cat([cell.mixing[gate, k] @ heads(h)[k] for k in range(HEADS)])  # type: ignore[index, operator]
            for gate in range(4)
        ]
        write, keep = torch.exp(i + mixed[2]), torch.sigmoid(f + mixed[3])
        c, n = keep * c + write * torch.tanh(z + mixed[0]), keep * n + write
        h = torch.sigmoid(o + mixed[1]) * c / n
        both = heads(h)
        centred = both - both.mean(-1, keepdim=True)
        normed = centred / (both.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
        out.append(normed.reshape(-1) * m.norm.weight + m.norm.bias)
        assert both.shape[1] == size
    return out


def attention(m: linear.LocalAttention, x: Tensor) -> list[Tensor]:
    size = WIDTH // HEADS
    rates = torch.tensor([10000 ** (-2 * i / size) for i in range(size // 2)], dtype=x.dtype)

    def turned(vector: Tensor, t: int) -> Tensor:
        turn = torch.polar(torch.ones_like(rates), t * rates)
        return torch.view_as_real(torch.view_as_complex(vector.reshape(-1, 2)) * turn).flatten()

    rows, out = [(m.project.weight @ xt).split((WIDTH, size, size)) for xt in x], []
    for t, (q, _, _) in enumerate(rows):
        seen = range(max(0, t - WINDOW), t + 1)
        ys = []
        for n in range(HEADS):  # one head of keys and values for all
            scores = torch.stack([turned(heads(q)[n], t) @ turned(rows[s][1], s) for s in seen])
            shares = torch.softmax(scores / math.sqrt(size), 0)
            ys.append(sum(share * rows[s][2] for share, s in zip(shares, seen, strict=True)))
        out.append(m.output.weight @ torch.cat(ys))  # type: ignore[arg-type]
    return out


def mingru(m: linear.CellLayer, x: Tensor) -> list[Tensor]:
    both = m.recurrent.cells[0].both
    h, out = x.new_zeros(2 * WIDTH), []
    for u in convolved(x, m.convolution):
        z, new = (both.weights[0] @ u + both.bias).chunk(2)  # type: ignore[union-attr, index, operator]
        h = (1 - torch.sigmoid(z)) * h + torch.sigmoid(z) * new
        out.append(m.output.weight @ h)
    return out


LOOPS: dict[Callable[..., LinearLayer], Callable[..., list[Tensor]]] = {
    linear.RetNet: retnet,
    linear.GLA: gla,
    linear.Mamba2: mamba2,
    linear.MLSTM: mlstm,
    linear.DeltaNet: deltanet,
    linear.GatedDeltaNet: deltanet,
    linear.RWKV4: rwkv4,
    linear.ChannelMixing: channel_mixing,
    linear.RWKV7: rwkv7,
    linear.Mamba: mamba,
    linear.SLSTMLayer: slstm,
    linear.Griffin: griffin,
    local_attention: attention,
    mingru_layer: mingru,
}
