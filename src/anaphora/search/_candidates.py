"""The best next symbols of each row, in an order that does not depend on the batch or the device."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from anaphora.errors import AnaphoraError

_ROUNDING = 1e-3  # a log-softmax in low precision may end up this far above 0


def best_symbols(
    log_probs: Tensor, count: int, *, rows: int, forbidden: int | None = None
) -> list[list[tuple[float, int]]]:
    """For each row of log_probs (rows, V) its `count` best `(log p, symbol)`, higher log p first, equal ones
    by lower symbol; symbols with log p = −∞ are left out.

    The numbers leave the device in one transfer and are summed in double precision on the host, so that
    neither the device nor the other rows can change an order.
    """
    check_shape(log_probs, rows)
    if forbidden is not None:
        log_probs = log_probs.index_fill(1, torch.tensor([forbidden], device=log_probs.device), -math.inf)
    # One more than asked for: when it equals the last one wanted, topk may have kept either of the two.
    shown = min(count + 1, log_probs.shape[1])
    values, symbols = log_probs.topk(shown, dim=1)
    exact = torch.float64 if log_probs.dtype == torch.float64 else torch.float32  # symbols < 2²⁴ fit both
    table = torch.cat((values.to(exact), symbols.to(exact)), dim=1).tolist()
    best = []
    for row, numbers in enumerate(table):
        check_greatest(numbers[0])  # topk puts NaN first, so it tells about the whole row
        pairs = [(p, int(symbol)) for p, symbol in zip(numbers[:shown], numbers[shown:], strict=True)]
        edge = pairs[-1][0]
        if shown > count and pairs[count - 1][0] == edge > -math.inf:
            equal = (log_probs[row] == values[row, -1]).nonzero().flatten()[:count].tolist()
            pairs = [pair for pair in pairs if pair[0] > edge] + [(edge, symbol) for symbol in equal]
        pairs.sort(key=lambda pair: (-pair[0], pair[1]))
        best.append([(min(p, 0.0), symbol) for p, symbol in pairs[:count] if p > -math.inf])
    return best


def check_shape(log_probs: Tensor, rows: int) -> None:
    if log_probs.ndim != 2 or log_probs.shape[0] != rows:
        raise AnaphoraError(
            f"step must return log-probabilities of shape ({rows}, symbols) for {rows} rows, "
            f"but returned {tuple(log_probs.shape)}."
        )


def check_greatest(greatest: float) -> None:
    """The greatest number of a row (NaN if there is one) must be a log-probability."""
    if math.isnan(greatest):
        raise AnaphoraError(
            "step returned NaN as a log-probability; look for overflow or damaged weights in the model."
        )
    if greatest > _ROUNDING:
        raise AnaphoraError(
            f"step returned {greatest:.4g} as a log-probability, which must not be above 0; "
            "apply log_softmax to the logits first."
        )
