"""The layers of Keras that are read: how the config and the weights of each become a module of `keras.modules`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.foreign.keras.activations import activation
from anaphora.foreign.keras.modules import (
    Config,
    Convolved,
    Dense,
    EachStep,
    LastAxis,
    Lookup,
    Masking,
    MeanOverTime,
    Plain,
    Scaled,
    WeightedAverage,
    sizes,
)
from anaphora.foreign.keras.recurrent import RecurrentLayer, recurrent_layer
from anaphora.foreign.mapping import UnmappedError


@dataclass(frozen=True)
class Given:
    """What a layer is made of: its config, its weights in Keras' order, and the version that wrote them."""

    config: Config
    weights: Sequence[Tensor]
    version: str
    inner: Callable[[Config, Sequence[Tensor]], nn.Module]
    """Makes the layer that a wrapper holds."""

    def shaped(self, *shapes: tuple[int | None, ...]) -> list[Tensor]:
        """The weights, which must have these shapes; None: any size."""
        if len(self.weights) != len(shapes):
            raise ValueError(f"has {len(self.weights)} weights instead of {len(shapes)}")
        for one, shape in zip(self.weights, shapes, strict=True):
            fits = one.dim() == len(shape) and all(
                n is None or n == m for n, m in zip(shape, one.shape, strict=True)
            )
            if not fits:
                sizes = ", ".join("…" if n is None else str(n) for n in shape)
                raise ValueError(f"has weights of {tuple(one.shape)} instead of ({sizes})")
        return [one.float() for one in self.weights]


def _usual(config: Config, **wanted: Any) -> None:
    for key, value in wanted.items():
        if config.get(key, value) not in (value, None):
            raise UnmappedError(f"{key} = {config[key]!r}")


# ------------------------------------------------------------------ one builder per layer
def _embedding(g: Given) -> nn.Module:
    (weight,) = g.shaped((int(g.config["input_dim"]), int(g.config["output_dim"])))
    return Lookup(weight, zero_masked=bool(g.config.get("mask_zero")))


def _dense(g: Given) -> nn.Module:
    units = int(g.config["units"])
    biased = g.config.get("use_bias", True)
    weight, *bias = g.shaped((None, units), *(((units,),) if biased else ()))
    return Dense(weight, bias[0] if bias else None, activation(g.config.get("activation"), g.version))


def _convolution(g: Given) -> nn.Module:
    _usual(g.config, data_format="channels_last")
    filters = int(g.config["filters"])
    kernel = g.config["kernel_size"]
    places = tuple(int(one) for one in (kernel if isinstance(kernel, list | tuple) else [kernel]))
    shape = (*places, None, filters)
    weight, *bias = g.shaped(shape, *(((filters,),) if g.config.get("use_bias", True) else ()))
    function = activation(g.config.get("activation"), g.version)
    return Convolved(weight, bias[0] if bias else None, g.config, function)


def _batch_normalization(g: Given) -> nn.Module:
    axis = g.config.get("axis", -1)
    axis = axis[0] if isinstance(axis, list) and len(axis) == 1 else axis
    names = [key for key in ("scale", "center") if g.config.get(key, True)]
    found = g.shaped(*(((None,),) * (len(names) + 2)))
    size = len(found[-1])
    if any(len(one) != size for one in found):
        raise ValueError("has weights of several sizes")
    parts = dict(zip(names, found, strict=False))
    gain, shift = parts.get("scale", torch.ones(size)), parts.get("center", torch.zeros(size))
    if axis not in (-1, 1, 2, 3):
        raise UnmappedError(f"axis = {axis!r}")
    made = Scaled(found[-2], found[-1], gain, shift, float(g.config.get("epsilon", 1e-3)))
    return made if axis == -1 else LastAxis(made, int(axis))


def _layer_normalization(g: Given) -> nn.Module:
    _usual(g.config, rms_scaling=False)
    if g.config.get("axis", -1) not in (-1, [-1]):
        raise UnmappedError(f"axis = {g.config['axis']!r}")
    names = [key for key in ("scale", "center") if g.config.get(key, True)]
    found = g.shaped(*(((None,),) * len(names)))
    if not found:
        raise UnmappedError("scale = False with center = False")
    made = nn.LayerNorm(len(found[0]), float(g.config.get("epsilon", 1e-3)))
    parts = dict(zip(names, found, strict=True))
    with torch.no_grad():
        made.weight.copy_(parts.get("scale", torch.ones(len(found[0]))))
        made.bias.copy_(parts.get("center", torch.zeros(len(found[0]))))
    return made


def _pooling(average: bool) -> Callable[[Given], nn.Module]:
    def build(g: Given) -> nn.Module:
        _usual(g.config, data_format="channels_last", padding="valid")
        (size,) = sizes(g.config, "pool_size", 1)
        (stride,) = sizes({"strides": g.config.get("strides") or size}, "strides", 1)
        run = F.avg_pool1d if average else F.max_pool1d
        return Plain(lambda x: run(x.transpose(1, 2), size, stride).transpose(1, 2), keeps=False)

    return build


def _global_average(g: Given) -> nn.Module:
    _usual(g.config, data_format="channels_last", keepdims=False)
    return MeanOverTime()


def _global_max(g: Given) -> nn.Module:
    _usual(g.config, data_format="channels_last", keepdims=False)
    return Plain(lambda x: x.amax(1), keeps=False)


