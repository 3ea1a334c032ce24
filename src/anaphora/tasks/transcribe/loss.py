"""The CTC loss of a transcriber, plain or with label priors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from anaphora.models.ctc import FrameScores, log_probabilities
from anaphora.search import ctc_loss


def frame_loss(
    frames: FrameScores, scores: Tensor, lengths: Tensor, targets: Sequence[Sequence[int]]
) -> Tensor:
    """Summed CTC loss of the scores ``(batch, time, symbols)`` that ``frames`` gave, of which ``lengths`` ``(batch,)`` are real. A target
    that its frames cannot spell adds nothing.

    With a prior, while training, it is the loss that `FrameScores` describes, and what it counts is counted on.
    """
    rows = [list(row) for row in targets]
    asked: dict[str, Any] = {"reduction": "sum", "impossible": "zero"}
    if not (frames.prior and frames.training):
        return ctc_loss(scores.float(), rows, lengths, **asked)
    log_p = log_probabilities(scores)
    frames.count(log_p.detach(), lengths)
    return ctc_loss(frames.weighed(log_p), rows, lengths, normalized=True, **asked)
