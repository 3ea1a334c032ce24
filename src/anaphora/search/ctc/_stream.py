"""A beam over CTC frames that goes on whenever more of them arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from anaphora.cancellation import each_step
from anaphora.ops.targets import checked_log_probs
from anaphora.search._hypothesis import Hypothesis, NBest
from anaphora.search.ctc._beam import FRAMES, words_search

Floats = NDArray[np.float64]


class CTCStream:
    """`ctc_beam` over frames that are still arriving; after all of them it has found the same.

    width: prefixes kept after each frame; ``blank``: its number. Further options are those of `ctc_beam` about words: ``lexicon``, ``symbols``, ``lm``,
    ``lm_weight``, ``word_bonus``, ``hot_words``, ``per_node``, ``beam_distance``. Between two pieces it keeps the beam and, for the
    times of words, the log-probabilities that were read.

    >>> stream = CTCStream(width=4)
    >>> stream.push(torch.tensor([[0.1, 0.9], [0.8, 0.2]]).log())
    >>> [h.tokens for h in stream.best()]
    [[1]]
    """

    def __init__(self, *, width: int = 50, blank: int = 0, **words: Any):
        if width < 1:
            raise ValueError(f"CTCStream: width must be at least 1, got {width}.")
        self._blank, self._width = blank, width
        self._words = words_search(width, None, blank, **words)
        self._read: list[Floats] = []
        self._beam: Any = None

    def push(self, log_probs: Tensor | NDArray[np.floating]) -> None:
        """More frames ``(n, symbols)``."""
        scores, _ = checked_log_probs("CTCStream", torch.as_tensor(log_probs)[None], None, self._blank)
        log_p: Floats = scores[0].cpu().double().contiguous().numpy()
        if not len(log_p):
            return
        self._read.append(log_p)
        if self._words is not None:
            self._words.check(log_p.shape[1])
            begun = self._words.begin(len(log_p)) if self._beam is None else self._beam
            self._beam = self._words.advance(begun, log_p)
            return
        from anaphora.search.ctc._frames import new_prefixes, prefix_frames

        tree, beam, masses, counts = (
            new_prefixes(len(log_p), self._width) if self._beam is None else self._beam
        )
        needed = int(counts[1]) + len(log_p) * self._width
        if needed > tree.shape[1]:
            more = np.full((5, max(needed, 2 * tree.shape[1])), -1, np.int32)
            more[:, : tree.shape[1]] = tree
            tree = more
        for first in each_step(range(0, len(log_p), FRAMES)):
            prefix_frames(log_p[first : first + FRAMES], self._blank, tree, beam, masses, counts)
        self._beam = tree, beam, masses, counts

    @property
    def frames(self) -> int:
        """How many were read."""
        return sum(map(len, self._read))

    def log_probs(self) -> Floats:
        """All that was read, ``(frames, symbols)``."""
        return np.concatenate(self._read) if self._read else np.zeros((0, 0))

    def best(self, n_best: int | None = 1) -> NBest:
        """The best hypotheses of what was read, None for all that are kept."""
        if self._beam is None:
            return NBest()
        if self._words is not None:
            return self._words.best(self._beam, n_best, self.log_probs())
        from anaphora.search.ctc._frames import read_prefixes

        tree, beam, masses, counts = self._beam
        count = int(counts[0]) if n_best is None else min(int(counts[0]), n_best)
        found, sizes, labels = read_prefixes(beam, count, masses, tree)
        return NBest(
            Hypothesis(tokens[:size], score, score, [], finished=True)
            for tokens, size, score in zip(labels.tolist(), sizes.tolist(), found.tolist(), strict=True)
        )

    def certain(self) -> tuple[list[int], list[str] | None]:
        """The symbols, and in a search for words the words, with which every hypothesis begins that may still be found: no later
        frame can change them."""
        if self._beam is None:
            return [], None if self._words is None else []
        if self._words is not None:
            return self._words.certain(self._beam)
        return common_beginning([h.tokens for h in self.best(None)]), None


def common_beginning(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """What all rows begin with."""
    found = []
    for column in zip(*rows, strict=False):
        if any(value != column[0] for value in column):
            break
        found.append(column[0])
    return found
