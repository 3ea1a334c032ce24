"""The forward recursion of `anaphora.ops.transducer.lattice` in torch operations: differentiable any number of times, on any device.

The nodes of a diagonal t + u follow from those of the one before. On it they are counted by u.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

NOTHING = -1e30
"""A logarithm of 0 whose gradient is a number."""


def log_likelihoods(
    logits: Tensor, labels: Tensor, frames: Tensor | None, sizes: Tensor | None, *, blank: int
) -> tuple[Tensor, Tensor]:
    """Return log p(y | x) ``(batch,)`` in float64, and which rows have no alignment, ``(batch,)``, whose log p has no meaning.

    logits ``(batch, time, longest + 1, symbols)``; labels ``(batch, longest)``; frames and sizes ``(batch,)``, None where all rows are full.
    """
    rows, time, places, _ = logits.shape
    device = logits.device
    frames = torch.full((rows,), time, device=device) if frames is None else frames.to(device)
    sizes = torch.full((rows,), places - 1, device=device) if sizes is None else sizes.to(device)
    t, u = torch.arange(time, device=device)[:, None], torch.arange(places, device=device)
    real = (t < frames[:, None, None]) & (u <= sizes[:, None, None])
    log_p = torch.where(real[..., None], logits.double(), 0.0).log_softmax(-1)  # padding may be NaN
    following = F.pad(labels.to(device), (0, 1), value=blank)[:, None, :, None].expand(-1, time, -1, 1)
    on_blank = torch.where(real, log_p[..., blank].clamp(min=NOTHING), NOTHING)
    on_label = torch.where(
        real & (u < sizes[:, None, None]), log_p.gather(3, following)[..., 0].clamp(min=NOTHING), NOTHING
    )
    if not time:
        return on_blank.sum((1, 2)), torch.ones(rows, dtype=torch.bool, device=device)
    alpha = F.pad(on_blank.new_zeros(rows, 1), (0, places - 1), value=NOTHING)
    found = [alpha]
    for by_blank, by_label in zip(_skewed(on_blank), _skewed(on_label), strict=True):
        written = F.pad(alpha + by_label, (1, 0), value=NOTHING)[:, :-1]
        alpha = torch.stack((alpha + by_blank, written)).logsumexp(0)
        found.append(alpha)
    # The last blank leads from (T − 1, U) to (T, U), on diagonal T + U.
    ends = torch.stack(found, 1)[torch.arange(rows, device=device), frames + sizes, sizes]
    return ends, (ends <= NOTHING / 2) | (frames == 0)


def _skewed(x: Tensor) -> tuple[Tensor, ...]:
    """Return x ``(batch, time, places)`` by diagonal, ``(batch, places)`` each; what is no node is `NOTHING`."""
    time, places = x.shape[1:]
    u = torch.arange(places, device=x.device)
    t = torch.arange(time + places - 1, device=x.device)[:, None] - u
    nodes = x[:, t.clamp(0, time - 1), u]
    return torch.where((t >= 0) & (t < time), nodes, NOTHING).unbind(1)
