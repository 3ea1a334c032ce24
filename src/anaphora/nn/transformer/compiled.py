"""Stacks of encoder layers as one call on a CPU, where nothing but their result is needed."""

from __future__ import annotations

from functools import partial
from itertools import chain
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.native.derived import derived
from anaphora.native.following import following, observed
from anaphora.nn import inside
from anaphora.nn.attention.multihead import MultiHead
from anaphora.nn.positions import Rotary
from anaphora.nn.transformer.layers import EncoderLayer, FeedForward, Sublayer, SwiGLU
from anaphora.ops.decode.parts import Layer, Map, Norm
from anaphora.ops.packed import Shape, Stack

_FEWEST_ANGLES = 512


def whole_stack(layers: nn.Module, x: Tensor, mask: Tensor | None, causal: bool) -> Tensor | None:
    """What a list of encoder layers makes of x ``(batch, time, width)``; None where it has to be computed layer by layer.

    That is where gradients, weights of attention or states are needed, and for layers, masks and numbers that ``packed_stack.c`` does
    not know. Padding (mask ``(batch, time)``, False at the end of rows) is not computed: its states are 0.
    """
    if not _plain_call(layers, x, mask):
        return None
    batch, time, width = x.shape
    stack = packed_stack(layers, time)
    if stack is None:
        return None
    if mask is None:
        lengths = torch.full((batch,), time)
    else:
        lengths = mask.sum(1)
        if not torch.equal(mask, torch.arange(time) < lengths[:, None]):
            return None
        if int(lengths.min()) == time:
            mask = None
    rows = x.reshape(-1, width).clone(memory_format=torch.contiguous_format) if mask is None else x[mask]
    stack.whole(rows, lengths, causal=causal)
    if mask is None:
        return rows.view(batch, time, width)
    found = x.new_zeros(batch, time, width)
    found[mask] = rows
    return found


def _plain_call(layers: nn.Module, x: Tensor, mask: Tensor | None) -> bool:
    exact = x.device.type == "cpu" and x.dtype == torch.float32 and not torch.is_autocast_enabled("cpu")
    return (
        exact
        and not (layers.training or torch.is_grad_enabled() or inside.recording())
        and x.dim() == 3
        and x.numel() > 0
        and (mask is None or (mask.dim() == 2 and mask.dtype == torch.bool))
        and following(x, mask) is None
    )


def packed_stack(layers: nn.Module, places: int) -> Stack | None:
    """Return the layers with their weights packed, made at the first call and again when they have changed; None where they do not fit."""

    def make() -> Stack | None:
        if observed(*layers.children(), evaluation=True) is not None:
            return None
        parts = layers_of([*layers.children()], max(places, _FEWEST_ANGLES))
        if parts is None or not Stack.fits(*parts):
            return None
        with torch.no_grad():
            return Stack(*parts)

    weights = chain(layers.parameters(), layers.buffers())  # looked for only where the stack is made
    return derived(
        layers,
        make,
        reads="content",
        tensors=weights,
        suits=lambda stack: stack is None or stack.holds(places),
    )


def layers_of(layers: list[nn.Module], places: int) -> tuple[list[Layer], Shape] | None:
    """The layers as plain tensors, and what they have in common; None where the kernels do not know one.

    ``places``: for how many the angles of rotary positions are needed.
    """
    plain = [layer for layer in layers if type(layer) is EncoderLayer]
    if not plain or len(plain) < len(layers) or not all(_plain_layer(layer, plain[0]) for layer in plain):
        return None
    first = plain[0]
    own, inward = first.attention, cast("FeedForward | SwiGLU", first.feedforward)
    kind = activation_of(inward)
    norms = {
        norm_kind(norm)
        for layer in plain
        for norm in (layer.around_attention.norm, layer.around_feedforward.norm)
    }
    if kind is None or len(norms) != 1 or None in norms:
        return None
    angles = None
    if isinstance(own.positions, Rotary):
        angles = torch.stack(own.positions.angles(places, own.width // own.heads, own.inward.weight), -1)
    order = "beside" if first.parallel else "before" if first.norm_first else "after"
    shape = Shape(
        own.heads,
        own.kv_heads,
        order,
        kind,
        isinstance(inward, SwiGLU),
        eps_of(first.around_attention.norm),
        angles,
    )
    return [_layer(layer) for layer in plain], shape


def _plain_layer(layer: EncoderLayer, first: EncoderLayer) -> bool:
    if type(layer.attention) is not MultiHead:
        return False
    own, like, inside_it = layer.attention, first.attention, layer.attention.positions
    around = (layer.around_attention, layer.around_feedforward)
    return (
        type(own.inward) is nn.Linear
        and type(own.outward) is nn.Linear
        and own.window is None
        and own.scale is None
        and own.inner == own.width
        and (inside_it is None or type(inside_it) is Rotary)
        and (own.heads, own.kv_heads) == (like.heads, like.kv_heads)
        and type(inside_it) is type(like.positions)
        and (
            not isinstance(inside_it, Rotary)
            or vars(inside_it).get("base") == vars(like.positions).get("base")
        )
        and all(type(each) is Sublayer for each in around)
        and layer.norm_first == first.norm_first
        and layer.parallel == first.parallel
        and type(layer.feedforward) is type(first.feedforward)
        and activation_of(layer.feedforward) == activation_of(first.feedforward)
    )


def activation_of(part: nn.Module) -> str | None:
    """The name of a feed-forward network's activation, as the kernels know it."""
    if type(part) not in (FeedForward, SwiGLU):
        return None
    maps = [m for m in part.children() if not isinstance(m, nn.Dropout)]
    if not all(type(m) is nn.Linear for m in maps):
        return None
    found: Any = part.activation
    if isinstance(found, partial) and found.func is F.gelu and found.keywords == {"approximate": "tanh"}:
        return "gelu-tanh"
    return {F.relu: "relu", F.gelu: "gelu", F.silu: "silu"}.get(found)


def norm_kind(norm: nn.Module) -> tuple[type, float] | None:
    """Class and ε of a norm that the kernels know."""
    if type(norm) is nn.LayerNorm and norm.elementwise_affine and norm.bias is not None:
        return nn.LayerNorm, norm.eps
    return (nn.RMSNorm, eps_of(norm)) if type(norm) is nn.RMSNorm and norm.elementwise_affine else None


def eps_of(norm: nn.Module) -> float:
    found = getattr(norm, "eps", None)
    return torch.finfo(torch.float32).eps if found is None else float(found)


def norm_of_module(norm: nn.Module) -> Norm:
    return Norm(cast(Tensor, norm.weight), cast("Tensor | None", getattr(norm, "bias", None)))


def _map(linear: nn.Linear) -> Map:
    return Map(linear.weight, linear.bias)


def _layer(layer: EncoderLayer) -> Layer:
    own, forward = layer.attention, cast("FeedForward | SwiGLU", layer.feedforward)
    up = forward.gated if isinstance(forward, SwiGLU) else forward.first
    return Layer(
        norm_of_module(layer.around_attention.norm), _map(own.inward), _map(own.outward),
        norm_of_module(layer.around_feedforward.norm), _map(up), _map(forward.second),
    )  # fmt: skip
