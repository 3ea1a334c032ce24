"""Questions about pictures, out of two graphs: a picture is seen once, however many questions are asked about it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anaphora.data.batches.pooled import padded_inputs
from anaphora.data.pictures import Row, among, rows_of
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.files.schemas import checked
from anaphora.inference.session import check_finite
from anaphora.runtime.folder import Exported, OnnxGraph
from anaphora.runtime.stored import stored_tokenizer

Numbers = np.ndarray[Any, np.dtype[np.float64]]
TOGETHER = 64
"""Pictures or questions that are read at once; results do not depend on it."""


class Answerer:
    """`predict` and `predict_proba` of an exported `an.Answerer`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset, facts = exported.preset, exported.facts
        try:
            self.answers_ = checked(list[str], parse_json(exported.text("learnt.json"))["answers"])
            self.tokenizer = stored_tokenizer(exported)
            self._longest, self._history = int(facts["max_tokens"]), int(facts["history"])
            height, width = facts["size"]
            self.size = (int(height), int(width))
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._model = OnnxGraph(exported, threads=threads)
        self._picture = OnnxGraph(exported, "picture", threads=threads) if facts.get("seeing") else None

    def predict(self, inputs: Iterable[Any]) -> list[str]:
        """The answer to each ``(picture, question)`` or ``(picture, question, choices)``."""
        return [self.answers_[int(i)] for i in self._scores(inputs).argmax(1)]

    def predict_proba(self, inputs: Iterable[Any]) -> Numbers:
        """p(answer | question, picture), ``(inputs, answers)``; rows sum to 1."""
        scores = self._scores(inputs)
        if not len(scores):
            return scores
        shifted = np.exp(scores - scores.max(1, keepdims=True))
        found: Numbers = shifted / shifted.sum(1, keepdims=True)
        return found

    def _scores(self, inputs: Iterable[Any]) -> Numbers:
        rows = rows_of(inputs, self.size, self.answers_, self._history)
        questions = self._questions([row.question for row in rows])
        seen, which = self._seen(rows)
        found = np.zeros((len(rows), len(self.answers_)))
        order = sorted(range(len(rows)), key=lambda i: (-len(questions[i]), i))
        for begin in range(0, len(order), TOGETHER):
            some = order[begin : begin + TOGETHER]
            table, lengths = padded_inputs([questions[i] for i in some])
            picture = {} if seen is None else {"seen": seen[which[some]]}
            found[some] = self._model(question=table, lengths=lengths, **picture)["scores"]
        check_finite(found)
        chosen: Numbers = among(found, [row.choices for row in rows])
        return chosen

    def _questions(self, texts: list[str]) -> list[Any]:
        found = [np.array(ids, dtype=np.int32) for ids in self.tokenizer.encode_batch(texts)]
        if self._history:  # the last words are the question
            return [ids[-self._longest :] for ids in found]
        long = sum(len(ids) > self._longest for ids in found)
        if long:
            warnings.warn(
                f"{long} questions were longer than max_tokens = {self._longest} and were cut", stacklevel=4
            )
        return [ids[: self._longest] for ids in found]

    def _seen(self, rows: Sequence[Row]) -> tuple[Any, Any]:
        """What is seen of the pictures ``(pictures, places, width)``, and which of them each row is about."""
        if self._picture is None:
            return None, None
        place: dict[Any, int] = {}
        pixels: list[Any] = []
        for row in rows:
            if row.key not in place:
                place[row.key] = len(pixels)
                pixels.append(row.pixels)
        parts = []
        for begin in range(0, len(pixels), TOGETHER):
            images = np.stack(pixels[begin : begin + TOGETHER]).transpose(0, 3, 1, 2).astype(np.float32) / 255
            parts.append(self._picture(images=images)["seen"])
        which = np.array([place[row.key] for row in rows], dtype=np.int64)
        return (np.concatenate(parts) if parts else None), which
