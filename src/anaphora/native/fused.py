"""One operation in the place of several of PyTorch's: a kernel for its values, another for its gradient.

:func:`fused` is the autograd function around such kernels. Where someone follows PyTorch's operations, in the forward or in the
backward pass, they are those of ``reference``; so are those of a gradient
that is differentiated again. Forward-mode derivatives, transforms of ``torch.func``, traces and modes therefore work wherever the reference does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from anaphora.native.following import following, needs_gradient

Outputs = Any  # a tensor, or a tuple of tensors


class Backward(NamedTuple):
    """What a backward pass is given."""

    kept: Sequence[Any]
    """What the forward pass kept."""
    tensors: Sequence[Any]
    """The tensors of the forward pass."""
    grads: Sequence[Any]
    """The gradient of each output, None where there is none."""
    needs: Sequence[bool]
    """Which tensors need a gradient; those of the others are dropped."""


class Fused:
    """An operation on tensors (None: left out) with options, see :func:`fused`."""

    def __init__(
        self,
        forward: Callable[..., tuple[Outputs, Sequence[Any]]],
        backward: Callable[..., Sequence[Tensor | None]],
        reference: Callable[..., Outputs],
    ):
        self.forward, self.backward, self.reference = forward, backward, reference

    def __call__(self, *tensors: Tensor | None, **options: Any) -> Outputs:
        """Return the outputs by the kernel, or by the reference where someone follows the operations."""
        if following(*tensors) is not None:
            return self.reference(*tensors, **options)
        if needs_gradient(*tensors):
            return _apply(self, options, *tensors)
        return self.forward(False, *tensors, **options)[0]

    def gradients(
        self,
        tensors: Sequence[Tensor | None],
        grads: Sequence[Tensor | None],
        needs: Sequence[bool],
        options: dict[str, Any],
    ) -> list[Tensor | None]:
        """Return the gradients by PyTorch's operations, which can be differentiated again where gradients are recorded."""
        again = torch.is_grad_enabled()
        with torch.enable_grad():
            # Views: a tensor that is given twice has two gradients, not twice their sum.
            given = [
                t.view_as(t) if need and t is not None else t for t, need in zip(tensors, needs, strict=True)
            ]
            outputs = self.reference(*given, **options)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        pairs = [(y, g) for y, g in zip(outputs, grads, strict=True) if g is not None and y.requires_grad]
        wanted = [t for t, need in zip(given, needs, strict=True) if need and t is not None]
        if not pairs:
            return [None] * len(needs)
        found = iter(
            torch.autograd.grad(
                [y for y, _ in pairs], wanted, [g for _, g in pairs], create_graph=again, allow_unused=True
            )
        )
        return [next(found) if need else None for need in needs]


def fused(
    forward: Callable[..., tuple[Outputs, Sequence[Any]]],
    backward: Callable[..., Sequence[Tensor | None]],
    reference: Callable[..., Outputs],
) -> Fused:
    """Return an operation of two kernels, which is called with tensors, then with options by name.

    Args:
        forward: ``forward(keep, *tensors, **options)`` returns the outputs (a tensor or a tuple of them) and what the backward pass
            needs beside the tensors; without ``keep`` that is not looked at. Tensors in it are saved as autograd saves them, all else
            lives as long as the graph.
        backward: ``backward(back, **options)`` returns the gradient of each tensor; ``back`` is a `Backward`.
        reference: ``reference(*tensors, **options)`` returns the same outputs by PyTorch's operations.
    """
    return Fused(forward, backward, reference)


class _Function(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, op: Fused, options: dict[str, Any], *tensors: Tensor | None) -> Outputs:
        outputs, kept = op.forward(True, *tensors, **options)
        others = None  # what is kept and no tensor: hardly ever anything
        for one in kept:
            if not isinstance(one, Tensor):
                others = [None if isinstance(each, Tensor) else each for each in kept]
                kept = [each if isinstance(each, Tensor) else None for each in kept]
                break
        ctx.plan = op, options, len(tensors), others
        ctx.save_for_backward(*tensors, *kept)
        ctx.set_materialize_grads(False)
        if not isinstance(outputs, Tensor):
            ctx.mark_non_differentiable(*[y for y in outputs if not y.is_floating_point()])
        return outputs

    @staticmethod
    def backward(ctx: Any, *grads: Tensor | None) -> Any:
        op, options, count, others = ctx.plan
        needs, saved = ctx.needs_input_grad[2:], ctx.saved_tensors
        tensors, kept = saved[:count], saved[count:]
        for grad in grads:  # a loop: a generator costs a microsecond
            if grad is not None:
                break
        else:
            return (None,) * (2 + count)
        if torch.is_grad_enabled() or following(*grads) is not None:
            return (None, None, *op.gradients(tensors, grads, needs, options))
        if others is not None:
            kept = [other if one is None else one for one, other in zip(kept, others, strict=True)]
        grads = tuple([g.resolve_neg() if g is not None and g.is_neg() else g for g in grads])
        found = op.backward(Backward(kept, tensors, grads, needs), **options)
        return (None, None, *[g if need else None for g, need in zip(found, needs, strict=True)])


# What `torch.autograd.Function.apply` calls where no transform of torch.func is at work: asked once, by `following`.
_apply: Callable[..., Outputs] = super(torch.autograd.Function, _Function).apply  # type: ignore[misc]
