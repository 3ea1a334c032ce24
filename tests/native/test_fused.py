"""`fused`: one operation by kernels, whoever follows it sees the reference, and its gradient is differentiable again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad

from anaphora.native.fused import Backward, Fused, fused


class Products:
    """y = s x·z and the sum of both, counted: which of the three ways was taken."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.op: Fused = fused(self.forward, self.backward, self.reference)

    def forward(self, keep: bool, x: Tensor, z: Tensor | None, *, scale: float) -> tuple[Any, Sequence[Any]]:
        self.calls.append(f"forward {keep}")
        assert not keep or not torch.is_grad_enabled()
        z = torch.ones_like(x) if z is None else z
        return (scale * x * z, x + z, x > 0), (z, scale)

    def backward(self, back: Backward, *, scale: float) -> tuple[Tensor | None, Tensor | None]:
        kept, tensors, grads, needs = back
        self.calls.append(f"backward {[grad is not None for grad in grads]} {list(needs)}")
        (z, kept_scale), x = kept, tensors[0]
        assert kept_scale == scale
        dy, dsum = (torch.zeros_like(x) if grad is None else grad for grad in grads[:2])
        return scale * z * dy + dsum, scale * x * dy + dsum

    def reference(self, x: Tensor, z: Tensor | None, *, scale: float) -> tuple[Tensor, Tensor, Tensor]:
        self.calls.append("reference")
        z = torch.ones_like(x) if z is None else z
        return scale * x * z, x + z, x > 0


def drawn(count: int = 2) -> list[Tensor]:
    torch.manual_seed(1)
    return [torch.randn(3, requires_grad=True) for _ in range(count)]


def test_without_gradient_nothing_is_kept() -> None:
    one = Products()
    with torch.no_grad():
        y, _, positive = one.op(*drawn(), scale=2.0)
    assert one.calls == ["forward False"]
    assert not y.requires_grad
    assert positive.dtype == torch.bool


def test_only_what_has_a_gradient_and_is_wanted_arrives() -> None:
    one, (x, z) = Products(), drawn()
    y, total, positive = one.op(x, z.detach(), scale=2.0)
    assert not positive.requires_grad
    (gradient,) = torch.autograd.grad(y.sum(), x, retain_graph=True)
    torch.testing.assert_close(gradient, 2 * z)
    (gradient,) = torch.autograd.grad(total.sum(), x)
    assert gradient.tolist() == [1, 1, 1]
    assert one.calls == [
        "forward True",
        "backward [True, False, False] [True, False]",
        "backward [False, True, False] [True, False]",
    ]


def test_a_tensor_may_be_left_out() -> None:
    one, (x, _) = Products(), drawn()
    one.op(x, None, scale=3.0)[0].sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3, 3]


def test_a_gradient_that_is_differentiated_again_is_that_of_the_reference() -> None:
    one, (x, z) = Products(), [t.double().detach().requires_grad_() for t in drawn()]
    assert torch.autograd.gradgradcheck(lambda *given: one.op(*given, scale=2.0)[:2], (x, z))
    assert "reference" in one.calls


@pytest.mark.parametrize("create_graph", [False, True])
def test_a_tensor_that_is_given_twice_counts_once_for_each_place(create_graph: bool) -> None:
    one, (x, _) = Products(), drawn()
    y = one.op(x * 1, x * 1, scale=1.0)[0]
    middle = x * 1
    twice = one.op(middle, middle, scale=1.0)[0]
    for each in (y, twice):
        (gradient,) = torch.autograd.grad(each.sum(), x, create_graph=create_graph)
        torch.testing.assert_close(gradient, 2 * x)


def test_forward_mode_and_transforms_see_the_reference() -> None:
    one, (x, z) = Products(), [t.detach() for t in drawn()]
    y, tangent = torch.func.jvp(lambda x: one.op(x, z, scale=2.0)[0], (x,), (torch.ones(3),))
    torch.testing.assert_close(tangent, 2 * z)
    rows = torch.func.vmap(lambda x: one.op(x, z, scale=2.0)[0])(torch.stack((x, 3 * x)))
    torch.testing.assert_close(rows, torch.stack((y, 3 * y)))
    assert set(one.calls) == {"reference"}


def test_a_backward_pass_that_is_followed_sees_the_reference() -> None:
    one, (x, z) = Products(), drawn()
    y = one.op(x, z, scale=2.0)[0]
    with forward_ad.dual_level():
        grad = forward_ad.make_dual(torch.ones(3), torch.full((3,), 5.0))
        (gradient,) = torch.autograd.grad(y, x, grad)
        tangent = forward_ad.unpack_dual(gradient).tangent
    torch.testing.assert_close(tangent, 10 * z)
    assert one.calls == ["forward True", "reference"]


def test_tensors_are_saved_as_autograd_saves_them() -> None:
    one, (x, z) = Products(), drawn()
    packed: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(t), lambda t: t):
        one.op(x, z, scale=2.0)
    assert len(packed) == 3  # x, z and what was kept, not its scale
    y = one.op(x, z, scale=2.0)[0]
    with torch.no_grad():
        z += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


def test_a_sign_that_pytorch_has_put_off_reaches_no_kernel() -> None:
    one, (x, z) = Products(), drawn()
    y = one.op(x, z, scale=1.0)[0]
    grad = torch.conj(torch.complex(torch.zeros(3), torch.ones(3))).imag
    assert grad.is_neg()
    one.op.backward = lambda back, **_: (  # type: ignore[method-assign, assignment]
        pytest.fail("a sign put off") if back.grads[0].is_neg() else (back.grads[0], back.grads[0])
    )
    (gradient,) = torch.autograd.grad(y, x, grad)
    assert gradient.tolist() == [-1, -1, -1]
