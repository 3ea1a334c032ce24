"""The additive score (Bahdanau et al. 2015, appendix A.1.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn.attention.base import Attention


class Additive(Attention):
    """score(s, h) = vᵀ tanh(W s + U h + b), with ``hidden`` units; `prepare` gives U h."""

    def __init__(self, query_width: int, key_width: int, hidden: int):
        super().__init__()
        self.W = nn.Linear(query_width, hidden)
        self.U = nn.Linear(key_width, hidden, bias=False)
        self.v = nn.Linear(hidden, 1, bias=False)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for part in (self.W, self.U, self.v):
            nn.init.xavier_uniform_(part.weight)
        nn.init.zeros_(self.W.bias)

    def prepare(self, keys: Tensor) -> Tensor:
        out: Tensor = self.U(keys)
        return out

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        hidden = torch.tanh(
            self.W(query).unsqueeze(-2) + prepared.unsqueeze(-3)
        )  # (batch, queries, keys, hidden)
        return self.v(hidden).squeeze(-1)  # type: ignore[no-any-return]
