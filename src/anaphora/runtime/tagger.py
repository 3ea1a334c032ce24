"""A tagger out of its graph: the scores of tags come from it, the best sequence of tags is found here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.conll_examples import given_sentences
from anaphora.data.symbols import PAD
from anaphora.data.tag_learnt import Learnt
from anaphora.data.tag_schemes import allowed
from anaphora.data.tag_vocabulary import Letters, Reader, Words
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError
from anaphora.runtime.folder import Exported, Session

Floats = NDArray[np.float32]
TOGETHER = 4096
"""Words that are tagged at once; results do not depend on it."""


class Tagger:
    """`predict` of an exported `an.Tagger`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            learnt = Learnt.from_json(exported.text("learnt.json"), exported.path / "learnt.json")
            letters = None if learnt.letters is None else Letters(tuple(learnt.letters))
            self._reader = Reader(Tokenizer.from_json(exported.text("tokenizer.json")), letters)
            self.tags, self._parts = learnt.tags, _chain(learnt, exported.facts["chain"])
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._session = Session(exported, threads=threads)

    def predict(self, sentences: Iterable[str | Sequence[str]]) -> list[list[str]]:
        """A tag for every word of each sentence, which is a list of words or a text with spaces between them."""
        rows = self._reader.read(given_sentences(sentences))
        found: list[list[str]] = [[] for _ in rows]
        order = sorted((i for i, row in enumerate(rows) if len(row)), key=lambda i: (-len(rows[i]), i))
        while order:
            count = max(1, TOGETHER // len(rows[order[0]]))
            chosen, order = order[:count], order[count:]
            emissions = self._session(
                words=_table([rows[i] for i in chosen]),
                lengths=np.array([len(rows[i]) for i in chosen], dtype=np.int64),
            )
            for i, scores in zip(chosen, emissions, strict=True):
                found[i] = [
                    self.tags[tag] for tag in best_path(scores[: len(rows[i])], *self._parts, sentence=i + 1)
                ]
        return found


def best_path(
    emissions: Floats, start: Floats, moves: Floats, end: Floats, *, sentence: int = 1
) -> list[int]:
    """argmax_y start[y_1] + Σ_t e_t[y_t] + Σ_t moves[y_{t−1}, y_t] + end[y_T], by Viterbi's algorithm; emissions
    ``(time, tags)``."""
    if not np.isfinite(emissions).all():
        raise DataError(f"sentence {sentence}: the prediction is not a finite number; use another model.")
    best = start + emissions[0]
    came: list[NDArray[np.intp]] = []
    for scores in emissions[1:]:
        table = best[:, None] + moves  # (from, to)
        came.append(table.argmax(0))
        best = table.max(0) + scores
    path = [int((best + end).argmax())]
    for before in reversed(came):
        path.append(int(before[path[-1]]))
    return path[::-1]


def _chain(learnt: Learnt, given: Any) -> tuple[Floats, Floats, Floats]:
    """What a sequence of tags scores besides its words: −∞ where the scheme forbids it, and a CRF's own scores."""
    rules = allowed(learnt.scheme, learnt.tags)
    found = []
    for name, rule in zip(("start", "moves", "end"), rules, strict=True):
        forbidden = np.where(rule, 0.0, -np.inf).astype(np.float32)
        own = np.zeros(rule.shape, np.float32) if given is None else np.array(given[name], dtype=np.float32)
        if own.shape != rule.shape or not np.isfinite(own).all():
            raise ValueError(f"chain: {name} does not fit the {len(learnt.tags)} tags")
        found.append(forbidden + own)
    return found[0], found[1], found[2]


def _table(rows: Sequence[Words]) -> NDArray[np.int64]:
    """Words ``(batch, time)``, or with their letters ``(batch, time, 1 + letters)``, padded."""
    table = np.full((len(rows), max(map(len, rows)), rows[0].shape[1]), PAD, dtype=np.int64)
    for place, row in zip(table, rows, strict=True):
        place[: len(row)] = row
    return table[..., 0] if table.shape[2] == 1 else table
