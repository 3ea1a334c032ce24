"""Attention by one score for each query and key: the dot product, bilinear, additive."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn.attention.base import Attention


class Dot(Attention):
    """score(s, h) = s · h: no parameters, and states and annotations must have the same width.

    >>> context, weights = an.nn.attention.Dot()(torch.zeros(1, 2, 4), torch.zeros(1, 5, 4))
    >>> context.shape, weights.shape
    (torch.Size([1, 2, 4]), torch.Size([1, 2, 5]))
    """

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        if query.shape[-1] != prepared.shape[-1]:
            raise ValueError(
                f"Dot attention compares vectors of one width, but queries have {query.shape[-1]} and keys "
                f"{prepared.shape[-1]}: use Bilinear or Additive"
            )
        return torch.matmul(query, prepared.transpose(-2, -1))


class Bilinear(Attention):
    """score(s, h) = sᵀ W h, with W ``(query_width, key_width)``; `prepare` gives W h
    (Luong et al. 2015, eq. 8, "general").

    >>> an.nn.attention.Bilinear(4, 6)(torch.zeros(1, 2, 4), torch.zeros(1, 5, 6))[1].shape
    torch.Size([1, 2, 5])
    """

    def __init__(self, query_width: int, key_width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(query_width, key_width))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.weight)

    def prepare(self, keys: Tensor) -> Tensor:
        return nn.functional.linear(keys, self.weight)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        return torch.matmul(query, prepared.transpose(-2, -1))


class Additive(Attention):
    """score(s, h) = vᵀ tanh(W s + U h + b), with ``hidden`` units; `prepare` gives U h
    (Bahdanau et al. 2015, appendix A.1.2).

    ``query_width`` and ``key_width`` are those of s and h.

    >>> an.nn.attention.Additive(4, 6, hidden=8)(torch.zeros(1, 2, 4), torch.zeros(1, 5, 6))[1].shape
    torch.Size([1, 2, 5])
    """

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
