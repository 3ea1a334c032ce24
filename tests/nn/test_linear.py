"""Layers with a linear recurrence, each against its published equations, step by step in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from anaphora.nn import MinGRU, inside, linear
from anaphora.nn.linear import LinearLayer, matrix_scan

pytestmark = pytest.mark.usefixtures("quick_compiler")
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


@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_equals_its_published_equations(kind: Callable[..., LinearLayer]) -> None:
    layer, x = made(kind), torch.randn(2, 21, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        found = layer(x)[0]
        expected = torch.stack([torch.stack(LOOPS[kind](layer, row)) for row in x])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("kind", LAYERS)
def test_steps_pieces_and_lengths_equal_the_whole(kind: Callable[..., LinearLayer]) -> None:
    layer, x = made(kind), torch.randn(3, 70, WIDTH, dtype=torch.float64)
    with torch.no_grad():
        whole, last = layer(x)
        first, state = layer(x[:, :33])
        second, state = layer(x[:, 33:], None, state)
        torch.testing.assert_close(torch.cat((first, second), 1), whole, rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(state, last, rtol=1e-9, atol=1e-11)
        state, one_by_one = layer.initial_state(3, x), []
        for xt in x.unbind(1):
            y, state = layer.step(xt, state)
            one_by_one.append(y)
        torch.testing.assert_close(torch.stack(one_by_one, 1), whole, rtol=1e-9, atol=1e-11)
        spoilt, lengths = x.clone(), torch.tensor([70, 0, 21])
        spoilt[1], spoilt[2, 21:] = torch.nan, torch.inf
        ragged, ends = layer(spoilt, lengths)
        assert not ragged[1].any()
        assert not ragged[2, 21:].any()
        torch.testing.assert_close(ragged[2, :21], whole[2, :21], rtol=1e-9, atol=1e-11)
        alone = layer(x[2:, :21])[1]
        for found, short, none in zip(ends, alone, layer.initial_state(3, x), strict=True):
            torch.testing.assert_close(found[2], short[0], rtol=1e-9, atol=1e-11)
            assert torch.equal(found[1], none[1])


@pytest.mark.parametrize("kind", LAYERS)
def test_gradients(kind: Callable[..., LinearLayer]) -> None:
    """To x, to every parameter, and to states that are handed over; past a row's end they are zero."""
    layer, x = made(kind), torch.randn(2, 9, WIDTH, dtype=torch.float64, requires_grad=True)
    lengths = torch.tensor([9, 4])

    def run(x: Tensor, *parameters: Tensor) -> Tensor:
        names = [name for name, _ in layer.named_parameters()]
        given = dict(zip(names, parameters, strict=True))
        y, state = torch.func.functional_call(layer, given, (x[:, :5], lengths.clamp(max=5)))
        z, _ = torch.func.functional_call(layer, given, (x[:, 5:], lengths - lengths.clamp(max=5), state))
        return torch.cat((y, z), 1).square().sum()

    inputs = (x, *layer.parameters())
    grads = torch.autograd.grad(run(*inputs), inputs, allow_unused=True)
    for value, grad in zip(inputs, grads, strict=True):
        assert grad is not None
        direction = torch.randn_like(value)
        with torch.no_grad():
            sides = [
                run(*(v + s * 1e-5 * direction if v is value else v for v in inputs)) for s in (1.0, -1.0)
            ]
        torch.testing.assert_close(
            (grad * direction).sum(), (sides[0] - sides[1]) / 2e-5, rtol=2e-5, atol=1e-6
        )
    assert not grads[0][1, 4:].any()


