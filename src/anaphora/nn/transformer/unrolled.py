"""A norm-first stack whose forward and backward passes are written out for a GPU, in half precision, without torch.compile.

As in `lean`, what is added to the residual stream, its bias and the next norm are one kernel forward and one backward. Here the order of all
kernels is known beforehand too: the gradients of weights, on which nothing waits, are computed `Beside` the chain that carries the gradient
down the layers, and so are the sums for biases and norms and the rounding of weights. Captured as CUDA graphs, a step has no pauses then
which another kernel does not fill. Where products are so large that each occupies the GPU, all is done in one queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.transformer.compiled import activation_of, eps_of
from anaphora.nn.transformer.layers import EncoderLayer, FeedForward
from anaphora.nn.transformer.lean import fed_by_kernels, is_lean, plain_heads
from anaphora.nn.transformer.stack import TransformerEncoder
from anaphora.ops.gpu import columns, normed
from anaphora.ops.gpu.added_norm import Normed, added_norm
from anaphora.ops.gpu.beside import Beside
from anaphora.ops.gpu.narrowing import narrow_into
from anaphora.ops.gpu.tables import added_tables


def is_unrolled(stack: nn.Module) -> bool:
    """Whether `StackPasses` can take the place of ``stack``: it `is_lean`, of equal layers, with plain heads and biases, without dropout."""
    if not is_lean(stack):
        return False
    return all(_fits(cast(EncoderLayer, layer)) for layer in cast(TransformerEncoder, stack).layers)


def _fits(layer: EncoderLayer) -> bool:
    own, part = layer.attention, layer.feedforward
    if not isinstance(part, FeedForward) or not plain_heads(own) or not fed_by_kernels(part):
        return False
    rates = (
        layer.around_attention.dropout.p,
        layer.around_feedforward.dropout.p,
        part.dropout.p,
        own.dropout,
    )
    return not any(rates) and own.outward.bias is not None and part.second.bias is not None


class Weights(NamedTuple):
    """Those of a layer, in the order in which they are used; a shift is None for RMSNorm."""

    gain1: Tensor
    shift1: Tensor | None
    inward: Tensor
    inward_bias: Tensor
    outward: Tensor
    outward_bias: Tensor
    gain2: Tensor
    shift2: Tensor | None
    first: Tensor
    first_bias: Tensor
    second: Tensor
    second_bias: Tensor


class Narrow(NamedTuple):
    """The weights of a layer's products, rounded."""

    inward: Tensor
    inward_bias: Tensor
    outward: Tensor
    first: Tensor
    second: Tensor


class Kept(NamedTuple):
    """What the backward pass needs of a layer."""

    before: Normed
    heads: tuple[Tensor, ...]  # q, k, v ``(batch, heads, time, d)``
    context: Tensor  # of the same shape
    rows: Tensor  # the context as rows
    between: Normed
    inner: Tensor
    active: Tensor


