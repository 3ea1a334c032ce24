"""A tagger out of its graph: the scores of tags come from it, the best sequence of tags is found here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.labelled_targets import Targets
from anaphora.data.sources.sentences import given_sentences
from anaphora.data.symbols import PAD
from anaphora.data.tag_learnt import Learnt
from anaphora.data.tag_schemes import allowed
from anaphora.data.tag_vocabulary import Letters, Reader
from anaphora.data.word_pieces import PieceReader
from anaphora.errors import AnaphoraError, DataError
from anaphora.inference.session import check_finite
from anaphora.kinds.kind import given_inputs
from anaphora.kinds.vectors import FrameReader
from anaphora.runtime.folder import Exported, OnnxGraph
from anaphora.runtime.pieces import Pieces
from anaphora.runtime.stored import stored_tokenizer

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]
TOGETHER = 4096
"""Words that are tagged at once; results do not depend on it."""


class Tagger:
    """`predict` and `predict_proba` of an exported `an.Tagger`, of words or of frames."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            learnt = Learnt.from_json(exported.text("learnt.json"), exported.path / "learnt.json")
            self._reader: Reader | PieceReader | FrameReader
            self._pieces = Pieces.of(exported.facts.get("pieces"))
            if learnt.frames is not None:
                self._reader = FrameReader.from_json(learnt.frames)
                self.targets = self._reader.targets
            else:
                letters = None if learnt.letters is None else Letters(tuple(learnt.letters))
                kind = Reader if self._pieces is None else PieceReader
                self._reader = kind(stored_tokenizer(exported), letters)
                self.targets = Targets("class", learnt.tags)
            self._chain = None
            if self.targets.kind == "class":
                self._chain = _chain(learnt, exported.facts["chain"])
            self._crf = (
                None if exported.facts["chain"] is None else _own(exported.facts["chain"], len(learnt.tags))
            )
            self._threshold = float(exported.facts["threshold"])
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._session = OnnxGraph(exported, threads=threads)
        self._name = next(iter(self._session.described.inputs))

    def predict(self, sentences: Iterable[Any]) -> list[list[Any]]:
        """A tag for every word of each sentence, which is a list of words or a text with spaces between them; or a label
        for every frame of each array ``(time, features)``."""
        found: list[list[Any]] = []
        names = self.targets.values
        for scores in self._emissions(sentences):
            if not len(scores):
                found.append([])
            elif self._chain is not None:
                found.append([names[tag] for tag in best_path(scores, *self._chain)])
            elif self.targets.kind == "number":
                found.append(self.targets.numbers(scores).tolist())
            else:
                chances = self.targets.probabilities(scores.astype(np.float64))
                found.append(
                    [[names[i] for i in np.flatnonzero(here >= self._threshold)] for here in chances]
                )
        return found

    def predict_proba(self, sentences: Iterable[Any]) -> list[Any]:
        """p(label | sequence) of every word or frame, an array ``(time, classes)`` for each sequence."""
        if self.targets.kind == "number":
            raise AnaphoraError("a Tagger trained on numbers has no probabilities; use predict.")
        found = []
        for scores in self._emissions(sentences):
            wide = scores.astype(np.float64)
            if self._crf is not None and len(wide):
                found.append(marginals(wide, *self._crf))
            else:
                found.append(self.targets.probabilities(wide) if len(wide) else wide)
        return found

    def _emissions(self, sentences: Iterable[Any]) -> list[Floats]:
        """The scores ``(time, tags)`` of each sentence, in order."""
        if isinstance(self._reader, FrameReader):
            rows: list[Any] = list(self._reader.read(given_inputs(sentences, {})))
        else:
            rows = list(self._reader.read(given_sentences(sentences)))
        if self._pieces is not None:
            return self._by_pieces(rows, self._pieces)
        found = self._read(rows)
        check_finite(found)
        return found

    def _by_pieces(self, tables: Sequence[NDArray[np.int32]], how: Pieces) -> list[Floats]:
        """The same for words ``(words, pieces)``: all windows of all sentences are read, then put together."""
        windows = [how.windows(table[table != PAD].tolist()) if len(table) else [] for table in tables]
        read = iter(self._read([np.array(one)[:, None] for of in windows for one in of]))
        empty = np.zeros((0, self.targets.size), np.float32)
        found = [
            how.joined([next(read) for _ in of], table) if of else empty
            for of, table in zip(windows, tables, strict=True)
        ]
        check_finite(found)
        return found

    def _read(self, rows: Sequence[Any]) -> list[Floats]:
        """The scores of each row ``(time, …)``, rows of like length together."""
        found: list[Floats] = [np.zeros((0, self.targets.size), np.float32) for _ in rows]
        order = sorted((i for i, row in enumerate(rows) if len(row)), key=lambda i: (-len(rows[i]), i))
        while order:
            count = max(1, TOGETHER // len(rows[order[0]]))
            chosen, order = order[:count], order[count:]
            table, lengths = self._table([rows[i] for i in chosen])
            emissions = self._session(**{self._name: table, "lengths": lengths})["emissions"]
            for i, scores in zip(chosen, emissions, strict=True):
                found[i] = scores[: len(rows[i])]
        return found

    def _table(self, rows: Sequence[Any]) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Words ``(batch, time)``, words with their letters, or frames, padded; and the lengths."""
        frames = isinstance(self._reader, FrameReader)
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        shape = (len(rows), int(lengths.max()), rows[0].shape[1])
        table: NDArray[Any] = np.zeros(shape, np.float32) if frames else np.full(shape, PAD, dtype=np.int64)
        for place, row in zip(table, rows, strict=True):
            place[: len(row)] = row
        return (table if frames or table.shape[2] > 1 else table[..., 0]), lengths


def best_path(emissions: Floats, start: Floats, moves: Floats, end: Floats) -> list[int]:
    """argmax_y start[y_1] + Σ_t e_t[y_t] + Σ_t moves[y_{t−1}, y_t] + end[y_T], by Viterbi's algorithm; emissions
    ``(time, tags)``."""
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


def marginals(emissions: Doubles, start: Doubles, moves: Doubles, end: Doubles) -> Doubles:
    """p(y_t = j | x) ``(time, tags)`` of a CRF, by the forward and backward recursions in logarithms."""
    forward, backward = np.empty_like(emissions), np.empty_like(emissions)
    forward[0], backward[-1] = start + emissions[0], end
    for t in range(1, len(emissions)):
        forward[t] = np.logaddexp.reduce(forward[t - 1][:, None] + moves, axis=0) + emissions[t]
    for t in range(len(emissions) - 2, -1, -1):
        backward[t] = np.logaddexp.reduce(moves + emissions[t + 1] + backward[t + 1], axis=1)
    both = forward + backward
    found: Doubles = np.exp(both - np.logaddexp.reduce(both, axis=1, keepdims=True))
    return found


def _own(given: Any, tags: int) -> tuple[Doubles, Doubles, Doubles]:
    """A CRF's scores of first tags, of pairs and of last tags."""
    shapes = {"start": (tags,), "moves": (tags, tags), "end": (tags,)}
    found = {name: np.array(given[name], dtype=np.float64) for name in shapes}
    for name, shape in shapes.items():
        if found[name].shape != shape or not np.isfinite(found[name]).all():
            raise ValueError(f"chain: {name} does not fit the {tags} tags")
    return found["start"], found["moves"], found["end"]


def _chain(learnt: Learnt, given: Any) -> tuple[Floats, Floats, Floats]:
    """What a sequence of tags scores besides its words: −∞ where the scheme forbids it, and a CRF's own scores."""
    rules = [np.where(rule, 0.0, -np.inf).astype(np.float32) for rule in allowed(learnt.scheme, learnt.tags)]
    if given is None:
        return rules[0], rules[1], rules[2]
    own = [part.astype(np.float32) for part in _own(given, len(learnt.tags))]
    return rules[0] + own[0], rules[1] + own[1], rules[2] + own[2]
