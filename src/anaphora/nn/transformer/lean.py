"""A norm-first stack whose backward pass goes over memory as seldom as it can: for torch.compile on a GPU, in half precision.

What is added to the residual stream, its bias and the next norm are one step forward and one backward, whose kernel also gives the
gradients of the bias and of the norm. The stream itself and its gradient stay in float32.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.kernels.gpu.columns import activation_gradients, activation_values, merged_gradients
from anaphora.kernels.gpu.normed import fits, norm_gradients
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.attention.scaled_dot import scaled_dot
from anaphora.nn.transformer.compiled import activation_of, eps_of, norm_kind
from anaphora.nn.transformer.encoder import TransformerEncoder
from anaphora.nn.transformer.feedforward import FeedForward
from anaphora.nn.transformer.layers import EncoderLayer, Sublayer

Pending = tuple[Tensor | None, Tensor | None]
"""What is still to be added to the stream: δ ``(n, width)`` and its bias ``(width,)``."""


def is_lean(stack: nn.Module) -> bool:
    """Whether `lean_stack` can take the place of ``stack``, a `TransformerEncoder`: of plain norm-first layers without hooks."""
    if type(stack) is not TransformerEncoder or not fits(stack.width) or norm_kind(stack.norm) is None:
        return False
    watched = any(m._forward_hooks or m._forward_pre_hooks for m in stack.modules())
    return not watched and all(_plain(layer) for layer in stack.layers)


def _plain(layer: nn.Module) -> bool:
    if type(layer) is not EncoderLayer or not layer.norm_first or layer.parallel:
        return False
    around = (layer.around_attention, layer.around_feedforward)
    return all(type(each) is Sublayer and norm_kind(each.norm) is not None for each in around)


def lean_stack(stack: TransformerEncoder, x: Tensor) -> Tensor:
    """What ``stack(x, causal=True)`` gives, x ``(batch, time, width)``, in the type that autocast computes in."""
    batch, time, width = x.shape
    dtype = torch.get_autocast_dtype(x.device.type)
    x = x.float().reshape(-1, width)
    pending: Pending = (None, None)
    for layer in cast("list[EncoderLayer]", stack.layers):
        before, between = layer.around_attention, layer.around_feedforward
        x, y = _add_norm(x, pending, before.norm, dtype)
        pending = _dropped(_attended(layer.attention, y, batch), before)
        x, y = _add_norm(x, pending, between.norm, dtype)
        pending = _dropped(_fed(layer.feedforward, y), between)
    _, y = _add_norm(x, pending, stack.norm, dtype)
    return y.view(batch, time, width)


def _dropped(pending: Pending, around: Sublayer) -> Pending:
    delta, bias = pending
    rate = around.dropout.p
    if not rate or not around.training or delta is None:
        return pending
    return F.dropout(delta if bias is None else delta + bias.to(delta.dtype), rate), None


def _attended(own: MultiHead, y: Tensor, batch: int) -> Pending:
    """Self-attention of rows ``(batch · time, width)``."""
    simple = (
        type(own) is MultiHead
        and own.positions is None
        and own.window is None
        and own.kv_heads == own.heads
        and own.each % 8 == 0
        and own.inward.bias is not None
        and type(own.inward) is nn.Linear
        and type(own.outward) is nn.Linear
    )
    if not simple:
        out, _ = own(y.view(batch, -1, own.width), causal=True)
        return out.reshape(len(y), -1), None
    q, k, v = _Heads.apply(y, own.inward.weight, own.inward.bias, batch, own.heads)  # type: ignore[no-untyped-call]
    rate = own.dropout if own.training else 0.0
    context, _ = scaled_dot(q, k, v, causal=True, dropout=rate, scale=own.scale)
    rows = context.transpose(1, 2).reshape(len(y), -1)
    return _product(rows, own.outward.weight), own.outward.bias


def _fed(part: nn.Module, y: Tensor) -> Pending:
    kind = activation_of(part)
    if (
        type(part) is not FeedForward
        or kind is None
        or part.first.bias is None
        or part.first.out_features % 8
    ):
        return part(y), None
    u = _product(y, part.first.weight)
    h = _Activated.apply(u, part.first.bias, kind)  # type: ignore[no-untyped-call]
    return _product(part.dropout(h), part.second.weight), part.second.bias


def _product(x: Tensor, weight: Tensor) -> Tensor:
    found: Tensor = _Product.apply(x, weight)  # type: ignore[no-untyped-call]
    return found


def _wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """aᵀ b in ``dtype``, which is at least as wide as theirs: a GPU does not round it in between."""
    if a.is_cuda and dtype == torch.float32:
        return torch.mm(a.t(), b, out_dtype=dtype)
    return (a.t() @ b).to(dtype)


class _Product(torch.autograd.Function):
    """W x of rows ``(n, width)`` in the type of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor) -> Tensor:
        narrow = weight.to(x.dtype)
        ctx.save_for_backward(x, narrow)
        ctx.dtype = weight.dtype
        return F.linear(x, narrow)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight, _wide_product(grad, x, ctx.dtype)


