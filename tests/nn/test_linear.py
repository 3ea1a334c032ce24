"""Layers with a linear recurrence, each against its published equations, step by step in float64."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from linear_layer_loops import HEADS, LAYERS, LOOPS, WIDTH, made
from torch import Tensor
from torch.nn import functional as F

from anaphora.nn import inside, linear
from anaphora.nn.linear import LinearLayer, matrix_scan

pytestmark = pytest.mark.usefixtures("quick_compiler")


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
