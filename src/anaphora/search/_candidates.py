"""The best next symbols of each row, in an order that does not depend on the batch or the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError
from anaphora.kernels.packed import native
from anaphora.search._numbers import NotANumberError, check_greatest

__all__ = ["NotANumberError", "best_symbols", "check_greatest", "check_shape"]


def best_symbols(
    scores: Tensor, count: int, *, rows: int, forbidden: int | None = None, logits: bool = False
) -> list[list[tuple[float, int]]]:
    """For each row of scores (rows, V) its `count` best `(log p, symbol)`, higher score first, equal ones
    by lower symbol; symbols with log p = −∞ are left out.

    The scores are log p, or `logits`: then log p = score − log Σ eˢᶜᵒʳᵉ over all symbols, and only the numbers
    that are returned are ever computed. They leave the device in one transfer and are summed in double precision
    on the host, so that neither the device nor the other rows can change an order.
    """
    check_shape(scores, rows)
    if logits and native.library.ready(scores):
        return _listed(*native.best_symbols(scores, count, forbidden))
    total = scores.float().logsumexp(1, keepdim=True) if logits else None
    if forbidden is not None:
        scores = scores.index_fill(1, torch.tensor([forbidden], device=scores.device), -math.inf)
    # One more than requested: when it equals the last one wanted, topk may have kept either of the two.
    shown = min(count + 1, scores.shape[1])
    values, symbols = scores.topk(shown, dim=1)
    log_probs = values if total is None else values.float() - total
    exact = torch.float64 if scores.dtype == torch.float64 else torch.float32  # symbols < 2²⁴ fit both
    table = torch.cat((log_probs.to(exact), values.to(exact), symbols.to(exact)), dim=1).tolist()
    best = []
    for row, numbers in enumerate(table):
        check_greatest(numbers[0])  # topk puts NaN first, so it tells about the whole row
        log_p, ranked, places = numbers[:shown], numbers[shown : 2 * shown], map(int, numbers[2 * shown :])
        found = list(zip(ranked, log_p, places, strict=True))
        edge = ranked[-1]
        if shown > count and ranked[count - 1] == edge > -math.inf:
            equal = (scores[row] == values[row, -1]).nonzero().flatten()[:count].tolist()
            found = [f for f in found if f[0] > edge] + [(edge, log_p[-1], symbol) for symbol in equal]
        found.sort(key=lambda f: (-f[0], f[2]))
        best.append([(min(p, 0.0), symbol) for _, p, symbol in found[:count] if p > -math.inf])
    return best


def all_log_probs(scores: Tensor) -> Tensor:
    """log p ``(rows, V)`` of logits, bit for bit what `best_symbols` gives of the best: a rule changes which symbols are looked at, and no
    number."""
    if native.library.ready(scores):
        return native.log_probs(scores)
    return scores.float() - scores.float().logsumexp(1, keepdim=True)


def _listed(log_probs: Tensor, symbols: Tensor) -> list[list[tuple[float, int]]]:
    best = []
    for log_p, places in zip(log_probs.tolist(), symbols.tolist(), strict=True):
        check_greatest(log_p[0])
        best.append([(min(p, 0.0), symbol) for p, symbol in zip(log_p, places, strict=True) if p > -math.inf])
    return best


def check_shape(log_probs: Tensor, rows: int) -> None:
    if log_probs.ndim != 2 or log_probs.shape[0] != rows:
        raise AnaphoraError(
            f"step must return log-probabilities of shape ({rows}, symbols) for {rows} rows, "
            f"but returned {tuple(log_probs.shape)}."
        )
