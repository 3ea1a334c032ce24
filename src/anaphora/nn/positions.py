"""Where in the sequence: attention by itself sees a set, so positions must be said.

`Sinusoidal` and `Learned` are added to the vectors that enter a Transformer. `Rotary` and `Alibi` act inside
self-attention, on its queries and keys or on its scores, and depend on distances only.
Counting 0, 1, 2, … grows without bound, dividing by the length makes a step mean something else in every
sentence, and binary digits jump; sines of many wavelengths are bounded, smooth and the same everywhere.
"""

from __future__ import annotations

import math
from functools import partial

import torch
from torch import Tensor, nn

from anaphora.errors import DataError
from anaphora.native.derived import table
from anaphora.nn.exporting import scanning

_FIRST_PLACES = 256  # tables start this long, so that decoding step by step seldom has to extend them


class Sinusoidal(nn.Module):
    """Sines and cosines of geometrically growing wavelengths (Vaswani et al. 2017, section 3.5).

    P[p, 2i] = sin(p / 10000^(2i/d)),    P[p, 2i+1] = cos(p / 10000^(2i/d))

    ``halves``: all sines stand before all cosines (Marian). ``spread``: the longest wavelength is 10000 · 2π itself, i/(d/2 − 1)
    in place of 2i/d (tensor2tensor, fairseq). ``first``: the position of the first place (M2M-100 counts from 2).

    Args:
        width: d, even; an odd one is a `ValueError`.
        base: 10000 above.
        halves: see above.
        spread: see above.
        first: see above.

    >>> an.nn.positions.Sinusoidal(4)(torch.zeros(1, 3, 4))[0, 0]       # position 0: sin 0, cos 0, sin 0, cos 0
    tensor([0., 1., 0., 1.])
    """

    _derived = ("_table",)

    def __init__(
        self,
        width: int,
        *,
        base: float = 10000.0,
        halves: bool = False,
        spread: bool = False,
        first: int = 0,
    ):
        super().__init__()
        if width % 2:
            raise ValueError(
                f"Sinusoidal positions pair a sine with a cosine, so the width must be even, not {width}"
            )
        self.width, self.base, self.halves, self.spread, self.first = width, base, halves, spread, first
        self._table = torch.empty(0, width)

    def table(self, length: int, like: Tensor) -> Tensor:
        """The first ``length`` positions ``(length, width)``, with the dtype and device of ``like``."""
        kept = self._table
        if kept.shape[0] < length or kept.dtype != like.dtype or kept.device != like.device:
            places = max(length, _FIRST_PLACES, 2 * kept.shape[0])
            kept = table(
                self, "_table", like, lambda: self._sines(self._angles(places, 0)).to(like.device, like.dtype)
            )
        return kept[:length]

    def _angles(self, length: int, offset: int) -> Tensor:
        """Those of ``length`` places, the first of which has ``offset`` places before it: ``(length, width/2)``."""
        half = self.width // 2
        width = self.width
        base = self.base ** (half / (half - 1)) if self.spread and half > 1 else self.base
        return _angles(length, width, base, self.first + offset)

    def _sines(self, angles: Tensor) -> Tensor:
        """``(…, width/2)`` -> ``(…, width)``."""
        return torch.stack((angles.sin(), angles.cos()), -2 if self.halves else -1).flatten(-2)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x ``(batch, time, width)`` plus the positions ``offset``, ``offset + 1``, …"""
        if scanning():
            angles = self._angles(x.shape[-2], offset)
            return x + self._sines(angles).to(x.dtype)
        return x + self.table(offset + x.shape[-2], x)[offset:]


class NoPositions(nn.Module):
    """x as it is, ``(batch, time, width)``: for attention that knows places by itself, or must not know them.

    >>> an.nn.positions.NoPositions()(torch.ones(1, 3, 4)).sum()
    tensor(12.)
    """

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        return x


class TooLongError(DataError, ValueError):
    """A sequence with more places than were learned."""


class Learned(nn.Module):
    """A vector for each of the first ``maximum`` positions, learned like an embedding.

    The first place of a sequence is position ``first``: RoBERTa and OPT count from 2.

    Args:
        width: of the vectors.
        maximum: how many there are; a longer sequence raises a `TooLongError`.
        first: see above.

    >>> an.nn.positions.Learned(4, maximum=10)(torch.zeros(2, 3, 4)).shape
    torch.Size([2, 3, 4])
    """

    def __init__(self, width: int, maximum: int, *, first: int = 0):
        super().__init__()
        self.first = first
        self.weight = nn.Parameter(torch.empty(maximum, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x ``(batch, time, width)`` plus the positions ``offset``, ``offset + 1``, …"""
        end, maximum = offset + x.shape[-2], self.places
        if scanning():  # whose slices have no size that is known
            return x + nn.functional.embedding(
                torch.arange(self.first + offset, self.first + end), self.weight
            )
        if end > maximum:
            raise TooLongError(
                f"Learned positions end at {maximum}, but the sequence has {end} places: shorten it or train with "
                f"a larger maximum (Sinusoidal positions have none)"
            )
        return x + self.weight[self.first + offset : self.first + end]

    @property
    def places(self) -> int:
        """How many places a sequence may have."""
        return self.weight.shape[0] - self.first


