"""Hard attention: one key is looked at instead of a mixture (Xu et al. 2015, section 4.1)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.nn import inside
from anaphora.nn.attention.base import Attention, masked_softmax
from anaphora.nn.attention.masks import by_query


@dataclass(frozen=True)
class Draw:
    """context ``(batch, queries, Dv)``; weights ``(batch, queries, keys)``, a one in each row; log_prob
    ``(batch, queries)`` of the keys that were drawn.
    """

    context: Tensor
    weights: Tensor
    log_prob: Tensor


class Hard(Attention):
    """Draws key j with probability α_j = softmax_j score(s, h_j); in eval mode takes the likeliest.

    Drawing has no gradient, so one must be made up:

    - straight through (the default): forwards the one-hot draw z, backwards as if it were α;
    - ``straight_through=False``: α gets a gradient only from log α_z, by the score-function estimator
      (REINFORCE): `draw` gives log α_z, and `score_function` makes a loss of it. Unbiased, but noisy.

    Notes ``weights`` (the draw), ``probabilities`` (α) and ``log_prob``.
    """

    def __init__(self, attention: Attention, *, straight_through: bool = True):
        super().__init__()
        self.attention = attention
        self.straight_through = straight_through

    def prepare(self, keys: Tensor) -> Tensor:
        return self.attention.prepare(keys)

    def score(self, query: Tensor, prepared: Tensor) -> Tensor:
        return self.attention.score(query, prepared)

    def forward(
        self,
        query: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        prepared: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """The context and the weights of a `draw`; arguments as for every attention."""
        drawn = self.draw(query, keys, mask, values, prepared=prepared)
        return drawn.context, drawn.weights

    def draw(
        self,
        query: Tensor,
        keys: Tensor,
        mask: Tensor | None = None,
        values: Tensor | None = None,
        *,
        prepared: Tensor | None = None,
    ) -> Draw:
        """Draw one key for each query. A query that may see nothing draws nothing: zeros, log_prob 0."""
        mask = None if mask is None else by_query(mask)
        scores = self.score(query, self.prepare(keys) if prepared is None else prepared)
        probabilities = masked_softmax(scores, mask)
        weights = one_hot_draw(probabilities.detach(), sample=self.training)
        log_prob = (probabilities * weights).sum(-1)
        log_prob = torch.where(
            log_prob > 0, log_prob, 1.0
        ).log()  # the mask of an empty row, before the logarithm
        if self.straight_through:
            weights = weights + (probabilities - probabilities.detach())  # adds an exact zero
        for name, value in (("probabilities", probabilities), ("weights", weights), ("log_prob", log_prob)):
            inside.note(self, name, value)
        return Draw(torch.matmul(weights, keys if values is None else values), weights, log_prob)


def one_hot_draw(probabilities: Tensor, *, sample: bool) -> Tensor:
    """A one in each row of ``(…, keys)``: drawn, or at the likeliest; none in a row of zeros."""
    chances = probabilities
    if sample:  # argmax p_j / e_j with e_j ~ Exp(1) is a draw from p, without a copy to the host
        chances = probabilities / torch.empty_like(probabilities).exponential_()
    best = torch.zeros_like(probabilities).scatter_(-1, chances.argmax(-1, keepdim=True), 1.0)
    return best * (probabilities > 0)


def score_function(cost: Tensor, log_prob: Tensor, baseline: Tensor | float = 0.0) -> Tensor:
    """A loss whose gradient is, in expectation over the draws, that of the expected cost.

        ∇ E[c] = E[∇c + (c − b) ∇ log p(z)]

    cost and log_prob of the same draws, same shape; the baseline b, which may not depend on the draw, only
    lowers the noise. The value of the result is that of the cost.
    """
    credit = (cost - baseline).detach() * log_prob
    return cost + (credit - credit.detach())
