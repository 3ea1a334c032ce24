"""Hard attention: one key is looked at instead of a mixture (Xu et al. 2015, section 4.1)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor

from anaphora.nn import inside
from anaphora.nn.attention.masks import by_query
from anaphora.nn.attention.scores import Attention, masked_softmax


@dataclass(frozen=True)
class Draw:
    """context ``(batch, queries, Dv)``; weights ``(batch, queries, keys)``, a one in each row; log_prob
    ``(batch, queries)`` of the keys that were drawn.

    >>> hard = an.nn.attention.Hard(an.nn.attention.Dot()).eval()
    >>> draw = hard.draw(torch.ones(1, 1, 2), torch.tensor([[[0.0, 0.0], [9.0, 9.0]]]))
    >>> draw.weights.tolist(), draw.log_prob.shape
    ([[[0.0, 1.0]]], torch.Size([1, 1]))
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

    Args:
        attention: what scores the keys.
        straight_through: which gradient, see above.

    >>> hard = an.nn.attention.Hard(an.nn.attention.Dot()).eval()
    >>> context, weights = hard(torch.ones(1, 1, 2), torch.tensor([[[0.0, 0.0], [9.0, 9.0]]]))
    >>> context.tolist()
    [[[9.0, 9.0]]]
    """

    _mixes = False
    _followed: list[Tensor] | None = None

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
        if self._mixes:
            return self.attention(query, keys, mask, values, prepared=prepared)  # type: ignore[no-any-return]
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
        if self._followed is not None:
            self._followed.append(log_prob)
        for name, value in (("probabilities", probabilities), ("weights", weights), ("log_prob", log_prob)):
            inside.note(self, name, value)
        return Draw(torch.matmul(weights, keys if values is None else values), weights, log_prob)

    @contextmanager
    def mixing(self) -> Iterator[None]:
        """In the block nothing is drawn: the context is the expected one, Σ_j α_j v_j."""
        self._mixes = True
        try:
            yield
        finally:
            self._mixes = False

    @contextmanager
    def following(self) -> Iterator[list[Tensor]]:
        """The ``log_prob`` ``(batch, queries)`` of every draw in the block, with its gradient, in order."""
        drawn: list[Tensor] = []
        self._followed = drawn
        try:
            yield drawn
        finally:
            self._followed = None


def one_hot_draw(probabilities: Tensor, *, sample: bool) -> Tensor:
    """Zeros, and a one in each row, ``(…, keys)``: at a key that was drawn, or at the likeliest; none in a row of zeros.

    Args:
        probabilities: p ``(…, keys)``, each row sums to 1 or is all zeros.
        sample: draw key j with probability p_j; False takes argmax_j p_j.

    >>> an.nn.attention.one_hot_draw(torch.tensor([0.2, 0.7, 0.1]), sample=False)
    tensor([0., 1., 0.])
    """
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

    >>> log_prob = torch.tensor([-0.7], requires_grad=True)
    >>> an.nn.attention.score_function(torch.tensor([2.0]), log_prob, baseline=0.5).sum().backward()
    >>> log_prob.grad                                                   # c − b
    tensor([1.5000])
    """
    credit = (cost - baseline).detach() * log_prob
    return cost + (credit - credit.detach())


def score_function_in_time(cost: Tensor, log_prob: Tensor, baseline: Tensor) -> Tensor:
    """The sum of costs ``(batch, T)`` of draws that follow one another, as a loss with the gradient of its expectation:

        ∇ E[Σ_t c_t] = E[Σ_t ∇c_t + Σ_t (Σ_{u≥t} (c_u − b_u)) ∇ log p(z_t)]

    A draw answers for the costs of its own step and of later ones. log_prob and baseline ``(batch, T)``; b may depend on
    no draw. What is padding must cost 0 and have a baseline of 0.

    >>> log_prob = torch.zeros(1, 3, requires_grad=True)
    >>> an.nn.attention.score_function_in_time(torch.ones(1, 3), log_prob, torch.zeros(1, 3)).backward()
    >>> log_prob.grad                                                   # the costs that are still to come
    tensor([[3., 2., 1.]])
    """
    beyond = (cost - baseline).detach()
    to_go = beyond.flip(1).cumsum(1).flip(1)
    credit = (to_go * log_prob).sum()
    return cost.sum() + (credit - credit.detach())
