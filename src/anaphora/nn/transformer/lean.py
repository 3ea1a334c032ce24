"""A norm-first stack whose backward pass goes over memory as seldom as it can: for torch.compile on a GPU, in half precision.

What is added to the residual stream, its bias and the next norm are one step forward and one backward, whose kernel also gives the
gradients of the bias and of the norm. Between the steps the stream and its gradient are kept in half precision, as is usual for models
that are trained in bfloat16; within a step they are float32.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.native.following import observed
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.attention.scaled_dot import scaled_dot
from anaphora.nn.transformer.compiled import activation_of, eps_of, norm_kind
from anaphora.nn.transformer.layers import EncoderLayer, FeedForward, Sublayer
from anaphora.nn.transformer.stack import TransformerEncoder
from anaphora.ops.gpu.columns import activation_gradients, activation_values, merged_gradients, narrowed
from anaphora.ops.gpu.normed import fits, norm_gradients

Pending = tuple[Tensor | None, Tensor | None]
"""What is still to be added to the stream: δ ``(n, width)`` and its bias ``(width,)``."""


def is_lean(stack: nn.Module) -> bool:
    """Return True if `lean_stack` can take the place of ``stack``, a `TransformerEncoder`: of plain norm-first layers that no one sees."""
    if type(stack) is not TransformerEncoder or not fits(stack.width) or norm_kind(stack.norm) is None:
        return False
    return observed(stack) is None and all(_plain(layer) for layer in stack.layers)


def _plain(layer: nn.Module) -> bool:
    if type(layer) is not EncoderLayer or not layer.norm_first or layer.parallel:
        return False
    around = (layer.around_attention, layer.around_feedforward)
    return all(type(each) is Sublayer and norm_kind(each.norm) is not None for each in around)


class _Narrow(NamedTuple):
    """The weights of a layer's products in half precision; None where the layer's modules are called as they are."""

    inward: Tensor | None
    bias: Tensor | None
    outward: Tensor | None
    first: Tensor | None
    second: Tensor | None


def lean_stack(stack: TransformerEncoder, x: Tensor) -> Tensor:
    """What ``stack(x, causal=True)`` gives, x ``(batch, time, width)``, in the type that autocast computes in."""
    batch, time, width = x.shape
    dtype = torch.get_autocast_dtype(x.device.type)
    layers = [cast(EncoderLayer, layer) for layer in stack.layers]
    x = x.to(dtype).reshape(-1, width)
    pending: Pending = (None, None)
    for layer, narrow in zip(layers, _narrow(layers, dtype), strict=True):
        before, between = layer.around_attention, layer.around_feedforward
        x, y = _add_norm(x, pending, before.norm)
        pending = _dropped(_attended(layer.attention, narrow, y, batch), before)
        x, y = _add_norm(x, pending, between.norm)
        pending = _dropped(_fed(layer.feedforward, narrow, y), between)
    _, y = _add_norm(x, pending, stack.norm)
    return y.view(batch, time, width)


def _narrow(layers: Sequence[EncoderLayer], dtype: torch.dtype) -> list[_Narrow]:
    """All weights are cast together: one by one they would take a launch each."""
    weights: list[list[Tensor | None]] = []
    for layer in layers:
        own, part = layer.attention, layer.feedforward
        inside: list[Tensor | None] = [None] * 5
        if plain_heads(own):
            inside[:3] = [own.inward.weight, own.inward.bias, own.outward.weight]
        if isinstance(part, FeedForward) and fed_by_kernels(part):
            inside[3:] = [part.first.weight, part.second.weight]
        weights.append(inside)
    made = iter(narrowed([one.detach() for each in weights for one in each if one is not None], dtype))
    return [_Narrow(*(None if one is None else next(made) for one in each)) for each in weights]


def plain_heads(own: MultiHead) -> bool:
    """Whether self-attention is one product, torch's kernel and another product."""
    return (
        type(own) is MultiHead
        and own.positions is None
        and own.window is None
        and own.kv_heads == own.heads
        and own.each % 8 == 0
        and type(own.inward) is nn.Linear
        and own.inward.bias is not None
        and type(own.outward) is nn.Linear
    )


def fed_by_kernels(part: nn.Module) -> bool:
    """Whether there are kernels for the activation of a `FeedForward`."""
    if type(part) is not FeedForward or activation_of(part) is None:
        return False
    return part.first.bias is not None and part.first.out_features % 8 == 0


def _dropped(pending: Pending, around: Sublayer) -> Pending:
    delta, bias = pending
    rate = around.dropout.p
    if not rate or not around.training or delta is None:
        return pending
    return F.dropout(delta if bias is None else delta + bias.to(delta.dtype), rate), None


