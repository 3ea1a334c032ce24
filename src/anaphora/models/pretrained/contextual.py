"""Vectors of words in their context, from language models of words (ELMo) and of characters (Akbik et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.data.symbols import PAD, UNK
from anaphora.engine.backends.reference import reverse_rows
from anaphora.nn.embedding import Embedding
from anaphora.nn.recurrent import Recurrent


# ----------------------------------------------------------------------
# Vectors of words in their context, from all layers of language models (ELMo, Peters et al. 2018).
class ContextReader(nn.Module):
    """The body of a language model, kept as it is: words ``(batch, time)`` to the states of each of its layers.

    The state of a word is that after ``begin`` and all words up to it have been read; with ``backward`` the sentence is
    read from its end, and the state of a word is that after all words from the end up to it. With ``tokens`` the vectors
    of the words themselves are the lowest layer, as in ELMo; where one kind is narrower, zeros fill it up.
    """

    spelled = False
    """Whether it reads the letters of the words as well."""

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        *,
        begin: int,
        backward: bool = False,
        tokens: bool = False,
    ):
        super().__init__()
        self.embedding, self.recurrent = embedding, recurrent
        self.begin, self.backward, self.tokens = begin, backward, tokens
        self.width = max(recurrent.hidden, embedding.width) if tokens else recurrent.hidden
        self.depth = recurrent.layers + tokens
        for weight in self.parameters():
            weight.requires_grad_(False)

    @torch.no_grad()
    def forward(self, words: Tensor, lengths: Tensor) -> list[Tensor]:
        """``depth`` tensors ``(batch, time, width)``, the lowest layer first; zero past each row's end."""
        read = reverse_rows(words, lengths) if self.backward else words
        first = torch.full_like(read[:, :1], self.begin)
        x = self.embedding(torch.cat((first, read), 1))
        found = [y[:, 1:] for y in self.recurrent.each_layer(x, lengths + 1)]
        if self.tokens:
            real = torch.arange(words.shape[1], device=words.device) < lengths[:, None]
            found = [x[:, 1:] * real.unsqueeze(-1), *found]
        wide = [F.pad(y, (0, self.width - y.shape[-1])) for y in found]
        return [reverse_rows(y, lengths) if self.backward else y for y in wide]


class Mixture(nn.Module):
    """γ Σ_l softmax(s)_l h_l: the weight of each layer is learned with the task."""

    def __init__(self, layers: int):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        shares = self.scores.softmax(0)
        mixed = sum(
            (share * layer for share, layer in zip(shares.unbind(), layers, strict=True)), layers[0] * 0
        )
        return self.scale * mixed


class ContextualWords(nn.Module):
    """[e; context_1; context_2 …]: a word's own vector beside what each language model makes of it here.

    Takes what ``own`` takes: words ``(batch, time)``, or ``(batch, time, 1 + letters)`` with their spelling; PAD ends a
    sentence.
    """

    def __init__(self, own: Embedding, readers: Sequence[ContextReader]):
        super().__init__()
        self.own = own
        self.readers = nn.ModuleList(readers)
        self.mixtures = nn.ModuleList(Mixture(reader.depth) for reader in readers)
        self.width: int = own.width + sum(reader.width for reader in readers)

    def forward(self, symbols: Tensor) -> Tensor:
        words = symbols if symbols.dim() == 2 else symbols[..., 0]
        lengths = (words != PAD).sum(1)
        context = [
            mix(reader(symbols if reader.spelled else words, lengths))
            for reader, mix in zip(self.readers, self.mixtures, strict=True)
        ]
        return torch.cat((self.own(symbols), *context), -1)


# ----------------------------------------------------------------------
# Words as a language model of characters sees them in their sentence (Akbik et al. 2018).
class Line(NamedTuple):
    """Sentences as lines of characters, and where their words stand in them."""

    text: Tensor
    """(rows, longest)"""
    lengths: Tensor
    """(rows,)"""
    first: Tensor
    """(rows, words): the place of each word's first character"""
    last: Tensor
    """(rows, words): the place of its last"""


def as_line(letters: Tensor, lengths: Tensor, space: int) -> Line:
    """Words ``(rows, words, letters)``, PAD past the end of each, of which ``lengths`` ``(rows,)`` are real, with a ``space``
    between two of them.

    >>> as_line(torch.tensor([[[7, 8], [9, 0]]]), torch.tensor([2]), 5).text
    tensor([[7, 8, 5, 9]])
    """
    rows, words, most = letters.shape
    real = torch.arange(words, device=letters.device) < lengths[:, None]  # (rows, words)
    sizes = (letters != PAD).sum(-1) * real
    steps = (sizes + 1) * real
    first = steps.cumsum(1) - steps
    wholes = (steps.sum(1) - 1).clamp(min=0)
    longest = int(wholes.max()) if rows else 0
    text = letters.new_full((rows, longest + 1), PAD)  # the last place takes what belongs nowhere
    places = first.unsqueeze(-1) + torch.arange(most, device=letters.device)
    places = places.masked_fill((letters == PAD) | ~real.unsqueeze(-1), longest)
    text.scatter_(1, places.flatten(1), letters.flatten(1))
    between = (first + sizes).masked_fill(~real, longest).clamp(max=longest)
    text.scatter_(1, between, torch.full_like(between, space))
    last = (first + sizes - 1).clamp(min=0)
    inside = torch.arange(longest, device=letters.device) < wholes[:, None]
    return Line(text[:, :longest].masked_fill(~inside, PAD), wholes, first, last)


class CharacterReader(ContextReader):
    """The body of a language model of characters, kept as it is: words with their letters ``(batch, time, 1 + letters)`` to
    the states of each of its layers, ``(batch, time, width)``.

    The state of a word is that after its last character; with ``backward``, which reads the sentence from its end, that after
    its first. ``table`` has the symbol of the language model for each number of a letter.
    """

    spelled = True
    table: Tensor

    def __init__(
        self,
        embedding: Embedding,
        recurrent: Recurrent,
        *,
        begin: int,
        space: int,
        letters: int,
        backward: bool = False,
    ):
        super().__init__(embedding, recurrent, begin=begin, backward=backward)
        self.space = space
        self.register_buffer("table", torch.full((letters,), UNK))

    @torch.no_grad()
    def forward(self, words: Tensor, lengths: Tensor) -> list[Tensor]:
        line = as_line(self.table[words[..., 1:]], lengths, self.space)
        states = super().forward(line.text, line.lengths)
        at = (line.first if self.backward else line.last).clamp(max=max(0, line.text.shape[1] - 1))
        real = (torch.arange(words.shape[1], device=words.device) < lengths[:, None]).unsqueeze(-1)
        return [state.gather(1, at.unsqueeze(-1).expand(-1, -1, state.shape[-1])) * real for state in states]
