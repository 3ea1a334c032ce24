"""Words with their spelling: the vector of a word beside one that is read from its characters.

A word that was never seen still has a spelling: endings, capitals, digits (Ling et al. 2015, Ma & Hovy 2016).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.data.symbols import PAD
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding
from anaphora.nn.recurrent import Recurrent


class RecurrentSpelling(nn.Module):
    """[→h; ←h], the last states of a bidirectional layer over the characters: ``(words, letters)`` -> ``(words, width)``."""

    def __init__(self, embedding: Embedding, recurrent: Recurrent):
        super().__init__()
        self.embedding, self.recurrent = embedding, recurrent
        self.width: int = recurrent.output_size

    def forward(self, letters: Tensor) -> Tensor:
        lengths = (letters != PAD).sum(1).clamp(min=1)
        _, last = self.recurrent(self.embedding(letters), lengths)
        return torch.cat(last[0].unbind(0), -1)


class ConvolvedSpelling(nn.Module):
    """The greatest value of each filter over the word, max_t relu(conv(c)_t): ``(words, letters)`` -> ``(words, width)``."""

    def __init__(self, embedding: Embedding, convolution: Convolution):
        super().__init__()
        self.embedding, self.convolution = embedding, convolution
        self.width = convolution.weight.shape[0]

    def forward(self, letters: Tensor) -> Tensor:
        real = letters != PAD
        found: Tensor = self.convolution(self.embedding(letters), real).relu()
        return found.masked_fill(~real.unsqueeze(-1), 0.0).amax(1)


class SpelledWords(Embedding):
    """[E_w; spelling(c_1 … c_n)]: an embedding of words that also reads their characters.

    A word comes as its symbol and then its characters, ``(…, 1 + letters)``, PAD past the end of the spelling; it
    leaves as ``(…, width)``. Each spelling is read once, however often it occurs in the batch.
    """

    def __init__(self, symbols: int, width: int, spelling: RecurrentSpelling | ConvolvedSpelling):
        super().__init__(symbols, width, scaled=True)
        self.spelling = spelling
        self.width = width + spelling.width

    def forward(self, symbols: Tensor) -> Tensor:
        letters = symbols[..., 1:]
        each, which = torch.unique(letters.flatten(0, -2), dim=0, return_inverse=True)
        spelled = self.spelling(each)[which].view(*letters.shape[:-1], -1)
        return torch.cat((super().forward(symbols[..., 0]), spelled), -1)
