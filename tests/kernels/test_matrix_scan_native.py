"""The matrix scan in C: against a loop in float64, to the bit in pieces and in any batch, and what it leaves to torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from anaphora.ops.matrix_scan import contract, matrix_scan, outer, scan, signed_scan

needs_compiler = pytest.mark.skipif(scan.library.functions() is None, reason="no C compiler here")
Given = list[Tensor | None]


def drawn(
    batch: int, time: int, heads: int, d: int, e: int, *, by_channel: bool, delta: bool, seed: int = 0
) -> Given:
    """r, k, v, w, a, b and a state; decays of either sign and of exactly 0."""
    torch.manual_seed(seed)
    shape = (batch, time, heads)
    r, k = (torch.randn(*shape, d, dtype=torch.float64) for _ in range(2))
    v = torch.randn(*shape, e, dtype=torch.float64)
    w = 2 * torch.rand(*shape, *([d] if by_channel else []), dtype=torch.float64) - 1
    w[torch.rand_like(w) < 0.1] = 0.0
    a = F.normalize(torch.randn_like(k), dim=-1) if delta else None
    b = None if a is None else -0.7 * a + 0.1 * torch.randn_like(a)
    return [r, k, v, w, a, b, torch.randn(batch, heads, d, e, dtype=torch.float64)]


def loop(
    r: Tensor, k: Tensor, v: Tensor, w: Tensor, a: Tensor | None, b: Tensor | None, state: Tensor
) -> tuple[Tensor, Tensor]:
    ys = []
    for t in range(v.shape[1]):
        decayed = (w[:, t, :, None, None] if w.dim() == 3 else w[:, t, :, :, None]) * state
        new = decayed + outer(k[:, t], v[:, t])
        if a is not None and b is not None:
            new = new + outer(b[:, t], contract(a[:, t], state))
        ys.append(contract(r[:, t], new))
        state = new
    return torch.stack(ys, 1), state


def results(run: Callable[..., tuple[Tensor, Tensor]], given: Given) -> list[Tensor]:
    """Outputs, last state and all gradients."""
    leaves = [None if x is None else x.detach().requires_grad_() for x in given]
    y, last = run(*leaves)
    torch.manual_seed(1)
    weights = torch.randn(y.shape).to(y), torch.randn(last.shape).to(last)
    return [
        y.detach(),
        last.detach(),
        *torch.autograd.grad((y, last), [x for x in leaves if x is not None], weights),
    ]


@needs_compiler
@settings(deadline=None, max_examples=40)
@given(
    st.integers(1, 40),
    st.integers(1, 3),
    st.integers(1, 9),
    st.sampled_from([1, 3, 8, 20, 33, 70]),
    st.booleans(),
    st.booleans(),
    st.integers(0, 10**6),
)
def test_it_equals_the_loop(
    time: int, heads: int, d: int, e: int, by_channel: bool, delta: bool, seed: int
) -> None:
    given = drawn(2, time, heads, d, e, by_channel=by_channel, delta=delta, seed=seed)
    assert scan.native_serves(*given[:4], given[6], *given[4:6])  # type: ignore[arg-type]
    expected = results(loop, given)
    for ours, theirs in zip(results(signed_scan, given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-10)
    singles: Given = [None if x is None else x.float() for x in given]
    for ours, theirs in zip(results(signed_scan, singles), expected, strict=True):
        assert float((ours - theirs).norm()) <= 1e-5 * float(1 + theirs.norm())


@needs_compiler
@pytest.mark.parametrize("by_channel", [True, False])
def test_gradients_and_second_derivatives(by_channel: bool) -> None:
    given = [
        x.requires_grad_() for x in drawn(1, 4, 1, 2, 3, by_channel=by_channel, delta=True) if x is not None
    ]
    assert torch.autograd.gradcheck(signed_scan, given)
    assert torch.autograd.gradgradcheck(signed_scan, given)


@needs_compiler
@pytest.mark.parametrize("delta", [True, False])
def test_pieces_steps_and_rows_have_the_bits_of_the_whole(delta: bool) -> None:
    given = [None if x is None else x.float() for x in drawn(3, 41, 2, 5, 40, by_channel=True, delta=delta)]
    *steps, state = given
    whole, last = signed_scan(*given)  # type: ignore[arg-type]
    first, middle = signed_scan(*(None if x is None else x[:, :17] for x in steps), state)  # type: ignore[arg-type]
    rest, end = signed_scan(*(None if x is None else x[:, 17:] for x in steps), middle)  # type: ignore[arg-type]
    assert torch.equal(torch.cat((first, rest), 1), whole)
    assert torch.equal(end, last)
    for t in range(41):
        y, state = signed_scan(*(None if x is None else x[:, t : t + 1] for x in steps), state)  # type: ignore[arg-type]
        assert torch.equal(y[:, 0], whole[:, t])
    alone, _ = signed_scan(*(None if x is None else x[1:2] for x in given))  # type: ignore[arg-type]
    assert torch.equal(alone, whole[1:2])


@needs_compiler
def test_threads_change_no_bit() -> None:
    given = [x.float() for x in drawn(4, 64, 2, 16, 64, by_channel=True, delta=False) if x is not None]
    r, k, v, w, state = given

    def run(*x: Tensor) -> tuple[Tensor, Tensor]:
        return signed_scan(*x[:4], state=x[4])

    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one = results(run, [r, k, v, w, state])
        torch.set_num_threads(2)
        two = results(run, [r, k, v, w, state])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True))


def test_without_a_compiler_torch_computes_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    given = drawn(2, 20, 2, 3, 5, by_channel=True, delta=True)
    expected = results(loop, given)
    monkeypatch.setattr(scan.library, "functions", lambda *_: None)
    for ours, theirs in zip(results(signed_scan, given), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_what_it_does_not_take_is_left_to_torch() -> None:
    r, k, v, w, a, b, state = drawn(2, 5, 2, 3, 4, by_channel=False, delta=True)
    assert r is not None
    assert k is not None
    assert v is not None
    assert w is not None
    short = r[:, :, :1]  # one head for all: torch repeats it
    assert not scan.native_serves(short, k, v, w, state, a, b)
    log_w = w.abs().clamp(min=0.1).log()
    mapped = torch.func.vmap(lambda x: matrix_scan(x, k, v, log_w, a, b, state)[0])(torch.stack((r, -r)))
    torch.testing.assert_close(mapped[1], -matrix_scan(r, k, v, log_w, a, b, state)[0])
    half = matrix_scan(r.bfloat16(), k.bfloat16(), v.bfloat16(), log_w)
    assert (half[0].dtype, half[1].dtype) == (torch.bfloat16, torch.float32)