def _reshape(g: Given) -> nn.Module:
    shape = tuple(-1 if one is None else int(one) for one in g.config["target_shape"])
    return Plain(lambda x: x.reshape(x.shape[0], *shape), keeps=False)


def _permute(g: Given) -> nn.Module:
    order = tuple(int(one) for one in g.config["dims"])
    return Plain(lambda x: x.permute(0, *order), keeps=False)


def _repeat(g: Given) -> nn.Module:
    n = int(g.config["n"])
    return Plain(lambda x: x[:, None].expand(-1, n, -1), keeps=False)


def _softmax(g: Given) -> nn.Module:
    axis = g.config.get("axis", -1)
    if not isinstance(axis, int):
        raise UnmappedError(f"axis = {axis!r}")
    return Plain(lambda x: torch.softmax(x, axis))


def _relu(g: Given) -> nn.Module:
    _usual(g.config, max_value=None, threshold=0.0)
    slope = float(g.config.get("negative_slope") or 0.0)
    return Plain(lambda x: F.leaky_relu(x, slope))


def _leaky(g: Given) -> nn.Module:
    slope = float(g.config.get("negative_slope", g.config.get("alpha", 0.3)))
    return Plain(lambda x: F.leaky_relu(x, slope))


def _concatenate(g: Given) -> nn.Module:
    axis = int(g.config.get("axis", -1))
    return Plain(lambda *xs: torch.cat(xs, axis))


def _squeeze(g: Given) -> nn.Module:
    axis = int(g.config.get("axis", -1))
    return Plain(lambda x: x.squeeze(axis), keeps=False)


def _recurrent(kind: str) -> Callable[[Given], nn.Module]:
    return lambda g: recurrent_layer(kind, g.config, g.weights, g.version)


def _bidirectional(g: Given) -> nn.Module:
    inside = g.config["layer"]
    kind, own = str(inside["class_name"]), inside["config"]
    if kind not in RECURRENT:
        raise UnmappedError(f"a Bidirectional of {kind}")
    back = (g.config.get("backward_layer") or {}).get("config", own)
    for key in ("units", "activation", "recurrent_activation", "use_bias", "reset_after"):
        if back.get(key) != own.get(key):
            raise UnmappedError(f"{key} = {back.get(key)!r} in the backward direction")
    half = len(g.weights) // 2
    return recurrent_layer(
        kind, own, g.weights[:half], g.version, (back, g.weights[half:]), g.config.get("merge_mode", "concat")
    )


def _time_distributed(g: Given) -> nn.Module:
    inside = g.config["layer"]
    made = g.inner(inside, g.weights)
    if isinstance(made, RecurrentLayer | MeanOverTime | Lookup | Masking):
        raise UnmappedError(f"a TimeDistributed of {inside['class_name']}")
    return EachStep(made)


def _attention(g: Given) -> nn.Module:
    _usual(g.config, return_attention=False)
    (weight,) = g.shaped((None, 1))
    return WeightedAverage(weight)


def _identity(g: Given) -> nn.Module:
    g.shaped()
    return Plain(lambda x: x)


def _masking(g: Given) -> nn.Module:
    return Masking(float(g.config.get("mask_value", 0.0)))


def _fold(run: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Given], nn.Module]:
    def folded(*xs: Tensor) -> Tensor:
        found = xs[0]
        for one in xs[1:]:
            found = run(found, one)
        return found

    return lambda g: Plain(folded)


RECURRENT = ("LSTM", "GRU", "SimpleRNN", "CuDNNLSTM", "CuDNNGRU")
SILENT = (
    *("Dropout", "SpatialDropout1D", "SpatialDropout2D", "GaussianNoise", "GaussianDropout", "AlphaDropout"),
    *("ActivityRegularization", "Identity"),
)
"""Layers that do nothing outside of training."""
LAYERS: dict[str, Callable[[Given], nn.Module]] = {
    **dict.fromkeys(SILENT, _identity),
    **{name: _recurrent(name) for name in RECURRENT},
    "Embedding": _embedding,
    "Masking": _masking,
    "Dense": _dense,
    "Conv1D": _convolution,
    "Conv2D": _convolution,
    "BatchNormalization": _batch_normalization,
    "LayerNormalization": _layer_normalization,
    "Bidirectional": _bidirectional,
    "TimeDistributed": _time_distributed,
    "MaxPooling1D": _pooling(average=False),
    "AveragePooling1D": _pooling(average=True),
    "GlobalMaxPooling1D": _global_max,
    "GlobalAveragePooling1D": _global_average,
    "Flatten": lambda g: Plain(lambda x: x.flatten(1), keeps=False),
    "Reshape": _reshape,
    "Permute": _permute,
    "RepeatVector": _repeat,
    "Activation": lambda g: Plain(activation(g.config.get("activation"), g.version)),
    "Softmax": _softmax,
    "ReLU": _relu,
    "LeakyReLU": _leaky,
    "Concatenate": _concatenate,
    "Add": _fold(torch.add),
    "Subtract": _fold(torch.sub),
    "Multiply": _fold(torch.mul),
    "Maximum": _fold(torch.maximum),
    "Average": lambda g: Plain(lambda *xs: torch.stack(xs).mean(0)),
    "SqueezeLayer": _squeeze,  # of crema
    "AttentionWeightedAverage": _attention,
}
