"""A stack of Transformer layers as one call on a CPU: ``stack.c`` with packed weights."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.native.c import address_of, check, plain
from anaphora.ops.decode.parts import ACTIVATIONS, Layer, Map, Norm
from anaphora.ops.packed import native

TURN = 128
"""Rows that go through all layers together: what is between two products then stays in the cache."""
ORDERS = ("after", "before", "beside")
"""Where the norms of a layer are; beside: before both sublayers, which read the same x."""


@dataclass(frozen=True)
class Shape:
    """What all layers have in common. ``angles`` ``(places, rotated / 2, 2)``: cosine and sine of rotary positions, or None."""

    heads: int
    kept_heads: int
    order: str
    activation: str
    gated: bool
    eps: float
    angles: Tensor | None = None


class Stack:
    """Layers with the weights that they have when this is made; without gradient, float32.

    stack = Stack(layers, Shape(heads=12, kept_heads=12, order="after", activation="gelu", gated=False, eps=1e-12))
    stack.whole(x, lengths, causal=False)  # x (rows, width), in place
    """

    def __init__(self, layers: Sequence[Layer], shape: Shape):
        self.width, self.inner = layers[0].outward.weight.shape[0], layers[0].down.weight.shape[1]
        self.shape, self.layers = shape, len(layers)
        self._kept: list[Tensor] = []
        places = [place for layer in layers for place in self._places(layer)]
        self._parts = (ctypes.c_void_p * len(places))(*places)
        angles = shape.angles
        self._angles = None if angles is None else self._own(angles.detach().float())
        self._eps = self._own(torch.tensor([shape.eps], dtype=torch.float32))
        rotated = 0 if angles is None else 2 * angles.shape[1]
        self._numbers = (
            self.width, self.inner, self.layers, shape.heads, shape.kept_heads, ORDERS.index(shape.order),
            ACTIVATIONS.index(shape.activation), int(shape.gated), rotated,
        )  # fmt: skip

    @staticmethod
    def fits(layers: Sequence[Layer], shape: Shape) -> bool:
        """Whether there is a compiler, all weights are float32 on the CPU, and rows are whole vectors."""
        parts = [part for layer in layers for part in vars(layer).values()]
        maps = [t for part in parts if isinstance(part, Map) for t in (part.weight, part.bias)]
        norms = [t for part in parts if isinstance(part, Norm) for t in (part.gain, part.shift)]
        return layers[0].outward.weight.shape[0] % 16 == 0 and plain(*norms) and native.library.ready(*maps)

    def holds(self, places: int) -> bool:
        """Return True if sequences may have so many places, for which there are angles of rotary positions."""
        return self._angles is None or places <= len(self._angles)

    def _own(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor.contiguous().clone())
        return self._kept[-1]

    def _places(self, layer: Layer) -> list[int | None]:
        found: list[int | None] = []
        for part in (
            layer.before_attention, layer.inward, layer.outward, layer.before_feedforward, layer.up, layer.down,
        ):  # fmt: skip
            found += self._norm(part) if isinstance(part, Norm) else self._map(part)
        return found

    def _norm(self, norm: Norm) -> list[int | None]:
        shift = None if norm.shift is None else self._own(norm.shift.detach().float()).data_ptr()
        return [self._own(norm.gain.detach().float()).data_ptr(), shift]

    def _map(self, part: Map) -> list[int | None]:
        packed = native.pack(part.weight, part.bias)
        self._kept += [packed.weights, packed.bias]
        return [packed.weights.data_ptr(), packed.bias.data_ptr()]

    def whole(self, x: Tensor, lengths: Tensor, *, causal: bool) -> None:
        """Sequences of ``lengths`` ``(sequences,)`` places whose rows follow each other in x ``(rows, width)``, in place."""
        rows = int(lengths.sum())
        check("stack: x", x, (rows, self.width), torch.float32)
        check("stack: lengths", lengths, (len(lengths),), torch.int64)
        if self._angles is not None and len(lengths) and int(lengths.max()) > len(self._angles):
            raise ValueError(
                f"stack: there are angles for {len(self._angles)} places, not for {int(lengths.max())}."
            )
        numbers = (*self._numbers, len(lengths), int(causal), TURN, torch.get_num_threads())
        self._call("whole_stack", numbers, x, (lengths,))

    def paged(
        self,
        x: Tensor,
        pages: Tensor,
        table: Tensor,
        position: Tensor,
        written: Tensor,
        *,
        reach: int | None = None,
    ) -> None:
        """New places of rows whose past lies in ``pages`` ``(layers, there are, places, 2 · kept width)``; x ``(rows, width)`` in place.

        ``table`` ``(rows, 1 + most)`` and ``reach`` are those of `native.attend_pages`; ``position`` ``(rows,)`` is the place of each row,
        ``written`` ``(rows,)`` where its keys and values go, counted over all pages. Raises ValueError where that is not there.
        """
        rows, kept = len(x), self.width // self.shape.heads * self.shape.kept_heads
        there, places = pages.shape[1:3]
        check("stack: x", x, (rows, self.width), torch.float32)
        check("stack: pages", pages, (self.layers, there, places, 2 * kept), torch.float32)
        check("stack: table", table, (rows, table.shape[1]), torch.int64)
        for name, index in (("position", position), ("written", written)):
            check(f"stack: {name}", index, (rows,), torch.int64)
        if self._angles is not None and rows and not 0 <= int(position.max()) < len(self._angles):
            raise ValueError(f"stack: there are angles for {len(self._angles)} places only.")
        most = table.shape[1] - 1
        more = (rows, torch.get_num_threads(), places, most, there, reach or most * places)
        self._call("paged_stack", (*self._numbers, *more), x, (pages, table, position, written))

    def normalised(self, x: Tensor, norm: Norm) -> Tensor:
        """N(x) of each row of x ``(rows, width)``, with this stack's ε."""
        check("stack: x", x, (len(x), self.width), torch.float32)
        gain = norm.gain.detach().float().contiguous()
        shift = None if norm.shift is None else norm.shift.detach().float().contiguous()
        out = torch.empty_like(x)
        given = (x, gain, shift, self._eps, out)
        places = [None if t is None else address_of(t) for t in given]
        native.library.call(native.FLOAT, "norm_rows", (len(x), self.width), places)
        return out

    def _call(self, name: str, numbers: tuple[int, ...], x: Tensor, more: tuple[Tensor, ...]) -> None:
        native.library.call(
            native.FLOAT,
            name,
            numbers,
            (x, ctypes.addressof(self._parts), self._angles, self._eps, *more),
            no_memory="a stack of layers ran out of memory; use shorter or smaller batches",
            out_of_range=lambda: f"{name}: a row points at a past that is not there.",
        )
