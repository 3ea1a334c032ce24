"""A tag for every word: a reader of the sentence, a score for each tag, and perhaps a chain over them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.symbols import PAD
from anaphora.nn import CRF
from anaphora.nn.convolution import Convolution
from anaphora.nn.embedding import Embedding, Output
from anaphora.nn.exporting import scanning
from anaphora.nn.recurrent import Recurrent
from anaphora.ops.crf import viterbi


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


def read_spellings(spelling: RecurrentSpelling | ConvolvedSpelling, letters: Tensor) -> Tensor:
    """Letters ``(…, letters)`` -> ``(…, width)``; each spelling is read once, however often it occurs."""
    found: Tensor
    if scanning():  # an exported graph has no such table; what it holds is the same
        found = spelling(letters.flatten(0, -2))
        return found.view(*letters.shape[:-1], -1)
    each, which = torch.unique(letters.flatten(0, -2), dim=0, return_inverse=True)
    found = spelling(each)[which]
    return found.view(*letters.shape[:-1], -1)


class SpelledWords(Embedding):
    """[E_w; spelling(c_1 … c_n)]: an embedding of words that also reads their characters.

    A word that was never seen still has a spelling: endings, capitals, digits (Ling et al. 2015, Ma & Hovy 2016).

    A word comes as its symbol and then its characters, ``(…, 1 + letters)``, PAD past the end of the spelling; it
    leaves as ``(…, width)``. Each spelling is read once, however often it occurs in the batch.
    """

    def __init__(
        self,
        symbols: int,
        width: int,
        spelling: RecurrentSpelling | ConvolvedSpelling,
        *,
        scaled: bool = True,
    ):
        super().__init__(symbols, width, scaled=scaled)
        self.spelling = spelling
        self.width = width + spelling.width

    def forward(self, symbols: Tensor) -> Tensor:
        letters = symbols[..., 1:]
        return self._joined(super().forward(symbols[..., 0]), read_spellings(self.spelling, letters))

    def _joined(self, word: Tensor, spelled: Tensor) -> Tensor:
        return torch.cat((word, spelled), -1)


class CorrectedWords(SpelledWords):
    """E_w + W spelling(c_1 … c_n) with W = 0 at the start, as wide as E_w.

    A language model's layers above it then begin with what they have learned to read, and the spelling comes in as far
    as it helps.
    """

    def __init__(
        self,
        symbols: int,
        width: int,
        spelling: RecurrentSpelling | ConvolvedSpelling,
        *,
        scaled: bool = True,
    ):
        super().__init__(symbols, width, spelling, scaled=scaled)
        self.width = width
        self.correction = nn.Linear(spelling.width, width, bias=False)
        nn.init.zeros_(self.correction.weight)

    def _joined(self, word: Tensor, spelled: Tensor) -> Tensor:
        corrected: Tensor = word + self.correction(spelled)
        return corrected


class Tagger(nn.Module):
    """Without ``crf`` each word is tagged by itself, p(y | x) = ∏_t softmax(e_t)[y_t] with e_t = W h_t + b; with it
    p(y | x) = exp s(e, y) / Z over whole sentences (see `CRF`).

    ``rules`` say which tags may begin ``(K,)``, follow each other ``(K, K)`` and end ``(K,)`` (True where they may);
    `decode` keeps to them, learning does not need to know them. Lengths ``(batch,)`` count the real words.
    """

    start_rule: Tensor
    move_rule: Tensor
    end_rule: Tensor

    def __init__(
        self,
        encoder: nn.Module,
        output: Output,
        *,
        rules: tuple[Tensor, Tensor, Tensor],
        crf: CRF | None = None,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.encoder, self.output, self.crf = encoder, output, crf
        self.dropout = nn.Dropout(dropout)
        for name, rule in zip(("start_rule", "move_rule", "end_rule"), rules, strict=True):
            forbidden = torch.zeros(rule.shape, device=rule.device).masked_fill(~rule, -torch.inf)
            self.register_buffer(name, forbidden, persistent=False)

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        """Emissions e ``(batch, time, tags)`` of words ``(batch, time, …)``, as the encoder's embedding takes them."""
        memory = self.encoder(source, lengths)
        scores: Tensor = self.output(self.dropout(memory.annotations))
        return scores.float()

    def loss(self, emissions: Tensor, tags: Tensor, lengths: Tensor) -> Tensor:
        """−log p(y | x) of tags ``(batch, time)``, summed over the batch."""
        if self.crf is not None:
            likelihood: Tensor = self.crf(emissions, tags, lengths)
            return -likelihood.sum()
        real = torch.arange(tags.shape[1], device=tags.device) < lengths[:, None]
        return F.cross_entropy(emissions[real], tags[real], reduction="sum")

    def decode(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """The best tags ``(batch, time)`` that the rules allow, 0 past each row's end."""
        start, moves, end = self.start_rule, self.move_rule, self.end_rule
        if self.crf is not None:
            start, moves, end = start + self.crf.start, moves + self.crf.transitions, end + self.crf.end
        return viterbi(emissions.detach(), moves.detach(), start.detach(), end.detach(), lengths)[0]

    def marginals(self, emissions: Tensor, lengths: Tensor) -> Tensor:
        """p(y_t = j | x) ``(batch, time, tags)``, whatever the rules say."""
        return emissions.softmax(-1) if self.crf is None else self.crf.marginals(emissions, lengths)
