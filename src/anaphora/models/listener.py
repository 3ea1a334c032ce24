"""What reads sound: fewer frames at the front, and above them any encoder of vectors.

Frames are ``(batch, time, features)``. A front end gives ``(batch, ⌈time / factor⌉, width)`` and the new lengths; past
the end of a row there are zeros, whatever stands in the padding, so a row never depends on the others.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.models.memory import Memory
from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.convolution import Convolution

DILATIONS = (1, 2, 4)


class Stacking(nn.Module):
    """``factor`` neighbouring frames side by side as one: y_t = [x_{kt}; x_{kt+1}; …; x_{kt+k−1}]."""

    def __init__(self, features: int, factor: int):
        super().__init__()
        self.factor, self.width = factor, features * factor

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)``."""
        x = x.masked_fill(~masks.padding(lengths, x.shape[1]).unsqueeze(-1), 0.0)
        x = F.pad(x, (0, 0, 0, -x.shape[1] % self.factor))
        return x.reshape(x.shape[0], -1, self.width), _fewer(lengths, self.factor)


class Differences(nn.Module):
    """Frames with how they change, then any front end: y_t = [x_t; 3 Δx_t; 6 ΔΔx_t], of which ``order`` differences are there, and

        Δx_t = Σ_{n=1,2} n (x_{t+n} − x_{t−n}) / 10

    the slope of the line through five frames (Furui 1986). Before the first and after the last frame of a row its own end is repeated;
    the factors bring the slopes of normalised features to the size of the features.
    """

    GAINS = (3.0, 6.0)

    def __init__(self, front: nn.Module, order: int):
        super().__init__()
        self.front, self.order = front, order
        self.factor, self.width = int(front.factor), int(front.width)  # type: ignore[arg-type]

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)``; the front end reads ``(1 + order) · features``."""
        parts, slope = [x], x
        last = (lengths - 1).clamp_min(0)[:, None]
        places = torch.arange(x.shape[1], device=x.device)

        def moved(by: int) -> Tensor:
            rows = torch.minimum((places + by).clamp_min(0)[None], last)  # (batch, time)
            return slope.gather(1, rows[..., None].expand_as(slope))

        for gain in self.GAINS[: self.order]:
            slope = (2 * (moved(2) - moved(-2)) + moved(1) - moved(-1)) / 10
            parts.append(gain * slope)
        found: tuple[Tensor, Tensor] = self.front(torch.cat(parts, -1), lengths)
        return found


class Subsampling(nn.Module):
    """Convolutions of width 3 that step over every second frame, as many as halve the frames to 1/``factor``:

        y_t = relu(b + Σ_{i=−1…1} W_i x_{2t+i})

    ``factor`` is a power of two; with 1 there is one convolution that steps over nothing. With several ``members`` as many such stacks of
    convolutions read the same frames side by side, and y holds ``width`` numbers of each.
    """

    def __init__(self, features: int, width: int, factor: int, *, members: int = 1):
        super().__init__()
        if factor < 1 or factor & (factor - 1):
            raise ValueError(f"Subsampling halves the frames, so factor must be 1, 2, 4 …, not {factor}")
        self.factor, self.width = factor, width * members
        self.strides = (2,) * (factor.bit_length() - 1) or (1,)
        wide = [features, *[self.width] * (len(self.strides) - 1)]
        groups = [1, *[members] * (len(self.strides) - 1)]  # the first convolution of each reads all features
        self.layers = nn.ModuleList(
            nn.Conv1d(inputs, self.width, 3, stride, padding=1, groups=apart)
            for inputs, stride, apart in zip(wide, self.strides, groups, strict=True)
        )

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)``."""
        for layer, stride in zip(self.layers, self.strides, strict=True):
            x = x.masked_fill(~masks.padding(lengths, x.shape[1]).unsqueeze(-1), 0.0)
            x = F.relu(layer(x.transpose(1, 2))).transpose(1, 2)
            lengths = _fewer(lengths, stride)
        return x, lengths


class ConvolutionListener(nn.Module):
    """Centred convolutions with residual connections, their dilations 1, 2, 4, 1, 2, 4 …:

        x <- x + dropout(relu(conv_l(norm_l(x))))

    Each place sees ``reach`` places on either side and nothing further. Notes ``states``, the output of each layer, on
    that layer. With several ``members`` x holds ``width`` numbers of each of as many networks, which see nothing of each other.
    """

    def __init__(self, width: int, kernel: int, layers: int, *, dropout: float = 0.0, members: int = 1):
        super().__init__()
        dilations = [DILATIONS[layer % len(DILATIONS)] for layer in range(layers)]
        self.width = width * members
        self.layers = nn.ModuleList(
            Convolution(self.width, self.width, kernel, dilation=d, groups=members) for d in dilations
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm(width) if members == 1 else NormEach(width, members) for _ in dilations
        )
        self.dropout = nn.Dropout(dropout)
        self.reach = (kernel - 1) // 2 * sum(dilations)

    def forward(self, x: Tensor, lengths: Tensor) -> Memory:
        """x ``(batch, time, members · width)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, x.shape[1])
        for layer, norm in zip(self.layers, self.norms, strict=True):
            x = x + self.dropout(F.relu(layer(norm(x), mask)))
            x = inside.changed(layer, "states", x)
            inside.note(layer, "states", x)
        return Memory(x, mask)


class NormEach(nn.Module):
    """`LayerNorm` of each of ``members`` parts of x ``(…, members · width)`` by itself, every number with its own gain and bias."""

    def __init__(self, width: int, members: int):
        super().__init__()
        self.width = width
        self.weight = nn.Parameter(torch.ones(members, width))
        self.bias = nn.Parameter(torch.zeros(members, width))

    def forward(self, x: Tensor) -> Tensor:
        y = F.layer_norm(x.reshape(*x.shape[:-1], *self.weight.shape), (self.width,))
        return (y * self.weight + self.bias).flatten(-2)


class Listener(nn.Module):
    """A front end that leaves fewer frames, and an encoder of vectors above it.

    ``margin``: so many annotations at either end are of what was put around the sound (`anaphora.data.audio.preprocessing`), and are left out.
    """

    def __init__(self, front: nn.Module, body: nn.Module, *, margin: int = 0):
        super().__init__()
        self.front = front
        self.body = body
        self.margin = margin
        self.factor = int(front.factor)  # type: ignore[arg-type]
        self.width = int(body.width)  # type: ignore[arg-type]

    def forward(self, x: Tensor, lengths: Tensor) -> Memory:
        """x ``(batch, time, features)``, lengths ``(batch,)`` -> annotations ``(batch, ⌈time / factor⌉ − 2 margin, width)``."""
        memory: Memory = self.body(*self.front(x, lengths))
        if not self.margin:
            return memory
        kept = memory.annotations[:, self.margin : memory.annotations.shape[1] - self.margin]
        # of each row as many as at its begin go at its end
        return Memory(kept, memory.mask[:, 2 * self.margin :], memory.last)

    def places(self, frames: int) -> int:
        """How many annotations ``frames`` frames have."""
        own = getattr(self.front, "places", None)
        found = int(own(frames)) if own else -(-frames // self.factor)
        return max(0, found - 2 * self.margin)


def _fewer(lengths: Tensor, factor: int) -> Tensor:
    """⌈lengths / factor⌉."""
    return (lengths + factor - 1) // factor
