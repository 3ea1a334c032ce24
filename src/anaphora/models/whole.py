"""A Transformer language model as the plain tensors that the kernels for whole steps read."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor, nn

from anaphora.models.language import Language, TransformerBody
from anaphora.native.cuda import serves
from anaphora.native.derived import derived
from anaphora.native.following import observed
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned, NoPositions, Sinusoidal
from anaphora.nn.transformer import EncoderLayer
from anaphora.nn.transformer.compiled import layers_of, norm_kind, norm_of_module
from anaphora.ops.decode import cuda
from anaphora.ops.decode.parts import Map, Parts


def greedy_writer(model: nn.Module, places: int) -> cuda.Writer | None:
    """What writes with ``model`` in bfloat16 by one kernel a step, for texts of so many places; None where nothing does.

    It is made at the first call, and again when weights have changed or texts are longer.
    """
    weights: list[Tensor] = list(model.parameters())
    if not weights or not serves(*weights) or torch.cuda.get_device_capability(weights[0].device)[0] < 8:
        return None

    def make() -> cuda.Writer | None:
        parts = parts_of(model)
        room = -(-places // 256) * 256
        if parts is None or places > parts.context or not cuda.fits(parts, torch.bfloat16, room):
            return None
        return cuda.Writer(parts, torch.bfloat16, capacity=room)

    def suits(writer: cuda.Writer | None) -> bool:
        return writer is not None and writer.capacity >= places

    with torch.no_grad():
        return derived(model, make, reads="content", tensors=(*weights, *model.buffers()), suits=suits)


def parts_of(model: nn.Module) -> Parts | None:
    """The parts of ``model``; None where it is of another kind than the kernels know: norm first, positions added or rotary."""
    if (
        not isinstance(model, Language)
        or type(model.body) is not TransformerBody
        or model.project is not None
    ):
        return None
    body, output = model.body, model.output
    found = (
        layers_of([*body.stack.layers], body.context) if observed(model, evaluation=True) is None else None
    )
    if found is None or type(output) is not Output or not _plain(body):
        return None
    layers, shape = found
    first = body.stack.layers[0]
    if shape.order != "before" or norm_kind(body.stack.norm) != norm_kind(
        cast(EncoderLayer, first).around_attention.norm
    ):
        return None
    embedding, positions, places = cast(Embedding, body.embedding), body.positions, None
    if isinstance(positions, Sinusoidal):
        places = positions.table(body.context, embedding.weight)
    elif isinstance(positions, Learned):
        places = cast(Tensor, positions.weight)[positions.first :]
    return Parts(
        table=embedding.weight,
        scale=embedding.scale,
        places=places,
        angles=shape.angles,
        layers=tuple(layers),
        end=norm_of_module(body.stack.norm),
        output=Map(output.matrix, output.bias),
        heads=shape.heads,
        kept_heads=shape.kept_heads,
        activation=shape.activation,
        gated=shape.gated,
        eps=shape.eps,
        context=body.context,
    )


def _plain(body: TransformerBody) -> bool:
    """Whether symbols enter as the kernels have it."""
    return (
        type(body.embedding) is Embedding
        and isinstance(body.positions, Sinusoidal | Learned | NoPositions)
        and body.types is None
        and body.norm is None
        and body.project is None
    )
