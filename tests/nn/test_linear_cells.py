"""Cells of linear recurrence against independent loops in float64; lengths, pieces, single steps, long sequences."""

from __future__ import annotations

import pytest
import torch
from linear_loops import LOOPS
from torch import Tensor

import anaphora as an
from anaphora import nn
from anaphora.native import c as compiler

I, H, T = 3, 4, 7


pytestmark = pytest.mark.usefixtures("quick_compiler")


def _made(name: str) -> nn.Recurrent:
    torch.manual_seed(0)
    options = {"order": 2} if name == "S4D" else {"lower": 0.2} if name == "HGRN" else {}
    cell = getattr(nn, name)(I, H, **options)
    for p in cell.parameters():
        p.data += 0.1 * torch.rand_like(p)
    return nn.Recurrent(cell).double()


def _inputs(layer: nn.Recurrent, batch: int = 3) -> tuple[Tensor, tuple[Tensor, ...]]:
    x = torch.randn(batch, T, I, dtype=torch.float64, requires_grad=True)
    return x, tuple(torch.rand(1, batch, H, dtype=torch.float64, requires_grad=True) for _ in layer.state)


@pytest.mark.parametrize("name", LOOPS)
def test_outputs_last_states_and_gradients_equal_an_independent_loop(name: str) -> None:
    layer = _made(name)
    x, initial = _inputs(layer)
    leaves = [x, *initial, *layer.parameters()]
    found = []
    for run in (layer, None):
        if run is not None:
            y, last = run(x, initial=initial)
            ends = [s[0] for s in last]
        else:
            y, ends = LOOPS[name](layer.cells[0], x, [s[0] for s in initial])
        torch.manual_seed(1)
        loss = (y * torch.randn_like(y)).sum() + sum((s * torch.randn_like(s)).sum() for s in ends)
        grads = torch.autograd.grad(loss, leaves, allow_unused=True)
        found.append(
            [y, *ends, *(torch.zeros_like(v) if g is None else g for g, v in zip(grads, leaves, strict=True))]
        )
    for a, b in zip(*found, strict=True):
        torch.testing.assert_close(a, b, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("name", LOOPS)
def test_no_state_needs_a_loop(name: str) -> None:
    states = _made(name).explain(torch.randn(2, T, I, dtype=torch.float64)).choices[0].states
    assert states
    assert not any("loop" in text for text in states)
    assert any("scan" in text for text in states) or name == "IndRNN"


@pytest.mark.parametrize("name", LOOPS)
def test_rows_end_at_their_own_lengths_in_both_directions(name: str) -> None:
    layer = _made(name)
    x, _ = _inputs(layer)
    both = nn.Recurrent(layer.cells[0], bidirectional=True).double()  # type: ignore[arg-type]
    y, last = both(x, torch.tensor([T, 2, 5]))
    alone, ends = both(x[1:2, :2])
    torch.testing.assert_close(y[1:2, :2], alone)
    assert not y[1, 2:].any()
    for a, b in zip(last, ends, strict=True):
        torch.testing.assert_close(a[:, 1:2], b)


@pytest.mark.parametrize("name", LOOPS)
def test_pieces_and_single_steps_equal_the_whole(name: str) -> None:
    layer = _made(name).float().eval()
    x = torch.randn(2, T, I)
    with torch.no_grad():
        whole, last = layer(x)
        first, middle = layer(x[:, :3])
        second, end = layer(x[:, 3:], initial=middle)
        state, steps = layer.initial_state(2, x), []
        for now in x.unbind(1):
            y, state = layer.step(now, state)
            steps.append(y)
    exact = compiler.compiler() is not None  # without one, torch's functions round by the number of rows
    compare = torch.testing.assert_close
    tolerance = {"atol": 0.0, "rtol": 0.0} if exact else {"atol": 1e-5, "rtol": 1e-5}
    compare(torch.cat((first, second), 1), whole, **tolerance)
    compare(torch.stack(steps, 1), whole, **tolerance)
    for a, b, c in zip(last, end, state, strict=True):
        compare(a, b, **tolerance)
        compare(a, c, **tolerance)


@pytest.mark.parametrize(
    "name", [n if n in ("MinGRU", "QRNN", "LRU") else pytest.param(n, marks=pytest.mark.slow) for n in LOOPS]
)
def test_gradients_by_differences(name: str) -> None:
    layer = _made(name)
    x, initial = _inputs(layer, 2)

    def run(x: Tensor, *initial: Tensor) -> tuple[Tensor, ...]:
        y, last = layer(x[:, :3], torch.tensor([3, 2]), initial)
        return y, *last

    assert torch.autograd.gradcheck(run, (x, *initial))


@pytest.mark.skipif(compiler.compiler() is None, reason="a loop of torch operations would take a minute")
@pytest.mark.parametrize("name", ["MinGRU", "RGLRU", "LRU"])
def test_sixty_five_thousand_steps(name: str) -> None:
    layer = _made(name).float()
    x = torch.randn(1, 65_536, I, requires_grad=True)
    y, _ = layer(x)
    (dx,) = torch.autograd.grad(y[:, -1].sum(), x)
    assert y.isfinite().all()
    assert dx.isfinite().all()
    assert dx[0, -1].any()
    with torch.no_grad():  # the last steps again, from a state far away: nothing has drifted
        _, middle = layer(x[:, :-4096])
        again, _ = layer.double()(x[:, -4096:].double(), initial=tuple(s.double() for s in middle))
    torch.testing.assert_close(y.double()[:, -4096:], again, atol=1e-4, rtol=1e-4)


def test_wrong_options_are_errors() -> None:
    for make in (
        lambda: nn.QRNN(2, 2, pooling="f"),
        lambda: nn.HGRN(2, 2, lower=1.0),
        lambda: nn.LRU(2, 2, least=0.9, most=0.5),
        lambda: nn.S5(2, 2, shortest=1.0, longest=0.1),
        lambda: nn.S4D(2, 2, order=0),
    ):
        with pytest.raises(ValueError, match="got"):
            make()


@pytest.mark.parametrize("cell", ["mingru", "lru"])
def test_a_task_takes_them_by_name(cell: str) -> None:
    model = an.Tagger("bilstm", cell=cell, hidden=8, steps=2, layers=1)
    model.fit([(["a", "b"], ["X", "Y"]), (["b", "a", "b"], ["Y", "X", "Y"])])
    assert len(model.predict([["a", "b"]])[0]) == 2
