"""A Transformer with everything in its place beforehand, so that a GPU can repeat its steps by itself."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

from anaphora.models.decoders.packed import PackedTransformer, decoder_layers
from anaphora.models.decoders.transformer import TransformerDecoder
from anaphora.models.encoders import TransformerEncoder
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq
from anaphora.nn.attention import MultiHead
from anaphora.nn.positions import Rotary, Sinusoidal


class StaticTransformer:
    """Steps of ``width`` rows for each of ``items`` items, over at most ``places`` source and ``capacity`` target places.

    No shape, no address and no decision of the host depends on the symbols or on the step: what is captured once as a
    CUDA graph is every step. Rows of one item follow each other and share its memory. The past lies in two buffers:
    every second step moves it from the one to the other, to the rows that go on. Computes what the model's ``encode``
    and ``decoder.step`` do, with the weights it has when it runs.
    """

    def __init__(self, model: Seq2Seq, *, items: int, width: int, places: int, capacity: int):
        decoder = model.decoder
        assert isinstance(decoder, TransformerDecoder)
        self.encoder, self.decoder, self.layers = model.encoder, decoder, decoder_layers(decoder)
        self.items, self.width, self.places, self.capacity = items, width, places, capacity
        self.rows = items * width
        like, heads = decoder.embedding.weight, self.layers[0].attention.heads
        across, d = self.layers[0].cross_attention.heads, decoder.stack.width
        past = (self.rows, len(self.layers), 2, heads, capacity, d // heads)
        self.pasts = (like.new_zeros(past), like.new_zeros(past))
        self.memory = like.new_zeros(len(self.layers), 2, items, across, places, d // across)
        self.source = torch.zeros(items, places, dtype=torch.int64, device=like.device)
        self.lengths = torch.zeros(items, dtype=torch.int64, device=like.device)
        self.hidden = like.new_zeros(items, 1, 1, places)
        self.position = torch.zeros(1, dtype=torch.int64, device=like.device)
        self.order = torch.arange(capacity, device=like.device)
        self.table = _positions(decoder, capacity)
        self.turns = [_turns(layer.attention, capacity, like) for layer in self.layers]

    @staticmethod
    def fits(model: Seq2Seq) -> bool:
        """Whether the model is of the kind that this can stand in for."""
        decoder = model.decoder
        if not (isinstance(model.encoder, TransformerEncoder) and isinstance(decoder, TransformerDecoder)):
            return False
        plain = isinstance(decoder.positions, Sinusoidal | None) and decoder.norm is None
        return PackedTransformer.fits(decoder) and plain

    @staticmethod
    def numbers(model: Seq2Seq, rows: int, capacity: int) -> int:
        """How many numbers the past of so many rows and places takes."""
        decoder = model.decoder
        assert isinstance(decoder, TransformerDecoder)
        return 4 * rows * capacity * decoder.stack.width * len(decoder.stack.layers)

    def put(self, source: Tensor, lengths: Tensor) -> None:
        """The sources to `read` next, ``(≤ items, ≤ places)`` and ``(≤ items,)``; what is missing has length 0."""
        self.source.zero_()
        self.source[: source.shape[0], : source.shape[1]] = source
        self.lengths.zero_()
        self.lengths[: len(lengths)] = lengths

    def read(self) -> None:
        """Encodes the sources and begins at the first place."""
        memory: Memory = self.encoder(self.source, self.lengths)
        seen = memory.mask | ~memory.mask.any(1, keepdim=True)  # without any place it would see NaN
        self.hidden.copy_(torch.where(seen, 0.0, -math.inf)[:, None, None])
        for layer, kept in zip(self.layers, self.memory, strict=True):
            made = layer.cross_attention.project(memory.annotations)
            kept[0] = made.keys
            kept[1] = made.values
        self.position.zero_()

    def step(self, symbols: Tensor, parents: Tensor, turn: int) -> Tensor:
        """Logits ``(rows, V)`` of what follows ``symbols`` ``(rows,)``, which continue the rows ``parents`` ``(rows,)``.

        ``turn`` is 0 at the first place, 1 at the next, and so on in turn.
        """
        past = self.pasts[1 - turn]
        torch.index_select(self.pasts[turn], 0, parents, out=past)
        x: Tensor = self.decoder.embedding(symbols)
        if self.table is not None:
            x = x + self.table.index_select(0, self.position)
        ahead = torch.where(self.order <= self.position, 0.0, -math.inf).to(x.dtype).view(1, 1, 1, -1)
        for number, layer in enumerate(self.layers):

            def look_back(y: Tensor, number: int = number, own: MultiHead = layer.attention) -> Tensor:
                return self._look_back(y, past[:, number], own, ahead, self.turns[number])

            def look_across(
                y: Tensor, number: int = number, own: MultiHead = layer.cross_attention
            ) -> Tensor:
                return self._look_across(y, self.memory[number], own)

            x = layer.around_attention(x, look_back)
            x = layer.around_cross_attention(x, look_across)
            x = layer.around_feedforward(x, layer.feedforward)
        self.position += 1
        logits: Tensor = self.decoder.output(self.decoder.left(self.decoder.stack.norm(x)))
        return logits

    def _look_back(
        self, y: Tensor, past: Tensor, own: MultiHead, ahead: Tensor, turns: tuple[Tensor, Tensor] | None
    ) -> Tensor:
        new = own.inward(y).view(self.rows, 3, own.heads, 1, -1)
        if turns is not None:
            assert isinstance(own.positions, Rotary)
            cos, sin = (table.index_select(0, self.position) for table in turns)  # (1, features / 2) each
            new = torch.cat((own.positions.turn(new[:, :2], cos, sin), new[:, 2:]), 1)
        past.index_copy_(3, self.position, new[:, 1:])
        seen = _attend(new[:, 0], past[:, 0], past[:, 1], ahead)
        out: Tensor = own.outward(seen.reshape(self.rows, -1))
        return out

    def _look_across(self, y: Tensor, memory: Tensor, own: MultiHead) -> Tensor:
        """The rows of an item are queries side by side, so that its memory is never copied for each."""
        q = own.project_query(y.view(self.items, self.width, -1))
        seen = _attend(q, memory[0], memory[1], self.hidden)
        out: Tensor = own.outward(seen.transpose(1, 2).reshape(self.rows, -1))
        return out


def _attend(q: Tensor, keys: Tensor, values: Tensor, hidden: Tensor) -> Tensor:
    # Of the kernels that take a mask these are ready at once; others are built while they run and cannot be captured.
    with sdpa_kernel([SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]):
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=hidden)


def _positions(decoder: TransformerDecoder, capacity: int) -> Tensor | None:
    if not isinstance(decoder.positions, Sinusoidal):
        return None
    return decoder.positions.table(capacity, decoder.embedding.weight).clone()


def _turns(own: MultiHead, capacity: int, like: Tensor) -> tuple[Tensor, Tensor] | None:
    """Cosines and sines of rotary positions for so many places, which stay where they are: ``(capacity, features / 2)`` each."""
    if not isinstance(own.positions, Rotary):
        return None
    cos, sin = own.positions.angles(capacity, own.each, like)
    return cos.clone(), sin.clone()
