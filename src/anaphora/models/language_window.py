"""The neural probabilistic language model (Bengio et al. 2003): a window of words through one hidden layer."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.symbols import PAD
from anaphora.models.language import Reading, dropped
from anaphora.nn import inside
from anaphora.nn.embedding import Embedding
from anaphora.nn.recurrent_step import dropout_mask


class WindowBody(nn.Module):
    """y_t = tanh(H [e_{t−n+1}; …; e_t] + d), and with ``direct`` also the vectors themselves: [tanh(…); e; …; e].

    The window holds the last ``size`` symbols, the one just read included; what is carried are the ``size`` − 1
    before it, with PAD before the first. Notes ``hidden`` ``(rows, time, hidden)``.
    """

    context = None

    def __init__(
        self,
        embedding: Embedding,
        size: int,
        hidden: int,
        *,
        direct: bool = False,
        word_dropout: float = 0.0,
        dropout: float = 0.0,
    ):
        super().__init__()
        self.embedding = embedding
        self.size = max(1, size)
        self.direct = direct
        self.word_dropout, self.dropout = word_dropout, dropout
        seen = self.size * embedding.width
        self.hidden = nn.Linear(seen, hidden)
        self.width = hidden + (seen if direct else 0)

    def read(self, symbols: Tensor, carried: Tensor | None = None) -> Reading:
        if carried is None:
            carried = self.start(symbols.shape[0])
        together = torch.cat((carried, symbols), 1)
        x = self.embedding(together)
        if self.training and self.word_dropout:
            kept = dropout_mask(x, (self.embedding.symbols, 1), self.word_dropout)
            x = x * F.embedding(together, kept)
        x = dropped(x, self.dropout, False, self.training)
        windows = x.unfold(1, self.size, 1).transpose(2, 3).flatten(2)  # (rows, time, size · width)
        y = torch.tanh(self.hidden(windows))
        inside.note(self, "hidden", y)
        if self.direct:
            y = torch.cat((y, windows), -1)
        return Reading(y, together[:, together.shape[1] - self.size + 1 :])

    def start(self, rows: int) -> Tensor:
        """``(rows, size − 1)``"""
        return torch.full((rows, self.size - 1), PAD, device=self.embedding.weight.device)

    def step(self, symbols: Tensor, carried: Tensor) -> tuple[Tensor, Tensor]:
        reading = self.read(symbols[:, None], carried)
        return reading.states[:, 0], reading.carried
