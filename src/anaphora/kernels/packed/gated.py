"""The greedy output of an encoder and a decoder that are one GRU each as one call on a CPU: ``gated.c``."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.kernels.packed import native


@dataclass(frozen=True)
class Gated:
    """A GRU (reset after the product) on symbols: ``vectors`` ``(symbols, inputs)``; of gates r, u and the candidate, one below the other,
    ``inward`` ``(3 · hidden, inputs)``, ``recurrent`` ``(3 · hidden, hidden)``, ``bias`` ``(3 · hidden,)``, and ``reset_bias`` ``(hidden,)``, b′."""

    vectors: Tensor
    inward: Tensor
    recurrent: Tensor
    bias: Tensor
    reset_bias: Tensor

    @property
    def hidden(self) -> int:
        return self.recurrent.shape[1]


class GreedyGRU:
    """The weights that both had when this was made; float32.

    writer = GreedyGRU(encoder, decoder, weight, bias)
    symbols, log_probs = writer.write([[5, 7, 3], [6, 3]], [20, 20], start=2, eos=3)
    """

    def __init__(self, encoder: Gated, decoder: Gated, weight: Tensor, bias: Tensor | None):
        """``weight`` ``(symbols, hidden)`` and ``bias`` ``(symbols,)`` are the output layer's."""
        self.hidden, self.known, self.symbols = encoder.hidden, len(encoder.vectors), len(weight)
        self._kept: list[Tensor] = []
        for part in (encoder, decoder):
            # What a symbol adds to the gates, in double precision: it is rounded once.
            table = (
                part.vectors.detach().double() @ part.inward.detach().double().T + part.bias.detach().double()
            )
            reset = part.reset_bias.detach()
            packed = native.pack(part.recurrent, torch.cat((reset.new_zeros(2 * part.hidden), reset)))
            self._kept += [table.float().contiguous(), packed.weights, packed.bias]
        packed = native.pack(weight, bias)
        self._kept += [packed.weights, packed.bias]

    def write(
        self, sources: Sequence[Sequence[int]], limits: Sequence[int], *, start: int, eos: int, least: int = 0
    ) -> tuple[list[list[int]], list[list[float]]]:
        """The symbols of each source's output with the EOS behind it, at most ``limits`` of them, and log p of each; none ends before it has
        ``least``. Sources are whole, with their own EOS; none is empty. A log p of NaN ends an output.

        Raises ValueError where a source has a symbol that the encoder has no vector of.
        """
        order = sorted(range(len(sources)), key=lambda i: -len(sources[i]))
        longest, most = max(map(len, sources)), max(limits)
        padded = [[*sources[i], *[0] * (longest - len(sources[i]))] for i in order]
        given = (
            torch.tensor(padded),
            torch.tensor([len(sources[i]) for i in order]),
            *self._kept,
            torch.tensor([limits[i] for i in order]),
        )
        symbols = torch.full((len(sources), most), -1)
        log_probs = torch.zeros(len(sources), most)
        threads = max(1, min(torch.get_num_threads(), len(sources) // 8))
        sizes = (
            len(sources), threads, self.hidden, longest, self.known, self.symbols, most, start, eos, least,
        )  # fmt: skip
        places = [tensor.data_ptr() for tensor in (*given, symbols, log_probs)]
        failed = native.library().greedy_gru(  # type: ignore[union-attr]
            (ctypes.c_longlong * len(sizes))(*sizes), (ctypes.c_void_p * len(places))(*places)
        )
        if failed == 2:
            raise ValueError(f"greedy output: a source has a symbol that is not one of {self.known}.")
        if failed:
            raise MemoryError("a greedy output ran out of memory; use smaller batches")
        found: list[list[int]] = [[] for _ in sources]
        probs: list[list[float]] = [[] for _ in sources]
        for i, row, log_p in zip(order, symbols.tolist(), log_probs.tolist(), strict=True):
            length = row.index(-1) if -1 in row else most
            found[i], probs[i] = row[:length], log_p[:length]
        return found, probs