@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 40),
    st.one_of(st.none(), st.integers(1, 20)),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_the_operator_equals_the_loop(
    time: int, chunk: int | None, by_channel: bool, delta: bool, seed: int
) -> None:
    """Any length and chunk; decays of 1 and of exactly 0 among them; outputs, last state and all gradients."""
    torch.manual_seed(seed)
    shape = (2, time, 2)
    r, k = (torch.randn(*shape, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    v = torch.randn(*shape, 4, dtype=torch.float64, requires_grad=True)
    log_w = -3 * torch.rand(*shape, *([3] if by_channel else []), dtype=torch.float64)
    log_w[torch.rand_like(log_w) < 0.1] = -torch.inf
    log_w[torch.rand_like(log_w) < 0.1] = 0.0
    log_w.requires_grad_()
    state = torch.randn(2, 2, 3, 4, dtype=torch.float64, requires_grad=True)
    a = F.normalize(k, dim=-1) if delta else None
    b = None if a is None else -0.7 * a
    y, last = matrix_scan(r, k, v, log_w, a, b, state, chunk=chunk)
    old, ys = state, []
    for t in range(time):
        w = log_w[:, t].exp()
        new = (w[..., None] if by_channel else w[..., None, None]) * old
        new = new + k[:, t, :, :, None] * v[:, t, :, None]
        if a is not None and b is not None:
            new = new + b[:, t, :, :, None] * (a[:, t, :, :, None] * old).sum(-2, keepdim=True)
        ys.append((r[:, t, :, :, None] * new).sum(-2))
        old = new
    torch.testing.assert_close(y, torch.stack(ys, 1), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(last, old, rtol=1e-9, atol=1e-9)
    leaves, weights = (r, k, v, log_w, state), torch.randn_like(y)
    found = torch.autograd.grad((y * weights).sum() + last.sum(), leaves, retain_graph=True)
    expected = torch.autograd.grad((torch.stack(ys, 1) * weights).sum() + old.sum(), leaves)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_long_sequences_stay_exact_in_float32() -> None:
    """65 536 steps with decays near 1 and near 0: as exact as one rounding of the inputs allows."""
    torch.manual_seed(0)
    time = 65536
    r, k, v = (torch.randn(1, time, 1, 2) for _ in range(3))
    log_w = F.logsigmoid(8 * torch.randn(1, time, 1))
    found = matrix_scan(r, k, v, log_w)[0].double()
    exact = matrix_scan(r.double(), k.double(), v.double(), log_w.double(), chunk=64)[0]
    assert float((found - exact).abs().max() / exact.abs().max()) < 1e-5


def test_large_input_gates_of_mlstm_stay_finite() -> None:
    layer = made(linear.MLSTM).float()
    with torch.no_grad():
        layer.gates.bias[:HEADS] = 200.0  # type: ignore[union-attr, index, operator]
        y, state = layer(torch.randn(2, 30, WIDTH))
    assert all(value.isfinite().all() for value in (y, *state))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_states_are_never_narrow(dtype: torch.dtype) -> None:
    x = torch.randn(1, 4, WIDTH, dtype=torch.bfloat16 if dtype == torch.float32 else dtype)
    for kind in LAYERS:
        if kind is linear.ChannelMixing:  # keeps the step before, not a sum
            continue
        assert kind(WIDTH, HEADS).initial_state(1, x)[-1].dtype in (dtype, torch.long)


def test_values_inside_are_noted() -> None:
    with inside.record() as notes:
        made(linear.GLA)(torch.randn(1, 5, WIDTH, dtype=torch.float64))
    assert [note.name for note in notes] == ["queries", "keys", "values", "log_decay"]


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="cannot be divided among 3 heads"):
        linear.GLA(16, 3)
    with pytest.raises(ValueError, match=r"x must be \(batch, time, 16\)"):
        linear.GLA(16, 2)(torch.zeros(2, 3, 5))
    with pytest.raises(ValueError, match="lengths must be"):
        linear.GLA(16, 2)(torch.zeros(2, 3, 16), torch.tensor([1]))
    z = torch.zeros(1, 2, 1, 2)
    with pytest.raises(ValueError, match="a and b belong together"):
        matrix_scan(z, z, z, z[..., 0], a=z)
