"""Sequences without recurrence: convolution over time, and a network on a window.

All blocks here keep the length, ``(batch, time, inputs)`` -> ``(batch, time, outputs)``; outside a sequence, before
its start and past its end, there are zeros, whatever stands in the padding.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside


class Convolution(nn.Module):
    """y_t = b + Σ_i W_i x_{t + (i − c)·dilation} over ``kernel`` places around t.

    The window is centred (c = (kernel − 1)/2, kernel odd), or ``causal``: it ends at t (c = kernel − 1).
    x ``(batch, time, inputs)`` gives y ``(batch, time, outputs)``. With several ``groups`` inputs and outputs are cut into as many equal
    parts, each part of the outputs reading its own part of the inputs and nothing else.

    >>> an.nn.Convolution(3, 4, kernel=3)(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        kernel: int,
        *,
        dilation: int = 1,
        causal: bool = False,
        groups: int = 1,
    ):
        super().__init__()
        if kernel < 1 or dilation < 1:
            raise ValueError(
                f"Convolution: kernel and dilation must be at least 1, but are {kernel} and {dilation}"
            )
        if not causal and kernel % 2 == 0:
            raise ValueError(
                f"a centred Convolution needs an odd kernel, not {kernel}: make it odd, or causal"
            )
        if inputs % groups or outputs % groups:
            raise ValueError(
                f"Convolution: {inputs} inputs and {outputs} outputs cannot be cut into {groups} groups"
            )
        self.kernel, self.dilation, self.causal, self.groups = kernel, dilation, causal, groups
        self.weight = nn.Parameter(torch.empty(outputs, inputs // groups, kernel))
        self.bias = nn.Parameter(torch.empty(outputs))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, nonlinearity="relu")
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x ``(batch, time, inputs)``; mask ``(batch, time)``, True = real."""
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        reach = (self.kernel - 1) * self.dilation
        sides = (reach, 0) if self.causal else (reach // 2, reach // 2)
        padded = F.pad(x.transpose(1, 2), sides)
        y = F.conv1d(padded, self.weight, self.bias, dilation=self.dilation, groups=self.groups)
        return y.transpose(1, 2)


class DilatedStack(nn.Module):
    """Causal convolutions with dilations 1, 2, 4, … and residual connections (Bai et al. 2018).

        x <- x + dropout(relu(conv_l(x))),    dilation of layer l: 2^l

    L layers see 1 + (kernel − 1)(2^L − 1) places back: a path between far places has log length.
    x is ``(batch, time, width)``.
    Notes ``states``, the output of each layer, on that layer.

    >>> an.nn.DilatedStack(4, kernel=3, layers=2)(torch.zeros(2, 9, 4)).shape
    torch.Size([2, 9, 4])
    """

    def __init__(self, width: int, kernel: int, layers: int, *, dropout: float = 0.0):
        super().__init__()
        self.layers = nn.ModuleList(
            Convolution(width, width, kernel, dilation=2**layer, causal=True) for layer in range(layers)
        )
        self.dropout = nn.Dropout(dropout)
        self.receptive_field = 1 + (kernel - 1) * (2**layers - 1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x ``(batch, time, width)``; mask ``(batch, time)``, True = real."""
        for layer in self.layers:
            x = x + self.dropout(F.relu(layer(x, mask)))
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
        return x


class WindowMLP(nn.Module):
    """A feed-forward network on a window of the input, padded with zeros at the ends.

        y_t = W₂ f(W₁ [x_{t−before}; …; x_{t+after}] + b₁) + b₂

    Args:
        inputs: the width of x ``(batch, time, inputs)``.
        hidden: the width of the layer inside.
        outputs: the width of y ``(batch, time, outputs)``.
        before, after: places of the window on each side of t.
        activation: f.

    >>> an.nn.WindowMLP(3, 8, 4, before=2)(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5, 4])
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        *,
        before: int,
        after: int = 0,
        activation: Callable[[Tensor], Tensor] = torch.tanh,
    ):
        super().__init__()
        self.before, self.after = before, after
        self.first = nn.Linear(inputs * (before + 1 + after), hidden)
        self.second = nn.Linear(hidden, outputs)
        self.activation = activation

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """x ``(batch, time, inputs)``; mask ``(batch, time)``, True = real."""
        if mask is not None:
            x = x.masked_fill(~mask.unsqueeze(-1), 0.0)
        padded = F.pad(x, (0, 0, self.before, self.after))
        windows = padded.unfold(1, self.before + 1 + self.after, 1)  # (batch, time, inputs, window)
        hidden = self.activation(self.first(windows.transpose(2, 3).flatten(2)))
        inside.note(self, "hidden", hidden)
        out: Tensor = self.second(hidden)
        return out