def _add_norm(x: Tensor, pending: Pending, norm: nn.Module, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    shift = getattr(norm, "bias", None)
    given = (x, *pending, norm.weight, shift, eps_of(norm), dtype)
    found: tuple[Tensor, Tensor] = _AddNorm.apply(*given)  # type: ignore[no-untyped-call]
    return found


class _AddNorm(torch.autograd.Function):
    """x' = x + δ + b and y = norm(x'), rows ``(n, width)``; RMSNorm where there is no shift."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        delta: Tensor | None,
        bias: Tensor | None,
        gain: Tensor,
        shift: Tensor | None,
        eps: float,
        dtype: torch.dtype,
    ) -> tuple[Tensor, Tensor]:
        ctx.given = delta is not None, bias is not None, shift is not None
        if delta is None:
            x = x.clone()  # an input cannot be an output
        else:
            x = x + delta if bias is None else x + (delta + bias)
        if shift is not None:
            variance, mean = torch.var_mean(x, 1, correction=0)
            inverse = torch.rsqrt(variance + eps)
            y = (x - mean[:, None]) * inverse[:, None] * gain + shift
        else:
            inverse = torch.rsqrt(x.square().mean(1) + eps)
            mean = torch.zeros_like(inverse)
            y = x * inverse[:, None] * gain
        ctx.save_for_backward(x, mean, inverse, gain)
        return x, y.to(dtype)

    @staticmethod
    def backward(ctx: Any, above: Tensor, dy: Tensor) -> Any:
        x, mean, inverse, gain = ctx.saved_tensors
        delta, bias, centred = ctx.given
        out, narrowed, sums = norm_gradients(dy, x, mean, inverse, gain, above, centred)
        of_gain, of_shift, of_bias = sums.sum(0)
        return (
            out,
            narrowed if delta else None,
            of_bias if bias else None,
            of_gain,
            of_shift if centred else None,
            None,
            None,
        )


class _Activated(torch.autograd.Function):
    """f(x + b), rows ``(n, width)``."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, bias: Tensor, kind: str) -> Tensor:
        ctx.save_for_backward(x, bias)
        ctx.kind = kind
        found: Tensor = activation_values(x, bias, kind)
        return found

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, bias = ctx.saved_tensors
        found, sums = activation_gradients(grad, x, bias, ctx.kind)
        return found, sums.sum(0), None


class _Heads(torch.autograd.Function):
    """q, k and v ``(batch, heads, time, d)`` of rows ``(batch · time, width)`` by one product."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, batch: int, heads: int
    ) -> tuple[Tensor, ...]:
        narrow = weight.to(x.dtype)
        ctx.save_for_backward(x, narrow)
        ctx.dtype = weight.dtype
        made = F.linear(x, narrow, bias.to(x.dtype))
        return made.view(batch, len(x) // batch, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    @staticmethod
    def backward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad, sums = merged_gradients(q, k, v)
        return grad @ weight, _wide_product(grad, x, ctx.dtype), sums.sum(0), None, None
