"""The bilinear score (Luong et al. 2015, eq. 8, "general")."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn.attention.base import Attention


class Bilinear(Attention):
    """score(s, h) = sᵀ W h, with W ``(query_width, key_width)``; `prepare` gives W h."""

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
