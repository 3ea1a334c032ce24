"""A tag for every word: a reader of the sentence, a score for each tag, and perhaps a chain over them."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.kernels.crf.paths import viterbi
from anaphora.models.encoders import RecurrentEncoder, TransformerEncoder
from anaphora.nn import CRF
from anaphora.nn.embedding import Output


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
        encoder: RecurrentEncoder | TransformerEncoder,
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
            forbidden = torch.zeros(rule.shape).masked_fill(~rule, -torch.inf)
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
