"""What a Transformer language model consists of, as plain tensors: what the kernels of this package are made of."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

ACTIVATIONS = ("relu", "gelu", "gelu-tanh", "silu")
"""By the number they have in the kernels."""


@dataclass(frozen=True)
class Norm:
    """gain ``(width,)`` and, of a LayerNorm, shift ``(width,)``; of an RMSNorm None."""

    gain: Tensor
    shift: Tensor | None


@dataclass(frozen=True)
class Map:
    """weight ``(outputs, inputs)``, bias ``(outputs,)`` or None."""

    weight: Tensor
    bias: Tensor | None


@dataclass(frozen=True)
class Layer:
    """A norm-first layer. ``up`` is W₁, or W₁ above V where ``gated`` (SwiGLU)."""

    before_attention: Norm
    inward: Map
    outward: Map
    before_feedforward: Norm
    up: Map
    down: Map


@dataclass(frozen=True)
class Parts:
    """The model. ``rotated``: features of a head that rotary positions rotate, 0 without; ``angles`` ``(places, rotated / 2, 2)``, cosine
    and sine. ``places`` ``(places, width)`` are positions that are added to the vectors of the symbols."""

    table: Tensor
    scale: float
    places: Tensor | None
    angles: Tensor | None
    layers: tuple[Layer, ...]
    end: Norm
    output: Map
    heads: int
    kept_heads: int
    activation: str
    gated: bool
    eps: float
    context: int

    @property
    def width(self) -> int:
        return self.table.shape[1]

    @property
    def inner(self) -> int:
        """Inputs of W₂."""
        return self.layers[0].down.weight.shape[1]

    @property
    def rotated(self) -> int:
        return 0 if self.angles is None else 2 * self.angles.shape[1]

    def moved(self, each: int) -> int:
        """Bytes of weights that a step reads, where a number takes ``each``: all matrices once, and one row of the table."""
        maps = [m for layer in self.layers for m in (layer.inward, layer.outward, layer.up, layer.down)]
        return each * sum(m.weight.numel() for m in (*maps, self.output))