class StackPasses:
    """Both passes of ``stack``, rows ``(batch · time, width)`` at a time. One object does one step, ``beside`` is its second queue."""

    def __init__(self, stack: TransformerEncoder, batch: int, beside: Beside):
        layers = [cast(EncoderLayer, layer) for layer in stack.layers]
        self._batch, self._beside = batch, beside
        self._own = [layer.attention for layer in layers]
        self._kinds = [activation_of(layer.feedforward) for layer in layers]
        self._eps = [
            (eps_of(layer.around_attention.norm), eps_of(layer.around_feedforward.norm)) for layer in layers
        ]
        self._last_eps = eps_of(stack.norm)
        self._kept: list[Kept] = []
        self._narrow: list[Narrow] = []
        self._last: Normed | None = None

    @staticmethod
    def weights(stack: TransformerEncoder) -> list[Tensor | None]:
        """The weights that `forward` takes and `backward` gives gradients of."""
        found: list[Tensor | None] = []
        every: Any = stack.layers
        for layer in every:
            own, part = layer.attention, layer.feedforward
            before, between = layer.around_attention.norm, layer.around_feedforward.norm
            found += [before.weight, getattr(before, "bias", None), own.inward.weight, own.inward.bias]
            found += [own.outward.weight, own.outward.bias, between.weight, getattr(between, "bias", None)]
            found += [part.first.weight, part.first.bias, part.second.weight, part.second.bias]
        last: Any = stack.norm
        return [*found, last.weight, getattr(last, "bias", None)]

    def forward(self, x: Tensor, given: Sequence[Tensor | None]) -> Tensor:
        """What the stack makes of x ``(n, width)`` of 16 bits, with `weights` ``given``: as much, of the same type."""
        layers, (gain, shift) = _layers(given), given[-2:]
        ready = self._round(layers, x.dtype)
        delta = bias = None
        for number, layer in enumerate(layers):
            eps = self._eps[number]
            before = added_norm(x, delta, bias, layer.gain1, layer.shift1, eps[0])
            ready[number]()
            narrow = self._narrow[number]
            made = F.linear(before.y, narrow.inward, narrow.inward_bias)
            heads, context = self._attend(self._own[number], made)
            rows = context.detach().transpose(1, 2).reshape(x.shape)
            delta = F.linear(rows, narrow.outward)
            between = added_norm(before.kept, delta, layer.outward_bias, layer.gain2, layer.shift2, eps[1])
            inner = F.linear(between.y, narrow.first)
            active = self._activated(inner, layer.first_bias, self._kinds[number])
            delta, bias, x = F.linear(active, narrow.second), layer.second_bias, between.kept
            self._kept.append(Kept(before, heads, context, rows, between, inner, active))
        assert gain is not None
        self._last = added_norm(x, delta, bias, gain, shift, self._last_eps)
        return self._last.y

    def backward(self, dy: Tensor, given: Sequence[Tensor | None]) -> tuple[Tensor, list[Tensor | None]]:
        """Of the gradient dy ``(n, width)``: that of x, and those of the weights, which may be read once the second queue is joined."""
        layers, last, beside = _layers(given), self._last, self._beside
        if last is None:
            raise RuntimeError("a step that is written out goes backward once")
        self._last = None
        of_gain, of_shift = given[-2:]
        assert of_gain is not None
        d, sums = self._norm_gradients(dy, last, of_gain, None, of_shift is not None)
        table = beside.run(partial(_added, sums))
        of_last: list[Tensor | None] = [table[0], table[1] if of_shift is not None else None]
        found: list[Tensor | None] = []
        for number in reversed(range(len(layers))):
            of_second_bias = table[2]
            d, table, of_layer = self._layer_backward(number, layers[number], d)
            found = [*of_layer, of_second_bias, *found]
            beside.stage()
        return d, [*found, *of_last]

    def _layer_backward(
        self, number: int, layer: Weights, d: Tensor
    ) -> tuple[Tensor, Tensor, list[Tensor | None]]:
        """Of the gradient of what leaves the layer: that of what enters it, the sums of its first norm, and the gradients of its weights
        but for the last bias."""
        kept, narrow, run = self._kept.pop(), self._narrow.pop(), self._beside.run
        centred1, centred2 = layer.shift1 is not None, layer.shift2 is not None
        of_second = run(lambda: wide_product(d, kept.active, layer.second.dtype))
        du, sums1 = self._active_gradients(d @ narrow.second, kept.inner, layer.first_bias, number)
        of_first = run(lambda: wide_product(du, kept.between.y, layer.first.dtype))
        dx, sums2 = self._norm_gradients(du @ narrow.first, kept.between, layer.gain2, d, centred2)
        of_outward = run(lambda: wide_product(dx, kept.rows, layer.outward.dtype))
        away = dx @ narrow.outward
        away = away.view(self._batch, -1, *kept.context.shape[1::2]).transpose(1, 2)
        dqkv, sums3 = self._merged(*torch.autograd.grad(kept.context, kept.heads, away))
        of_inward = run(lambda: wide_product(dqkv, kept.before.y, layer.inward.dtype))
        out, sums4 = self._norm_gradients(dqkv @ narrow.inward, kept.before, layer.gain1, dx, centred1)
        of_first_bias, of_norm2, of_inward_bias, of_norm1 = run(
            lambda: _all_added(sums1, sums2, sums3, sums4)
        )
        found: list[Tensor | None] = [
            of_norm1[0],
            of_norm1[1] if centred1 else None,
            of_inward,
            of_inward_bias,
        ]
        found += [of_outward, of_norm2[2], of_norm2[0], of_norm2[1] if centred2 else None]
        return out, of_norm1, [*found, of_first, of_first_bias, of_second]

    def _round(self, layers: Sequence[Weights], dtype: torch.dtype) -> list[Any]:
        """Begin to round the weights of products; what makes the chain wait for those of each layer."""
        ready = []
        for layer in layers:
            wide = [layer.inward, layer.outward, layer.first, layer.second]
            bias, *made = (torch.empty_like(one, dtype=dtype) for one in (layer.inward_bias, *wide))
            self._beside.run(partial(narrow_into, [bias, *made], [layer.inward_bias, *wide]))
            self._narrow.append(Narrow(made[0], bias, *made[1:]))
            ready.append(self._beside.so_far())
        return ready

    def _attend(self, own: MultiHead, made: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
        """Of q, k and v side by side ``(n, 3 · width)``: those, and the context, each ``(batch, heads, time, d)``."""
        parts = made.view(self._batch, -1, 3, own.heads, own.each).permute(2, 0, 3, 1, 4).unbind(0)
        with torch.enable_grad():  # torch's kernel, with its backward pass
            q, k, v = (part.detach().requires_grad_() for part in parts)
            context = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=own.scale)
        return (q, k, v), context

    def _activated(self, x: Tensor, bias: Tensor, kind: Any) -> Tensor:
        return (columns.values_by_kernel if x.is_cuda else columns.values_by_torch)(x, bias, kind)

    # Gradients, and tables of sums that `_added` adds up.

    def _active_gradients(self, grad: Tensor, x: Tensor, bias: Tensor, number: int) -> tuple[Tensor, Tensor]:
        kind: Any = self._kinds[number]
        if x.is_cuda:
            return columns.gradients_and_table(grad, x, bias, kind)
        out, sums = columns.gradients_by_torch(grad, x, bias, kind)
        return out, sums[None]

    def _norm_gradients(
        self, dy: Tensor, kept: Normed, gain: Tensor, above: Tensor | None, centred: bool
    ) -> tuple[Tensor, Tensor]:
        given = (dy, kept.kept, kept.mean, kept.inverse, gain)
        if dy.is_cuda:
            return normed.with_table(*given, above, centred)
        out, sums = normed.by_torch(*given, torch.zeros_like(dy) if above is None else above, centred)
        return out, sums[None]

    def _merged(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
        if q.is_cuda:
            return columns.merged_and_table(q, k, v)
        out, sums = columns.merged_by_torch(q, k, v)
        return out, sums[None]


def wide_product(a: Tensor, b: Tensor, dtype: torch.dtype) -> Tensor:
    """Return aᵀ b in ``dtype``, which is at least as wide as theirs: a GPU does not round it in between."""
    if a.is_cuda and dtype == torch.float32:
        return torch.mm(a.t(), b, out_dtype=dtype)
    return (a.t() @ b).to(dtype)


def _layers(given: Sequence[Tensor | None]) -> list[Weights]:
    each = len(Weights._fields)
    return [Weights(*given[at : at + each]) for at in range(0, len(given) - 2, each)]  # type: ignore[arg-type]


def _added(table: Tensor) -> Tensor:
    return columns.added(table) if table.is_cuda else table.sum(0)


def _all_added(*tables: Tensor) -> list[Tensor]:
    return added_tables(tables) if tables[0].is_cuda else [table.sum(0) for table in tables]
