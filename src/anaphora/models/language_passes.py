"""The loss of a Transformer language model with both of its passes written out, for a GPU in half precision.

The entrance, the stack (`StackPasses`) and a large output layer are kernels of our own and products, and nothing has to be compiled. A table of
vectors that the output layer shares gets one gradient: that of the entrance is added to that of the output.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.language import Language, TransformerBody
from anaphora.native.following import observed
from anaphora.nn.embedding import ALIGNED, MANY, Embedding, Output
from anaphora.nn.positions import Learned, NoPositions, Sinusoidal
from anaphora.nn.transformer.unrolled import StackPasses, is_unrolled, wide_product
from anaphora.ops import embedding, softmax_loss
from anaphora.ops.gpu import logit_step
from anaphora.ops.gpu.beside import Beside
from anaphora.ops.gpu.columns import added

LARGE = 1 << 34
"""Multiplications from which on a product occupies a GPU by itself: some 50 µs on an H200."""


def is_written_out(model: nn.Module) -> bool:
    """Whether `states` can take the place of what ``model`` reads: a `Language` of a plain Transformer, without dropout or hooks."""
    if type(model) is not Language or type(model.body) is not TransformerBody:
        return False
    body = model.body
    plain = type(body.embedding) is Embedding and type(body.positions) in (Sinusoidal, Learned, NoPositions)
    more = (body.types, body.norm, body.project, body.mix, model.project)
    return (
        plain
        and observed(body) is None
        and all(part is None for part in more)
        and all(weight.dtype == torch.float32 for weight in model.parameters())
        and not (body.dropout.p or model.dropout)
        and is_unrolled(body.stack)
    )


def has_large_output(model: Language) -> bool:
    """Whether `written_out_loss` computes the loss as well."""
    output = model.output
    return type(output) is Output and output.symbols >= MANY and observed(output) is None


class _Step:
    """What the parts of one step share."""

    def __init__(self, model: Language, inputs: Tensor):
        self.beside = Beside(inputs.device, second=not fills_gpu(model, inputs))
        self.stack = StackPasses(model.body.stack, len(inputs), self.beside)
        self.scale = float(model.body.embedding.scale)
        self.dtype = torch.get_autocast_dtype(inputs.device.type)
        self.tied = model.output.matrix is model.body.embedding.weight if has_large_output(model) else False
        self.of_output: tuple[Tensor, Tensor] | None = (
            None  # the gradients of a large output layer's weight and bias
        )


def fills_gpu(model: Language, inputs: Tensor) -> bool:
    """Whether each product of a step of ``inputs`` ``(rows, time)`` occupies a GPU by itself: a second queue has nothing to
    fill then (26.7 ms a step of 12 × 768 with one, 26.5 without)."""
    layer: Any = model.body.stack.layers[0]
    weight: Tensor = layer.feedforward.first.weight
    return inputs.numel() * weight.numel() >= LARGE


def states(model: Language, inputs: Tensor) -> Tensor:
    """What enters the output layer ``(rows, time, width)`` of inputs ``(rows, time)``, in the type that autocast computes in."""
    return _states(model, inputs, _Step(model, inputs))


def written_out_loss(model: Language, inputs: Tensor, targets: Tensor, ignored: int) -> Tensor:
    """−Σ log p(target) over ``(rows, time)``; targets that are ``ignored`` add nothing. For models that `has_large_output`."""
    step, output = _Step(model, inputs), cast(Output, model.output)
    weight, bias = output.matrix.detach(), output.bias.detach()  # `_States` gives their gradients
    rounded = step.beside.run(lambda: [_aligned(one, step.dtype) for one in (weight, bias)])
    ready = step.beside.so_far()
    hidden = _states(model, inputs, step).flatten(0, 1)
    ready()
    given = (hidden, *rounded, targets.flatten(), len(weight), ignored, step)
    found: Tensor = _Loss.apply(*given)  # type: ignore[no-untyped-call]
    return found


def _aligned(weight: Tensor, dtype: torch.dtype) -> Tensor:
    """The weight in ``dtype``, with rows added until their number is `ALIGNED`: they are never read, but their gradient is 0."""
    rows = len(weight) + -len(weight) % ALIGNED
    made = weight.new_empty(rows, *weight.shape[1:], dtype=dtype)
    made[: len(weight)] = weight
    made[len(weight) :] = 0
    return made


def _states(model: Language, inputs: Tensor, step: _Step) -> Tensor:
    body: Any = model.body
    places = None
    if isinstance(body.positions, Sinusoidal):
        places = body.positions.table(inputs.shape[1], body.embedding.weight)
    elif isinstance(body.positions, Learned):
        body.positions(
            body.embedding.weight.new_empty(1, inputs.shape[1], 1)
        )  # an error where they are too many
        places = body.positions.weight[body.positions.first :]
    large = has_large_output(model)
    output = (None if step.tied else model.output.matrix, model.output.bias) if large else (None, None)
    weights = StackPasses.weights(body.stack)
    found: Tensor = _States.apply(step, inputs, body.embedding.weight, places, *output, *weights)  # type: ignore[no-untyped-call]
    return found.view(*inputs.shape, -1)


class _States(torch.autograd.Function):
    """All gradients leave here, after the second queue is joined: autograd may copy what it is given at once."""

    @staticmethod
    def forward(
        ctx: Any,
        step: _Step,
        inputs: Tensor,
        table: Tensor,
        places: Tensor | None,
        output: Tensor | None,
        bias: Tensor | None,
        *weights: Tensor | None,
    ) -> Tensor:
        order = step.beside.run(lambda: torch.sort(inputs.flatten(), stable=True))
        x = embedding.entered(inputs, table, places, step.scale, step.dtype)
        found = step.stack.forward(x, weights)
        ctx.step, ctx.weights, ctx.order = step, weights, tuple(order)
        ctx.shapes = inputs.shape, table, places
        return found

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, dy: Tensor) -> Any:
        step, (shape, table, places) = ctx.step, ctx.shapes
        dx, found = step.stack.backward(dy, ctx.weights)
        step.beside.join()
        of_output, of_bias = (None, None) if step.of_output is None else step.of_output
        made = of_output if step.tied else None
        if made is None:
            made = torch.zeros_like(table)
        embedding.add_to_table(made, dx, ctx.order[0], ctx.order[1], step.scale)
        of_places = None
        if places is not None and places.requires_grad:
            of_places = torch.zeros_like(places)
            of_places[: shape[1]] = dx.view(*shape, -1).sum(0, dtype=torch.float32)
        return None, None, made, of_places, None if step.tied else of_output, of_bias, *found


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        narrow: Tensor,
        start: Tensor,
        targets: Tensor,
        symbols: int,
        ignored: int,
        step: _Step,
    ) -> Tensor:
        logits = F.linear(x, narrow)  # the kernels add the bias, which takes a product longer
        ctx.step, ctx.numbers = step, (symbols, ignored)
        ctx.joined = ctx.needs_input_grad[0] and logit_step.fits(logits.shape[1], logits.device)
        if ctx.joined:
            losses, table = logit_step.losses_and_gradients(logits, start, targets, symbols, ignored)
            ctx.kept = [x, narrow, logits, table]
            return losses.sum()
        by = softmax_loss.losses_by_kernel if x.is_cuda else softmax_loss.losses_by_torch
        losses, log_sum = by(logits, start, targets, symbols, ignored)
        ctx.kept = [x, narrow, logits, start, targets, log_sum]
        return losses.sum()

    @staticmethod
    @torch.autograd.function.once_differentiable  # type: ignore[untyped-decorator]
    def backward(ctx: Any, grad: Tensor) -> Any:
        if not ctx.kept:
            raise RuntimeError("a step that is written out goes backward once")
        kept, ctx.kept = ctx.kept, []
        if ctx.joined:
            return _joined_backward(ctx.step, ctx.numbers[0], grad, *kept), *(None,) * 6
        x, narrow, logits, start, targets, log_sum = kept
        symbols, step = ctx.numbers[0], ctx.step
        given = (logits, start, targets, log_sum, grad.float(), *ctx.numbers)
        if x.is_cuda:
            made, table = softmax_loss.gradients_and_table(*given, in_place=True)
            of_bias = step.beside.run(lambda: added(table))[:symbols]
        else:
            made, sums = softmax_loss.gradients_by_torch(*given)
            of_bias = sums[:symbols]
        of_weight = step.beside.run(lambda: wide_product(made[:, :symbols], x, torch.float32))
        step.of_output = of_weight, of_bias
        dx = made @ narrow
        step.beside.stage()
        return dx, *(None,) * 6


def _joined_backward(
    step: _Step, symbols: int, grad: Tensor, x: Tensor, narrow: Tensor, made: Tensor, table: Tensor
) -> Tensor:
    """∂x where the forward pass left the gradient of the logits, ``made``, but for the factor ``grad``."""
    grad = grad.float()
    of_bias = step.beside.run(lambda: added(table)[:symbols] * grad)
    scaled = logit_step.scaled(x, grad)
    of_weight = step.beside.run(lambda: wide_product(made[:, :symbols], scaled, torch.float32))
    step.of_output = of_weight, of_bias
    dx = logit_step.scaled(made @ narrow, grad)
    step.beside.stage()
    return dx
