"""Several models as one: each function takes (step, state) pairs and gives one that any search accepts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.search._hypothesis import Step

Average = Literal["probabilities", "log-probabilities"]


def ensemble(
    members: Sequence[tuple[Step, Any]],
    weights: Sequence[float] | None = None,
    *,
    average: Average = "probabilities",
) -> tuple[Step, tuple[Any, ...]]:
    """The mean of several models' next-symbol distributions, as a (step, state) of its own.

        "probabilities"      p(i) = Σₖ wₖ pₖ(i)              any member can make a symbol possible
        "log-probabilities"  p(i) ∝ exp Σₖ wₖ log pₖ(i)      any member can veto it

    The weights are scaled to Σₖ wₖ = 1 (None: all the same). The members share one vocabulary.

    Args:
        members: a (step, state) of each model.
        weights: one for each.
        average: ``"probabilities"`` or ``"log-probabilities"``.

    Raises an `AnaphoraError` where weights are missing or not positive.

    >>> one = lambda p: (lambda symbols, state: (torch.tensor([p]).log(), state), None)
    >>> step, state = an.search.ensemble([one([0.9, 0.1]), one([0.1, 0.9])], weights=[3, 1])
    >>> step(torch.tensor([0]), state)[0].exp()
    tensor([[0.7000, 0.3000]])
    """
    given = [1.0] * len(members) if weights is None else [float(weight) for weight in weights]
    if not members or len(given) != len(members):
        raise AnaphoraError(
            f"ensemble needs models and one weight for each, but got {len(members)} and {len(given)}."
        )
    if not all(0 < weight < math.inf for weight in given):
        raise AnaphoraError(f"The weights of an ensemble must be above 0, but are {given}.")
    if average not in get_args(Average):
        raise AnaphoraError(f"average must be one of {', '.join(get_args(Average))}, but is {average!r}.")
    shares = [weight / sum(given) for weight in given]

    def step(symbols: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        stacked, state = _all_steps([member for member, _ in members], symbols, state)
        w = torch.tensor(shares, dtype=stacked.dtype, device=stacked.device)[:, None, None]
        if average == "probabilities":
            return torch.logsumexp(stacked + w.log(), dim=0), state
        return _log_softmax((w * stacked).sum(dim=0)), state

    return step, tuple(state for _, state in members)


def fuse(model: tuple[Step, Any], lm: tuple[Step, Any], weight: float) -> tuple[Step, tuple[Any, ...]]:
    """Shallow fusion (Gülçehre et al. 2015): the model's next symbols, with a language model's say.

        log p(i) = log p_model(i) + weight · log p_lm(i)

    It is not scaled to sum to 1: a symbol that both find improbable costs more, so the sums of whole
    outputs stay log p_model(y) + weight · log p_lm(y). `sample` scales it where it draws.

    Args:
        model: its (step, state).
        lm: the language model's, over the same symbols.
        weight: 0 or more; anything else is an `AnaphoraError`.

    >>> one = lambda p: (lambda symbols, state: (torch.tensor([p]).log(), state), None)
    >>> step, state = an.search.fuse(one([0.5, 0.5]), one([0.2, 0.8]), weight=1.0)
    >>> step(torch.tensor([0]), state)[0].exp()
    tensor([[0.1000, 0.4000]])
    """
    if not 0 <= weight < math.inf:
        raise AnaphoraError(f"The weight of the language model must be a number from 0 on, but is {weight}.")

    def step(symbols: Tensor, state: tuple[Any, ...]) -> tuple[Tensor, tuple[Any, ...]]:
        (of_model, of_lm), state = _all_steps([model[0], lm[0]], symbols, state)
        return (of_model + weight * of_lm if weight else of_model), state  # 0 · −∞ is not a number

    return step, (model[1], lm[1])


def _all_steps(
    steps: Sequence[Step], symbols: Tensor, states: tuple[Any, ...]
) -> tuple[Tensor, tuple[Any, ...]]:
    """One step of each: log-probabilities (models, rows, V), in single precision at least, and their states."""
    done = [step(symbols, state) for step, state in zip(steps, states, strict=True)]
    shapes = [tuple(log_probs.shape) for log_probs, _ in done]
    if len(set(shapes)) > 1:
        raise AnaphoraError(
            f"Models searched together must share one vocabulary, but their steps returned {shapes}."
        )
    first = done[0][0]
    precise = torch.float64 if any(p.dtype == torch.float64 for p, _ in done) else torch.float32
    stacked = torch.stack([p.to(first.device, precise) for p, _ in done])
    return stacked, tuple(state for _, state in done)


def _log_softmax(scores: Tensor) -> Tensor:
    """log_softmax that leaves rows of −∞ as they are: there nothing is possible, rather than not a number."""
    total = scores.logsumexp(dim=-1, keepdim=True)
    return scores - total.where(total > -math.inf, torch.zeros_like(total))
