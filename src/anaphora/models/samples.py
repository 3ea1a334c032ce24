"""What hears samples: convolutions that make frames of them, and a convolution that says where a frame is (wav2vec 2.0,
Baevski et al. 2020)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.exporting import scanning


class SampleConvolution(nn.Module):
    """y = f(norm(conv(x))), ``(batch, inputs, time)`` -> ``(batch, outputs, ⌊(time − kernel)/stride⌋ + 1)``.

    norm: "group" normalises each filter over the real places of its row, "layer" all filters at each place, "" nothing.
    """

    def __init__(self, inputs: int, outputs: int, kernel: int, stride: int, *, bias: bool, norm: str):
        super().__init__()
        self.conv = nn.Conv1d(inputs, outputs, kernel, stride, bias=bias)
        self.kernel, self.stride, self.kind = kernel, stride, norm
        self.norm = nn.LayerNorm(outputs) if norm else nn.Identity()
        nn.init.kaiming_normal_(self.conv.weight)

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x with ``lengths`` real places in each row ``(batch,)``; returns y and its lengths."""
        x, lengths = self.conv(x), (lengths - self.kernel) // self.stride + 1
        if self.kind == "layer":
            x = self.norm(x.transpose(1, 2)).transpose(1, 2)
        elif self.kind == "group":
            x = self._by_filter(x, lengths)
        return F.gelu(x), lengths

    def _by_filter(self, x: Tensor, lengths: Tensor) -> Tensor:
        norm, filters = self.norm, x.shape[1]
        assert isinstance(norm, nn.LayerNorm)
        if scanning():
            real = masks.padding(lengths, x.shape[2]).unsqueeze(1)
            mean = (x * real).sum(2, keepdim=True) / lengths[:, None, None]
            apart = (x - mean) * real
            spread = apart.square().sum(2, keepdim=True) / lengths[:, None, None]
            y = apart * torch.rsqrt(spread + norm.eps)
            return y * norm.weight[:, None] + norm.bias[:, None]
        # Row by row, so that a row's sums never depend on how long the others are.
        rows = [
            F.pad(
                F.group_norm(row[None, :, :n], filters, norm.weight, norm.bias, norm.eps),
                (0, x.shape[2] - n),
            )
            for row, n in zip(x.unbind(0), lengths.tolist(), strict=True)
        ]
        return torch.cat(rows)


class SampleFront(nn.Module):
    """Samples to frames: convolutions, then W norm(x) + b. While training, stretches of frames become the learned vector
    ``hidden`` (SpecAugment in time), so that the layers above must guess.

    ``share``: how many places such a stretch of ``length`` places begins at. Past the end of a row there are zeros.
    """

    def __init__(
        self,
        kernels: Sequence[int],
        strides: Sequence[int],
        filters: int,
        width: int,
        *,
        norm: str = "group",
        bias: bool = False,
        eps: float = 1e-5,
        share: float = 0.0,
        length: int = 10,
        dropout: float = 0.0,
    ):
        super().__init__()
        kinds = [norm if norm == "layer" or not number else "" for number in range(len(kernels))]
        inputs = [1, *[filters] * (len(kernels) - 1)]
        self.convolutions = nn.ModuleList(
            SampleConvolution(below, filters, kernel, stride, bias=bias, norm=kind)
            for below, kernel, stride, kind in zip(inputs, kernels, strides, kinds, strict=True)
        )
        self.norm = nn.LayerNorm(filters, eps=eps)
        self.linear = nn.Linear(filters, width)
        self.hidden = nn.Parameter(torch.empty(width).uniform_())
        self.dropout = nn.Dropout(dropout)
        self.share, self.length = share, length
        self.factor, self.width = math.prod(strides), width
        self.reach = 1
        for kernel, stride in zip(reversed(kernels), reversed(strides), strict=True):
            self.reach = (self.reach - 1) * stride + kernel

    def places(self, samples: int) -> int:
        """How many frames ``samples`` samples become, at least one."""
        return (max(samples, self.reach) - self.reach) // self.factor + 1

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, samples, 1)``, lengths ``(batch,)`` -> ``(batch, frames, width)`` and their lengths."""
        x = x.masked_fill(~masks.padding(lengths, x.shape[1]).unsqueeze(-1), 0.0)
        if not scanning():  # where no size is known; what runs the graph fills up short recordings itself
            x = F.pad(x, (0, 0, 0, max(0, self.reach - x.shape[1])))
        x = x.transpose(1, 2)
        lengths = lengths.clamp_min(self.reach)
        for convolution in self.convolutions:
            x, lengths = convolution(x, lengths)
        y = self.dropout(self.linear(self.norm(x.transpose(1, 2))))
        real = masks.padding(lengths, y.shape[1])
        if self.training and self.share:
            y = torch.where(self._stretches(real).unsqueeze(-1), self.hidden.to(y.dtype), y)
        y = y.masked_fill(~real.unsqueeze(-1), 0.0)
        inside.note(self, "frames", y)
        return y, lengths

    def _stretches(self, real: Tensor) -> Tensor:
        """``(batch, frames)``, True in stretches that begin at a share of the places, each place with the same chance."""
        begins = torch.rand(real.shape, device=real.device) < self.share
        grown = F.max_pool1d(F.pad(begins.float(), (self.length - 1, 0))[:, None], self.length, 1)[:, 0]
        return grown.bool() & real


class ConvolvedPositions(nn.Module):
    """x + f(conv(x)): what stands around a place says where it is. The convolution sees ``kernel`` places, each of ``groups``
    parts of the features by itself; its weights are g V / |V|, with a length g for each of the places (weight norm)."""

    def __init__(
        self, width: int, kernel: int, groups: int, *, activation: Callable[[Tensor], Tensor] = F.gelu
    ):
        super().__init__()
        self.kernel, self.groups, self.activation = kernel, groups, activation
        self.direction = nn.Parameter(torch.empty(width, width // groups, kernel))
        self.size = nn.Parameter(torch.empty(1, 1, kernel))
        self.bias = nn.Parameter(torch.zeros(width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.direction, std=2 * math.sqrt(1 / (self.kernel * self.direction.shape[1])))
        with torch.no_grad():
            self.size.copy_(self._lengths())
        nn.init.zeros_(self.bias)

    def _lengths(self) -> Tensor:
        found: Tensor = torch.linalg.vector_norm(self.direction, dim=(0, 1), keepdim=True)
        return found

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x ``(batch, time, width)``, zero past the end of a row."""
        weight = self.direction * (self.size / self._lengths())
        y = F.conv1d(x.transpose(1, 2), weight, self.bias, padding=self.kernel // 2, groups=self.groups)
        return x + self.activation(y[:, :, : x.shape[1]]).transpose(1, 2)
