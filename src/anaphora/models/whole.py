"""A Transformer language model as the plain tensors that the kernels for whole steps read."""

from __future__ import annotations

from typing import cast

from torch import Tensor, nn

from anaphora.kernels.decode.parts import Map, Parts
from anaphora.models.language import Language, TransformerBody
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned, NoPositions, Sinusoidal
from anaphora.nn.transformer import EncoderLayer
from anaphora.nn.transformer.compiled import layers_of, norm_kind, norm_of_module


def parts_of(model: nn.Module) -> Parts | None:
    """The parts of ``model``; None where it is of another kind than the kernels know: norm first, positions added or rotary."""
    if (
        not isinstance(model, Language)
        or type(model.body) is not TransformerBody
        or model.project is not None
    ):
        return None
    body, output = model.body, model.output
    found = layers_of([cast(EncoderLayer, layer) for layer in body.stack.layers], body.context)
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