def _attended(own: MultiHead, narrow: _Narrow, y: Tensor, batch: int) -> Pending:
    """Self-attention of rows ``(batch · time, width)``."""
    if narrow.inward is None:
        out, _ = own(y.view(batch, -1, own.width), causal=True)
        return out.reshape(len(y), -1), None
    given = (y, own.inward.weight, own.inward.bias, narrow.inward, narrow.bias, batch, own.heads)
    q, k, v = _Heads.apply(*given)  # type: ignore[no-untyped-call]
    rate = own.dropout if own.training else 0.0
    context, _ = scaled_dot(q, k, v, causal=True, dropout=rate, scale=own.scale)
    rows = context.transpose(1, 2).reshape(len(y), -1)
    return _Product.apply(rows, own.outward.weight, narrow.outward), own.outward.bias  # type: ignore[no-untyped-call]


def _fed(part: nn.Module, narrow: _Narrow, y: Tensor) -> Pending:
    if narrow.first is None or not isinstance(part, FeedForward):
        return part(y), None
    u = _Product.apply(y, part.first.weight, narrow.first)  # type: ignore[no-untyped-call]
    h = _Activated.apply(u, part.first.bias, activation_of(part))  # type: ignore[no-untyped-call]
    return _Product.apply(part.dropout(h), part.second.weight, narrow.second), part.second.bias  # type: ignore[no-untyped-call]


def _wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """aᵀ b in ``dtype``, which is at least as wide as theirs: a GPU does not round it in between."""
    if a.is_cuda and dtype == torch.float32:
        return torch.mm(a.t(), b, out_dtype=dtype)
    return (a.t() @ b).to(dtype)


class _Product(torch.autograd.Function):
    """W x of rows ``(n, width)``; ``narrow`` is W in the type of x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, narrow: Tensor) -> Tensor:
        ctx.save_for_backward(x, narrow)
        ctx.dtype = weight.dtype
        return F.linear(x, narrow)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return grad @ weight, _wide_product(grad, x, ctx.dtype), None


def _add_norm(x: Tensor, pending: Pending, norm: nn.Module) -> tuple[Tensor, Tensor]:
    given = (x, *pending, norm.weight, getattr(norm, "bias", None), eps_of(norm))
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
    ) -> tuple[Tensor, Tensor]:
        ctx.given = delta is not None, bias is not None, shift is not None
        wide = x.float()
        if delta is not None:
            wide = wide + delta
        if bias is not None:
            wide = wide + bias
        kept = wide.to(x.dtype) if delta is not None else x.clone()  # an input cannot be an output
        wide = kept.float()
        if shift is not None:
            variance, mean = torch.var_mean(wide, 1, correction=0)
            inverse = torch.rsqrt(variance + eps)
            y = (wide - mean[:, None]) * inverse[:, None] * gain + shift
        else:
            inverse = torch.rsqrt(wide.square().mean(1) + eps)
            mean = torch.zeros_like(inverse)
            y = wide * inverse[:, None] * gain
        ctx.save_for_backward(kept, mean, inverse, gain)
        return kept, y.to(x.dtype)

    @staticmethod
    def backward(ctx: Any, above: Tensor, dy: Tensor) -> Any:
        x, mean, inverse, gain = ctx.saved_tensors
        delta, bias, centred = ctx.given
        found, (of_gain, of_shift, of_bias) = norm_gradients(dy, x, mean, inverse, gain, above, centred)
        of_delta = found if delta else None
        return found, of_delta, of_bias if bias else None, of_gain, of_shift if centred else None, None


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
        return (*activation_gradients(grad, x, bias, ctx.kind), None)


class _Heads(torch.autograd.Function):
    """q, k and v ``(batch, heads, time, d)`` of rows ``(batch · time, width)`` by one product; ``narrow`` and ``added`` are weight and
    bias in the type of x."""

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        bias: Tensor,
        narrow: Tensor,
        added: Tensor,
        batch: int,
        heads: int,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(x, narrow)
        ctx.dtype = weight.dtype
        made = F.linear(x, narrow, added)
        return made.view(batch, len(x) // batch, 3, heads, -1).permute(2, 0, 3, 1, 4).unbind(0)

    @staticmethod
    def backward(ctx: Any, q: Tensor, k: Tensor, v: Tensor) -> Any:
        x, weight = ctx.saved_tensors
        grad, of_bias = merged_gradients(q, k, v)
        return grad @ weight, _wide_product(grad, x, ctx.dtype), of_bias, *(None,) * 4
