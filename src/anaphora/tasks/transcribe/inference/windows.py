"""What windows of a long recording say of their middle, put together; see `anaphora.data.audio.preprocessing`."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from anaphora.data.audio.preprocessing import Window, cut

__all__ = ["Window", "cut", "join_log_probs"]


def join_log_probs(windows: Sequence[Window], parts: Sequence[Tensor], factor: int) -> Tensor:
    """log p ``(frames, symbols)`` of the whole from those of its windows."""
    kept = []
    for w, part in zip(windows, parts, strict=True):
        begin, end = (w.first - w.start) // factor, -(-(w.last - w.start) // factor)
        kept.append(part[begin:end])
    return torch.cat(kept)
