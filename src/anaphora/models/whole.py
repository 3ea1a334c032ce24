"""A Transformer language model as the plain tensors that the kernels for whole steps read."""

from __future__ import annotations

from functools import partial
from typing import cast

import torch
from torch import nn
from torch.nn import functional as F

from anaphora.kernels.decode.parts import Layer, Map, Norm, Parts
from anaphora.models.language import Language, TransformerBody
from anaphora.nn.attention import MultiHead
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.positions import Learned, NoPositions, Rotary, Sinusoidal
from anaphora.nn.transformer import EncoderLayer, FeedForward, SwiGLU


def parts_of(model: nn.Module) -> Parts | None:
    """The parts of ``model``; None where it is of another kind than the kernels know."""
    if (
        not isinstance(model, Language)
        or type(model.body) is not TransformerBody
        or model.project is not None
    ):
        return None
    body, output = model.body, model.output
    layers = [cast(EncoderLayer, layer) for layer in body.stack.layers]
    if not _plain(body, layers) or type(output) is not Output:
        return None
    first, like = layers[0], body.embedding.weight
    head = first.width // first.attention.heads
    positions, inside = body.positions, first.attention.positions
    places = angles = None
    if isinstance(positions, Sinusoidal):
        places = positions.table(body.context, cast(torch.Tensor, like))
    elif isinstance(positions, Learned):
        places = positions.weight[positions.first :]
    if isinstance(inside, Rotary):
        angles = torch.stack(inside.angles(body.context, head, cast(torch.Tensor, like)), -1)
    embedding = cast(Embedding, body.embedding)
    kind = _activation(first.feedforward)
    assert kind is not None
    return Parts(
        table=embedding.weight,
        scale=embedding.scale,
        places=places,
        angles=angles,
        layers=tuple(_layer(layer) for layer in layers),
        end=_norm(body.stack.norm),
        output=Map(output.matrix, output.bias),
        heads=first.attention.heads,
        kept_heads=first.attention.kv_heads,
        activation=kind,
        gated=isinstance(first.feedforward, SwiGLU),
        eps=_eps(first.around_attention.norm),
        context=body.context,
    )


def _plain(body: TransformerBody, layers: list[EncoderLayer]) -> bool:
    """Whether symbols enter and layers work as the kernels do: norm first, whole attention, positions added or rotary."""
    entering = (
        type(body.embedding) is Embedding
        and isinstance(body.positions, Sinusoidal | Learned | NoPositions)
        and body.types is None
        and body.norm is None
        and body.project is None
    )
    norms = [
        body.stack.norm,
        *(n for layer in layers for n in (layer.around_attention.norm, layer.around_feedforward.norm)),
    ]
    same = len({(type(norm), _eps(norm)) for norm in norms}) == 1 and type(norms[0]) in (
        nn.LayerNorm,
        nn.RMSNorm,
    )
    return entering and same and all(_plain_layer(layer, layers[0]) for layer in layers)


def _plain_layer(layer: EncoderLayer, first: EncoderLayer) -> bool:
    own, inside = layer.attention, layer.attention.positions
    return (
        type(layer) is EncoderLayer
        and type(own) is MultiHead
        and layer.norm_first
        and not layer.parallel
        and own.window is None
        and (inside is None or isinstance(inside, Rotary))
        and _activation(layer.feedforward) is not None
        and type(layer.feedforward) is type(first.feedforward)
        and not list(layer.attention._forward_hooks)
    )


def _activation(part: nn.Module) -> str | None:
    if type(part) not in (FeedForward, SwiGLU):
        return None
    found = part.activation
    if isinstance(found, partial) and found.func is F.gelu and found.keywords == {"approximate": "tanh"}:
        return "gelu-tanh"
    known = {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}
    return known.get(found)  # type: ignore[call-overload, no-any-return]


def _eps(norm: nn.Module) -> float:
    found = getattr(norm, "eps", None)
    return torch.finfo(torch.float32).eps if found is None else float(found)


def _norm(norm: nn.Module) -> Norm:
    return Norm(cast(torch.Tensor, norm.weight), cast("torch.Tensor | None", getattr(norm, "bias", None)))


def _map(linear: nn.Linear) -> Map:
    return Map(linear.weight, linear.bias)


def _layer(layer: EncoderLayer) -> Layer:
    own, forward = layer.attention, cast("FeedForward | SwiGLU", layer.feedforward)
    up = forward.gated if isinstance(forward, SwiGLU) else forward.first
    return Layer(
        _norm(layer.around_attention.norm), _map(own.inward), _map(own.outward),
        _norm(layer.around_feedforward.norm), _map(up), _map(forward.second),
    )  # fmt: skip
