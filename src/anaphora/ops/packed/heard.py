"""A chunk of sound through a spectrum, convolutions, a step of an LSTM and a linear map, as one call on a CPU: ``heard.c``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.native.c import check
from anaphora.ops.packed import native


@dataclass(frozen=True)
class Heard:
    """``spectrum`` ``(2 · frequencies, frame)``: cosines above sines; ``convolutions``: weight ``(outputs, inputs, 3)``, bias and stride of each;
    ``gates`` ``(4 · h, inputs and h side by side)``: i, f, g, o; ``output`` ``(1, h)``."""

    chunk: int
    earlier: int
    hop: int
    spectrum: Tensor
    convolutions: Sequence[tuple[Tensor, Tensor, int]]
    gates: Tensor
    gates_bias: Tensor
    output: Tensor
    output_bias: Tensor


class HeardChunk:
    """The weights that a model had when this was made; float32.

    heard = HeardChunk(parts)
    p, h, c, before = heard(samples, before, h, c)
    """

    def __init__(self, parts: Heard):
        self.chunk, self.earlier, self.hidden = parts.chunk, parts.earlier, parts.output.shape[1]
        maps: list[tuple[Tensor, Tensor | None]] = [(parts.spectrum, None)]
        # Place by place: three neighbouring places then are one row as they lie.
        maps += [(w.detach().permute(0, 2, 1).flatten(1), b) for w, b, _ in parts.convolutions]
        maps += [(parts.gates, parts.gates_bias), (parts.output, parts.output_bias)]
        packed = [native.pack(weight, bias) for weight, bias in maps]
        self._weights = [tensor for one in packed for tensor in (one.weights, one.bias)]
        layers = [
            number for w, _, stride in parts.convolutions for number in (w.shape[1], w.shape[0], stride)
        ]
        bins, frame = parts.spectrum.shape[0] // 2, parts.spectrum.shape[1]
        self._sizes = (
            self.chunk, self.earlier, frame, parts.hop, bins, self.hidden, len(parts.convolutions), *layers,
        )  # fmt: skip

    def __call__(
        self, samples: Tensor, before: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """samples ``(rows, chunk)``, those before them ``(rows, earlier)``, h and c ``(rows, hidden)`` -> probabilities ``(rows,)``, h and c after
        the chunk, and the samples before the next one."""
        rows, given = len(samples), []
        named = (("samples", samples, self.chunk), ("before", before, self.earlier), ("h", h, self.hidden))
        for name, tensor, width in (*named, ("c", c, self.hidden)):
            tensor = tensor.contiguous()
            check(f"a chunk: {name}", tensor, (rows, width), torch.float32)
            given.append(tensor)
        found = (
            samples.new_empty(rows),
            torch.empty_like(given[2]),
            torch.empty_like(given[3]),
            torch.empty_like(given[1]),
        )
        tensors = (*given, *found, *self._weights)
        no_memory = "a chunk ran out of memory; use smaller batches"
        native.library.call(native.FLOAT, "heard_chunk", (rows, *self._sizes), tensors, no_memory=no_memory)
        return found
