"""How a classifier that chooses where to look learns to choose: by the mistakes that followed."""

from __future__ import annotations

from torch import Tensor

from anaphora.nn.attention import score_function
from anaphora.nn.windows import Looks


def mistakes(kind: str, scores: Tensor, truth: Tensor) -> Tensor:
    """How wrong each answer is, ``(batch,)`` from 0 to 1: one class, wrong or not; of several classes the share that is
    wrong; of a number the squared error (in units of its spread), at most 1."""
    if kind == "class":
        return (scores.argmax(-1) != truth).float()
    if kind == "classes":
        return ((scores > 0) != (truth > 0.5)).float().mean(-1)
    return (scores[:, 0] - truth).float().square().clamp(max=1.0)


def choice_loss(looks: Looks, cost: Tensor) -> Tensor:
    """A loss of value 0 whose gradient teaches what was drawn and what it was expected to cost.

        Σ_t (c − b_t) log p(l_t) + (b_t − c)²        over examples with cost c and looks l_t with baseline b_t

    by the score function; the baseline follows the cost by least squares.
    """
    assert looks.log_prob is not None
    assert looks.baseline is not None
    drawn = looks.log_prob[:, 1:].float()  # the first look is at the middle
    expected = looks.baseline[:, 1:].float()
    cost = cost[:, None].expand_as(drawn)
    total = (score_function(cost, drawn, expected) + (expected - cost).square()).sum()
    return total - total.detach()
