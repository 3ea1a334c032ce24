"""Vectors of words in their context, from all layers of language models (ELMo, Peters et al. 2018)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from anaphora.data.symbols import PAD
from anaphora.engine.backends.reference import reverse_rows
from anaphora.nn.embedding import Embedding
from anaphora.nn.recurrent import Recurrent


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
