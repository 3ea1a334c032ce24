"""Prefix beam search: the most probable labels, their paths added up."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search.ctc._inputs import Lengths, checked_log_probs


def ctc_beam(
    log_probs: Tensor | NDArray[np.floating],
    lengths: Lengths = None,
    *,
    width: int = 50,
    blank: int = 0,
    n_best: int | None = 1,
    threads: int = 1,
) -> list[NBest]:
    """The labels y with the greatest p(y | x) that a beam of `width` prefixes finds:

        p(y | x) = Σ_{π: collapse(π) = y} Π_t p_t(π_t)

    log_probs: ``(batch, time, symbols)``; lengths: ``(batch,)`` real frames of each, all by default.
    width: prefixes kept after each frame. All paths of a prefix count as one, whether they end in a blank or not.
    n_best: hypotheses per input, None for all that are kept; fewer when fewer have a probability above 0.
    threads: inputs searched at the same time. The result for one input never depends on the others.

    `score` and `log_prob` of a hypothesis are log p(y | x) summed over the paths the beam kept: exact when it never
    had to drop a prefix, otherwise a little low; −`ctc_loss` is the exact value. CTC has no probability of one symbol
    given those before, so `steps` is empty. `ctc_align` gives the times.
    """
    if width < 1 or threads < 1 or (n_best is not None and not 1 <= n_best <= width):
        raise ValueError(
            f"ctc_beam: width and threads must be at least 1 and n_best from 1 to width, "
            f"got width={width}, threads={threads}, n_best={n_best}."
        )
    scores, frames = checked_log_probs("ctc_beam", log_probs, lengths, blank)
    from anaphora.kernels.ctc_beam import prefix_beam

    def one(item: tuple[Tensor, int]) -> NBest:
        row, real = item
        log_p = row[:real].double().contiguous().numpy()
        found, sizes, symbols = prefix_beam(log_p, blank, width, n_best or width)
        return NBest(
            Hypothesis(tokens[:size], score, score, [], finished=True)
            for tokens, size, score in zip(symbols.tolist(), sizes.tolist(), found.tolist(), strict=True)
        )

    items = list(zip(scores.cpu(), frames.tolist(), strict=True))
    if threads == 1 or len(items) < 2:
        return [one(item) for item in items]
    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(one, items))
