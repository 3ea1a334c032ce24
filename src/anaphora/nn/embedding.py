"""Symbols to vectors, and vectors to scores of symbols."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.native.following import following, observed
from anaphora.ops.embedding import look_up


class Embedding(nn.Module):
    """One row of E ``(symbols, width)`` per symbol: ``(…)`` -> ``(…, width)``.

    Entries start as N(0, 1/width), which suits an output layer that shares them. ``scaled`` multiplies what is
    looked up by √width, to entries of about 1: a Transformer's then stand up to the positions (Vaswani et al.
    2017, section 3.4), and a recurrent layer's reach the layers above it from the first step on.

    >>> an.nn.Embedding(10, 4)(torch.tensor([[1, 2, 3]])).shape
    torch.Size([1, 3, 4])
    """

    def __init__(self, symbols: int, width: int, *, scaled: bool = False):
        super().__init__()
        self.symbols, self.width = symbols, width
        self.scale = math.sqrt(width) if scaled else 1.0
        self.weight = nn.Parameter(torch.empty(symbols, width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.weight, std=self.width**-0.5)

    def forward(self, symbols: Tensor) -> Tensor:
        return look_up(symbols, self.weight, self.scale)


class OneHot(nn.Module):
    """Symbols as unit vectors: ``(…)`` -> ``(…, symbols)``.

    The product of a matrix with a unit vector is one of its columns, so a linear layer on top equals an
    `Embedding` that holds the transposed matrix; the look-up merely skips the zeros.

    >>> an.nn.OneHot(3)(torch.tensor([[0, 2]]))
    tensor([[[1., 0., 0.],
             [0., 0., 1.]]])
    """

    def __init__(self, symbols: int):
        super().__init__()
        self.symbols = self.width = symbols

    def forward(self, symbols: Tensor) -> Tensor:
        return F.one_hot(symbols, self.symbols).to(torch.get_default_dtype())


ALIGNED = 64  # logits whose number is a multiple of this are computed by the quickest kernels
MANY = 1024  # symbols from which on slower kernels are felt


class Output(nn.Module):
    """Logits W x + b of every symbol: ``(…, width)`` -> ``(…, symbols)``.

    ``tied`` to an embedding, W is that embedding's E (Press & Wolf 2017), and is stored there only.

    >>> an.nn.Output(4, 10)(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(self, width: int, symbols: int, *, tied: Embedding | None = None):
        super().__init__()
        if tied is not None and (tied.symbols, tied.width) != (symbols, width):
            raise ValueError(
                f"Output({width}, {symbols}) cannot share an embedding of {tied.symbols} symbols and width {tied.width}"
            )
        self.width, self.symbols = width, symbols
        self._tied = () if tied is None else (tied,)  # in a tuple, so that it is not registered a second time
        self.weight = nn.Parameter(torch.empty(symbols, width)) if tied is None else None
        self.bias = nn.Parameter(torch.empty(symbols))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.weight is not None:
            nn.init.normal_(self.weight, std=self.width**-0.5)
        nn.init.zeros_(self.bias)

    @property
    def matrix(self) -> Tensor:
        """W ``(symbols, width)``, wherever it is stored."""
        weight = self._tied[0].weight if self._tied else self.weight
        assert weight is not None
        return weight

    def forward(self, x: Tensor) -> Tensor:
        return F.linear(x, self.matrix, self.bias)


def aligned_logits(output: nn.Module, x: Tensor) -> Tensor:
    """Logits ``(…, symbols or more)``: on a GPU in half precision padded to a multiple of 64, else what ``output`` gives.

    A product with 33 278 columns takes twice as long there as one with 33 280, as its rows do not begin at whole vectors.
    Columns from ``symbols`` on are padding, which means nothing and must get no gradient but zero. An output layer that is watched, as by
    a teacher, is called as ever.
    """
    if not isinstance(output, Output) or not _pads(output, x) or observed(output) is not None:
        found: Tensor = output(x)
        return found
    kind, extra = x.device.type, -output.symbols % ALIGNED
    dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else x.dtype
    matrix = F.pad(output.matrix.to(dtype), (0, 0, 0, extra))  # (symbols + extra, width)
    return F.linear(x, matrix, F.pad(output.bias.to(dtype), (0, extra)))


def _pads(output: Output, x: Tensor) -> bool:
    """Return True if padding is worth it; torch.compile sees to it by itself."""
    if output.symbols < MANY or output.symbols % 8 == 0 or not x.is_cuda or following(x) is not None:
        return False
    return x.element_size() == 2 or torch.is_autocast_enabled("cuda")
