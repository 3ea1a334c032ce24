"""What all attention with one score per query and key shares."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from anaphora.nn import inside
from anaphora.nn.attention.masks import by_query
from anaphora.ops.attention import by_torch, fits, softmax_among


def masked_softmax(scores: Tensor, mask: Tensor | None) -> Tensor:
    """Softmax over the last dimension among the places where ``mask`` is True; exactly 0 elsewhere.

    ``scores`` ``(…, keys)``. A row without any such place is all zeros, with zero gradient, rather than NaN.

    >>> an.nn.attention.masked_softmax(torch.zeros(1, 3), torch.tensor([[True, True, False]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return torch.softmax(scores, -1) if mask is None else by_torch(scores, mask)


class Attention(nn.Module):
    """Soft attention with a score to be written in `score`, and in `prepare` what depends on keys alone.

        α_ij = softmax_j score(s_i, h_j),    a_i = Σ_j α_ij v_j

    Notes ``scores`` and ``weights``, both ``(batch, queries, keys)``.

    >>> class Distance(an.nn.attention.Attention):                      # a score of your own
    ...     def score(self, query, prepared):
    ...         return -torch.cdist(query, prepared)
    >>> context, weights = Distance()(torch.zeros(2, 3, 4), torch.zeros(2, 5, 4))
    >>> context.shape, weights.shape
    (torch.Size([2, 3, 4]), torch.Size([2, 3, 5]))
    """

    def prepare(self, keys: Tensor) -> Tensor:
        """The part of the score that needs no query, ``(batch, keys, ·)``: a decoder computes it once."""
        return keys

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        """``(batch, queries, Dq)``, what `prepare` gave -> scores ``(batch, queries, keys)``."""
        raise TypeError(f"{type(self).__name__} does not define score(query, prepared)")

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        prepared: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Attend from each query to the keys.

        query ``(batch, queries, Dq)``; keys ``(batch, keys, Dk)``; mask ``(batch, keys)`` or
        ``(batch, queries, keys)``, True where a key is real; values ``(batch, keys, Dv)``, by default the
        keys; prepared: what `prepare` gave for these keys, if it is known already.
        Returns context ``(batch, queries, Dv)`` and weights ``(batch, queries, keys)``.
        """
        scores = self.score(query, self.prepare(keys) if prepared is None else prepared)
        mask = None if mask is None else by_query(mask)
        if mask is not None and scores.requires_grad and not inside.recording() and fits(scores, mask):
            weights = softmax_among(scores, mask)  # in the type that the product below takes
        else:
            weights = masked_softmax(scores, mask)
        inside.note(self, "scores", scores)
        if mask is not None and inside.recording():
            inside.note(self, "seen", mask.expand(scores.shape))
        weights = inside.changed(self, "weights", weights)
        inside.note(self, "weights", weights)
        return torch.matmul(weights, keys if values is None else values), weights
