"""The dot product as score."""

from __future__ import annotations

import torch
from torch import Tensor

from anaphora.nn.attention.base import Attention


class Dot(Attention):
    """score(s, h) = s · h: no parameters, and states and annotations must have the same width."""

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        if query.shape[-1] != prepared.shape[-1]:
            raise ValueError(
                f"Dot attention compares vectors of one width, but queries have {query.shape[-1]} and keys "
                f"{prepared.shape[-1]}: use Bilinear or Additive"
            )
        return torch.matmul(query, prepared.transpose(-2, -1))
