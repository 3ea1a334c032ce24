"""An output layer of several softmaxes, whose log probabilities are of a higher rank than one softmax can have."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.native.following import following, observed
from anaphora.nn.embedding import Embedding, Output, aligned_logits
from anaphora.ops.softmax_loss import row_losses


class MixtureOutput(nn.Module):
    """log p of every symbol by a mixture of softmaxes (Yang et al. 2018): ``(…, width)`` -> ``(…, symbols)``.

        p(i | h) = Σ_k π_k softmax(W g_k + b)_i,    π = softmax(U h + u),    g_k = tanh(V_k h + v_k),    k = 1 … K

    With one softmax the matrix of log p over contexts and symbols has at most the rank of g; K of them have no such limit. W and b
    are shared by all K; ``tied`` to an embedding, W is that embedding's E, whose width g then has.

    log p are logits, too: a softmax of them leaves them as they are, so that whatever takes logits may take these.

    >>> an.nn.MixtureOutput(4, 10, mixtures=3)(torch.zeros(2, 5, 4)).shape
    torch.Size([2, 5, 10])
    """

    def __init__(self, width: int, symbols: int, *, mixtures: int, tied: Embedding | None = None):
        super().__init__()
        if mixtures < 1:
            raise ValueError(f"MixtureOutput needs one softmax at least, got mixtures = {mixtures}")
        inner = width if tied is None else tied.width
        self.width, self.symbols, self.mixtures = width, symbols, mixtures
        self.shares = nn.Linear(width, mixtures)
        self.states = nn.Linear(width, mixtures * inner)
        self.words = Output(inner, symbols, tied=tied)

    def forward(self, x: Tensor) -> Tensor:
        log_shares, g = self._parts(x)
        each = _whole(self.words(g)).log_softmax(-1)  # (…, K, symbols)
        return torch.logsumexp(log_shares.unsqueeze(-1) + each, -2)

    def log_prob(self, x: Tensor, targets: Tensor, *, ignored: int = -100) -> Tensor:
        """log p ``(…)`` of ``targets`` ``(…)`` for ``x`` ``(…, width)``, in float32 or float64; 0 for targets that are ``ignored``.

        log p(y) = log Σ_k π_k p_k(y) needs of each softmax the one number p_k(y): no log p of all symbols are made.
        """
        if following(x) is None and observed(self) is not None:  # a hook sees all that the layer gives
            logits = self(x).flatten(0, -2)
            return -row_losses(logits, targets.flatten(), ignored=ignored).view_as(targets)
        log_shares, g = self._parts(x)
        logits = aligned_logits(self.words, g).flatten(0, -2)  # (… · K, symbols or more)
        each = targets.unsqueeze(-1).expand_as(log_shares).flatten()
        losses = row_losses(logits, each, ignored=ignored, symbols=self.symbols)
        found = torch.logsumexp(log_shares - losses.view_as(log_shares), -1)
        return found.masked_fill(targets == ignored, 0.0)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """log π ``(…, K)`` and g ``(…, K, inner)``."""
        shares: Tensor = self.shares(x)
        return _whole(shares).log_softmax(-1), self.states(x).tanh().unflatten(-1, (self.mixtures, -1))


def _whole(x: Tensor) -> Tensor:
    """In float32, or in float64 as it is."""
    return x if x.dtype == torch.float64 else x.float()