class Rotary(nn.Module):
    """Turns pairs of features by an angle that grows with the position (Su et al. 2021).

        (x_2i, x_2i+1) at position p  ->  rotated by p / base^(2i/d)

    Applied to queries and keys, q · k then depends on the contents and on the distance, not on the places. With a
    ``share`` below 1 only so many of the features, the first ones, turn (GPT-NeoX).

    Raises a `ValueError` for a ``share`` outside of 0 … 1, and for an odd number of features.

    >>> x = torch.ones(1, 3, 4)
    >>> rotated = an.nn.positions.Rotary(base=10000.0)(x)
    >>> rotated.shape, torch.allclose(rotated.norm(dim=-1), x.norm(dim=-1))
    (torch.Size([1, 3, 4]), True)
    """

    _derived = ("_turns",)

    def __init__(self, *, base: float = 10000.0, share: float = 1.0):
        super().__init__()
        if not 0 < share <= 1:
            raise ValueError(f"Rotary turns a share of the features above 0 and at most 1, not {share}")
        self.base, self.share = base, share
        self._turns = torch.empty(0, 0, 2)

    def _cos_sin(self, length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(like.dtype, torch.float32)  # half precision cannot tell far places apart
        kept = self._turns
        if (
            kept.shape[0] < length
            or kept.shape[1:] != (width // 2, 2)
            or kept.dtype != dtype
            or kept.device != like.device
        ):
            angles = partial(_angles, max(length, _FIRST_PLACES, 2 * kept.shape[0]), width, self.base)
            kept = table(self, "_turns", like, lambda: _turns(angles()).to(like.device, dtype))
        return kept[:length, :, 0], kept[:length, :, 1]

    def forward(self, x: Tensor, offset: int = 0) -> Tensor:
        """x ``(…, time, width)`` with the positions ``offset``, ``offset + 1``, …"""
        width = int(self.share * x.shape[-1])
        if width % 2:
            raise ValueError(
                f"Rotary positions turn pairs of features, so heads must have even width, not {width}"
            )
        if scanning():
            angles = _angles(x.shape[-2], width, self.base, offset)
            return self.turn(x, angles.cos().to(x.dtype), angles.sin().to(x.dtype))
        cos, sin = self._cos_sin(offset + x.shape[-2], width, x)
        return self.turn(x, cos[offset:], sin[offset:])

    def turn(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """x ``(…, width)``, its first features rotated by angles whose cosines and sines are given, ``(…, features / 2)``."""
        width = 2 * cos.shape[-1]
        first = rotated(x[..., :width], cos, sin)
        return first if width == x.shape[-1] else torch.cat((first, x[..., width:]), -1)

    def angles(self, length: int, width: int, like: Tensor) -> tuple[Tensor, Tensor]:
        """Cosines and sines for the first places of heads of that width, each ``(length, rotated features / 2)``."""
        return self._cos_sin(length, int(self.share * width), like)


def rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Pairs of features of x ``(…, width)`` rotated by angles whose cosines and sines are ``(…, width / 2)``.

    >>> quarter = torch.tensor([0.0]), torch.tensor([1.0])              # cos 90°, sin 90°
    >>> an.nn.positions.rotated(torch.tensor([1.0, 0.0]), *quarter)
    tensor([0., 1.])
    """
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2).to(x.dtype)


def rotary_rates(width: int, base: float = 10000.0) -> Tensor:
    """By how much the angle of each pair of features grows with a place, ``(width / 2,)`` in double precision:

        θ_i = base^(−2i / width),  i = 0 … width/2 − 1

    ``width``: how many features are rotated; ``base``: the larger it is, the slower are the last pairs.

    >>> an.nn.positions.rotary_rates(4).tolist()
    [1.0, 0.01]
    """
    return base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)


class Alibi(nn.Module):
    """Takes m·|i − j| off the score of places i and j, with a slope m per head (Press et al. 2022).

    For h heads, a power of two, the slopes are 2^(−8/h), 2^(−16/h), …, 2^(−8); for other counts those of the
    next lower power, followed by every second one of the next higher.

    ``heads``: how many; below 1 is a `ValueError`. The bias is ``(heads, queries, keys)``.

    >>> an.nn.positions.Alibi(1).bias(1, 3, like=torch.zeros(1)).abs() * 2**8   # the last of three places
    tensor([[[2., 1., 0.]]])
    """

    _derived = ("_slopes",)

    def __init__(self, heads: int):
        super().__init__()
        if heads < 1:
            raise ValueError(f"Alibi needs at least one head, not {heads}")
        self.slopes = alibi_slopes(heads)
        self._slopes = torch.tensor(self.slopes)

    def bias(self, queries: int, keys: int, *, like: Tensor) -> Tensor:
        """``(heads, queries, keys)`` for queries that stand at the last places of the keys."""
        here = torch.arange(keys - queries, keys, device=like.device)
        distance = (here[:, None] - torch.arange(keys, device=like.device)).abs()
        slopes = self._slopes
        if slopes.dtype != like.dtype or slopes.device != like.device:
            slopes = table(
                self,
                "_slopes",
                like,
                lambda: torch.tensor(self.slopes, device=like.device, dtype=like.dtype),
            )
        return -slopes[:, None, None] * distance


def alibi_slopes(heads: int) -> list[float]:
    """The slope m_h of each head; see `Alibi`.

        m_h = 2^(−8 h / heads),  h = 1 … heads

    Where ``heads`` is no power of two, the first ones have the slopes of the power of two below it, and the rest every second
    slope of the power of two above it. Raises ValueError for ``heads`` below 1.

    >>> an.nn.positions.alibi_slopes(heads=2)
    [0.0625, 0.00390625]
    """
    if heads < 1:
        raise ValueError(f"alibi_slopes: heads must be at least 1, got {heads}.")
    power = 2 ** int(math.log2(heads))
    slopes = [2.0 ** (-8 * (head + 1) / power) for head in range(power)]
    between = [2.0 ** (-8 * (head + 1) / (2 * power)) for head in range(0, 2 * power, 2)]
    return slopes + between[: heads - power]


def _angles(length: int, width: int, base: float, first: int = 0) -> Tensor:
    """p / base^(2i/width) for ``length`` places p from ``first`` on, i < width/2, in double precision: ``(length, width/2)``."""
    return torch.arange(first, first + length, dtype=torch.float64)[:, None] * rotary_rates(width, base)


def _turns(angles: Tensor) -> Tensor:
    """Cosines and sines, side by side: ``(…)`` -> ``(…, 2)``."""
    return torch.stack((angles.cos(), angles.sin()), -1)
