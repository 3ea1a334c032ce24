"""``Recurrent`` one step at a time."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from recurrent_bits import assert_same
from recurrent_peers import B, H, I, T
from torch import Tensor

from anaphora import nn
from anaphora.native import c as compiler


@pytest.mark.parametrize("zoneout", [0.0, (0.3, 0.1)])
@pytest.mark.parametrize("connections", ["plain", "residual", "highway", "dense"])
@pytest.mark.parametrize("grad", [False, True])
def test_steps_equal_the_sequence(grad: bool, connections: str, zoneout: float | tuple[float, ...]) -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H), layers=3, connections=connections, zoneout=zoneout).eval()
    x = torch.randn(B, T, I)
    with torch.set_grad_enabled(grad):
        whole, end = recurrent(x)
        state = recurrent.initial_state(B, x)
        outputs = []
        for t in range(T):
            y, state = recurrent.step(x[:, t], state)
            outputs.append(y)
    torch.testing.assert_close(torch.stack(outputs, 1), whole, atol=1e-6, rtol=1e-5)
    for a, b in zip(state, end, strict=True):
        torch.testing.assert_close(a, b, atol=1e-6, rtol=1e-5)


def test_compiled_steps_notice_changed_weights() -> None:
    recurrent = nn.Recurrent(nn.MGU(I, H)).eval()
    x, state = torch.randn(1, I), recurrent.initial_state(1, torch.zeros(1))

    def check() -> None:
        with torch.no_grad():
            torch.testing.assert_close(recurrent.step(x, state)[0], recurrent(x[:, None])[0][:, 0])

    check()
    with torch.no_grad():
        recurrent.cells[0].forget.weights[1].mul_(3)
        recurrent.cells[0].candidate.bias.add_(1)
    check()
    recurrent.cells[0].candidate.weights[0].data.mul_(-2)  # does not count as a new version
    check()
    recurrent.cells[0].forget.bias = torch.nn.Parameter(torch.randn(H))
    check()
    recurrent.load_state_dict(nn.Recurrent(nn.MGU(I, H)).state_dict())
    check()
    recurrent.double()
    x, state = x.double(), tuple(s.double() for s in state)
    check()


def test_steps_from_many_threads() -> None:
    """A compiled call lets other threads run: none may see another's rows or old weights."""
    recurrent = nn.Recurrent(nn.LSTM(I, 64), layers=2).eval()
    inputs = torch.randn(8, 40, 1 + 3, I)
    with torch.no_grad():
        expected = [recurrent(x.transpose(0, 1))[0][:, -1] for x in inputs]

    def stream(k: int) -> Tensor:
        with torch.no_grad():
            state = recurrent.initial_state(4, inputs)
            for x in inputs[k]:
                y, state = recurrent.step(x, state)
        return y

    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for y, e in zip(pool.map(stream, range(8)), expected, strict=True):
                assert_same(y, e)


@pytest.mark.skipif(
    compiler.compiler() is None, reason="torch's own products round to the type of the context"
)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_steps_under_autocast_on_the_cpu_equal_the_sequence(dtype: torch.dtype) -> None:
    recurrent = nn.Recurrent(nn.LSTM(I, H), layers=2).eval()
    x = torch.randn(B, T, I)
    with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
        y, _ = recurrent(x.to(dtype))
        state = recurrent.initial_state(B, x)
        steps = []
        for now in x.to(dtype).unbind(1):
            out, state = recurrent.step(now, state)
            steps.append(out)
    torch.testing.assert_close(torch.stack(steps, 1), y, atol=1e-5, rtol=1e-5)


def test_a_type_that_does_not_fit_the_weights_is_refused() -> None:
    recurrent = nn.Recurrent(nn.MGU(I, H)).eval()
    x = torch.randn(1, I)
    with torch.no_grad():
        recurrent.step(x, recurrent.initial_state(1, x))
        recurrent.double()
        with pytest.raises(RuntimeError, match="dtype"):
            recurrent.step(x, recurrent.initial_state(1, x))
        with pytest.raises(RuntimeError, match="dtype"):
            recurrent(x[:, None])


def test_a_step_refuses_what_does_not_fit() -> None:
    """Compiled code would read past the end of it; before and after a first step that fits."""
    recurrent = nn.Recurrent(nn.LSTM(I, H), layers=2).eval()
    x, state = torch.randn(3, I), recurrent.initial_state(3, torch.zeros(1))
    with torch.no_grad():
        for _ in range(2):
            for wrong in (torch.randn(3, I - 1), torch.randn(I), torch.randn(3, 1, I)):
                with pytest.raises(ValueError, match=r"x must be \(batch, 5\)"):
                    recurrent.step(wrong, state)
            for bad in (state[:1], (state[0], state[1][:1]), tuple(s[:, :2] for s in state)):
                with pytest.raises(ValueError, match=r"state needs one tensor \(2, 3, 6\)"):
                    recurrent.step(x, bad)
            _, after = recurrent.step(x, state)
    torch.testing.assert_close(after, recurrent(x[:, None], initial=state)[1])


def test_a_state_may_come_from_anywhere() -> None:
    """Also one that was changed in place, does not lie together, or is older than the last."""
    recurrent = nn.Recurrent(nn.GRU(I, H), layers=2).eval()
    x = torch.randn(B, I)
    with torch.no_grad():
        first = recurrent.step(x, recurrent.initial_state(B, x))[1]
        second = recurrent.step(x, first)[1]
        again = recurrent.step(x, first)[1]
        assert torch.equal(second[0], again[0])
        apart = (first[0].transpose(0, 2).contiguous().transpose(0, 2),)
        assert_same(recurrent.step(x, apart)[1][0], second[0])
        second[0].mul_(2)
        expected = recurrent(x[:, None], initial=second)[1]
        torch.testing.assert_close(recurrent.step(x, second)[1], expected)
        assert_same(recurrent.step(x[:1], (first[0][:, :1],))[1][0], again[0][:, :1])


@pytest.mark.parametrize("hidden", [1, 7, 16, 33, 130])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_one_row_is_the_same_alone_and_among_others(hidden: int, dtype: torch.dtype) -> None:
    """Alone its weights are read in another order; the sums are the same, to the last bit."""
    recurrent = nn.Recurrent(nn.LSTM(I, hidden, peephole=True)).to(dtype).eval()
    x = torch.randn(3, I, dtype=dtype)
    state = tuple(torch.randn(1, 3, hidden, dtype=dtype) for _ in range(2))
    with torch.no_grad():
        together = recurrent.step(x, state)[1]
        for row in range(3):
            alone = recurrent.step(x[row : row + 1], tuple(s[:, row : row + 1] for s in state))[1]
            for a, t in zip(alone, together, strict=True):
                assert_same(a, t[:, row : row + 1])
