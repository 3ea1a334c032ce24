"""The modules that layers of Keras become, over tensors ``(batch, time, features)`` and masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.foreign.mapping import UnmappedError

Config = Mapping[str, Any]


def sizes(config: Config, key: str, axes: int) -> tuple[int, ...]:
    """A number or a list of them as one for each axis; an `UnmappedError` where there are more or fewer."""
    value = config.get(key, 1)
    found = tuple(int(one) for one in value) if isinstance(value, list | tuple) else (int(value),) * axes
    if len(found) != axes:
        raise UnmappedError(f"{key} = {value!r}")
    return found


class Plain(nn.Module):
    """A function of one or several tensors; ``keeps``: whether the mask of the first goes on."""

    def __init__(self, function: Callable[..., Any], *, keeps: bool = True):
        super().__init__()
        self.function, self.keeps = function, keeps

    def forward(self, *given: Tensor) -> Any:
        return self.function(*given)


class Lookup(nn.Module):
    """Vectors of symbols; ``zero_masked``: symbol 0 is no symbol."""

    def __init__(self, weight: Tensor, *, zero_masked: bool):
        super().__init__()
        self.weight, self.zero_masked = nn.Parameter(weight), zero_masked

    def forward(self, symbols: Tensor) -> Tensor:
        return F.embedding(symbols.long(), self.weight)


class Masking(nn.Module):
    """Steps whose features all are ``value`` are left out."""

    def __init__(self, value: float):
        super().__init__()
        self.value = value

    def mask(self, x: Tensor) -> Tensor:
        """``(batch, time)``, True = real."""
        return (x != self.value).any(-1)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.mask(x)[..., None]


class Dense(nn.Module):
    def __init__(self, weight: Tensor, bias: Tensor | None, function: Callable[[Tensor], Tensor]):
        super().__init__()
        self.weight = nn.Parameter(weight.t().contiguous())  # theirs is (inputs, outputs)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(F.linear(x, self.weight, self.bias))


class Convolved(nn.Module):
    """A convolution over one or two axes, features last, with the paddings of Keras."""

    def __init__(
        self, weight: Tensor, bias: Tensor | None, config: Config, function: Callable[[Tensor], Tensor]
    ):
        super().__init__()
        axes = weight.dim() - 2
        self.weight = nn.Parameter(
            weight.movedim((-1, -2), (0, 1)).contiguous()
        )  # theirs is (places…, inputs, outputs)
        self.bias = None if bias is None else nn.Parameter(bias)
        self.stride, self.dilation = (sizes(config, key, axes) for key in ("strides", "dilation_rate"))
        self.padding, self.groups, self.function = (
            str(config["padding"]),
            int(config.get("groups", 1)),
            function,
        )
        if self.padding not in ("valid", "same", "causal"):
            raise UnmappedError(f"padding = {self.padding!r}")

    def forward(self, x: Tensor) -> Tensor:
        x = x.movedim(-1, 1)
        around: list[int] = []
        for size, kernel, stride, dilation in zip(
            x.shape[2:], self.weight.shape[2:], self.stride, self.dilation, strict=True
        ):
            around = [*_around(self.padding, size, (kernel - 1) * dilation + 1, stride), *around]
        run = F.conv1d if self.weight.dim() == 3 else F.conv2d
        y = run(
            F.pad(x, around), self.weight, self.bias, self.stride, dilation=self.dilation, groups=self.groups
        )
        return self.function(y.movedim(1, -1))


class Scaled(nn.Module):
    """(x − mean) / √(variance + ε) · gain + shift over the last axis: a BatchNormalization that was trained."""

    mean: Tensor
    variance: Tensor
    gain: Tensor
    shift: Tensor

    def __init__(self, mean: Tensor, variance: Tensor, gain: Tensor, shift: Tensor, epsilon: float):
        super().__init__()
        for name, one in (("mean", mean), ("variance", variance), ("gain", gain), ("shift", shift)):
            self.register_buffer(name, one)
        self.epsilon = epsilon

    def forward(self, x: Tensor) -> Tensor:
        return (x - self.mean) * (self.gain * torch.rsqrt(self.variance + self.epsilon)) + self.shift


class WeightedAverage(nn.Module):
    """The mean over time, weighted by softmax(x·w): ``AttentionWeightedAverage`` of textgenrnn and DeepMoji."""

    def __init__(self, weight: Tensor):
        super().__init__()
        self.weight = nn.Parameter(weight)

    def forward(self, x: Tensor) -> Tensor:
        return (torch.softmax(x @ self.weight, 1) * x).sum(1)


class EachStep(nn.Module):
    """A layer on every step by itself."""

    def __init__(self, inner: nn.Module):
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x.flatten(0, 1))
        return y.view(*x.shape[:2], *y.shape[1:])


def _around(padding: str, size: int, reach: int, stride: int) -> tuple[int, int]:
    """Zeros before and after an axis, as TensorFlow puts them."""
    if padding == "valid":
        return 0, 0
    if padding == "causal":
        return reach - 1, 0
    total = max((math.ceil(size / stride) - 1) * stride + reach - size, 0)
    return total // 2, total - total // 2


class LastAxis(nn.Module):
    """A layer of the last axis, for inputs of which ``axis`` must be the last."""

    def __init__(self, inner: nn.Module, axis: int):
        super().__init__()
        self.inner, self.axis = inner, axis

    def forward(self, x: Tensor) -> Tensor:
        if x.dim() != self.axis + 1:
            raise ValueError(f"a normalisation of axis {self.axis} was given a tensor of {x.dim()} axes")
        y: Tensor = self.inner(x)
        return y


class MeanOverTime(nn.Module):
    """The mean of the real steps."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        if mask is None:
            return x.mean(1)
        kept = mask[..., None].to(x.dtype)
        return (x * kept).sum(1) / kept.sum(1)
