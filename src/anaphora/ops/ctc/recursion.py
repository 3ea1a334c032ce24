"""The CTC recursion in torch operations, a frame at a time in logarithms: differentiable any number of times, on any device.

The states of a target y₁ … y_U are ∅, y₁, ∅, …, y_U, ∅. Each stays or goes on to the next one, and from one symbol to a different one
the blank between them may be left out:

    α_t(s) = log p_t(s) + log(e^{α_{t−1}(s)} + e^{α_{t−1}(s−1)} + [s may be entered from s − 2] e^{α_{t−1}(s−2)})
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

NOTHING = -1e30
"""A logarithm of 0 whose gradient is a number."""


def log_likelihoods(
    scores: Tensor,
    labels: Tensor,
    frames: Tensor | None,
    sizes: Tensor | None,
    *,
    blank: int,
    normalized: bool,
) -> tuple[Tensor, Tensor]:
    """Return log p(y | x) ``(batch,)`` in float64, and which targets no path spells, ``(batch,)``, whose log p has no meaning.

    scores ``(batch, time, symbols)``: logits, or log p if ``normalized``; labels ``(batch, longest)``; frames and sizes ``(batch,)``, None
    where all rows are full.
    """
    rows, time, _ = scores.shape
    device = scores.device
    labels = labels.to(device)
    frames = torch.full((rows,), time, device=device) if frames is None else frames.to(device)
    sizes = torch.full((rows,), labels.shape[1], device=device) if sizes is None else sizes.to(device)
    real = torch.arange(time, device=device) < frames[:, None]
    log_p = torch.where(real[..., None], scores.double(), 0.0)  # padding may be NaN
    log_p = log_p if normalized else log_p.log_softmax(-1)
    symbols = F.pad(torch.stack((torch.full_like(labels, blank), labels), -1).flatten(1), (0, 1), value=blank)
    skips = (symbols != blank) & (symbols != F.pad(symbols, (2, 0), value=blank)[:, :-2])
    p = log_p.gather(2, symbols[:, None].expand(-1, time, -1)).clamp(min=NOTHING)
    alpha = F.pad(p.new_zeros(rows, 1), (0, symbols.shape[1] - 1), value=NOTHING)
    for t, now in enumerate(p.unbind(1)):
        before = F.pad(alpha, (2, 0), value=NOTHING)
        ways = (alpha, before[:, 1:-1], torch.where(skips, before[:, :-2], NOTHING))
        alpha = torch.where((t < frames)[:, None], torch.stack(ways).logsumexp(0) + now, alpha)
    last = alpha.gather(1, 2 * sizes[:, None])
    symbol = alpha.gather(1, (2 * sizes[:, None] - 1).clamp(min=0))
    total = torch.cat((last, torch.where(sizes[:, None] > 0, symbol, NOTHING)), 1).logsumexp(1)
    return total, total <= NOTHING / 2
