"""A classifier out of its graph: the encoding before it and the labels after it are those of training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from anaphora.data.asked import filled
from anaphora.data.labelled_targets import Numbers, Targets
from anaphora.errors import AnaphoraError
from anaphora.runtime.given import given_list
from anaphora.runtime.reader import SequenceReader


class Classifier(SequenceReader):
    """`predict` and `predict_proba` of an exported `an.Classifier`."""

    targets: Targets

    def _take(self, learnt: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        self.targets = Targets.from_json(learnt["targets"])
        self._threshold = float(facts["threshold"])

    @property
    def classes_(self) -> list[Any]:
        """The labels, in the order of the columns of `predict_proba`."""
        return self.targets.values

    def predict(self, inputs: Iterable[Any], *, threshold: float | None = None) -> list[Any]:
        """The label of each text, sequence ``(time, features)`` or picture ``(rows, columns, channels)``; a list of labels
        where there may be several; a number where that is the target; None for a text with nothing in it."""

        def answer(full: list[Any]) -> list[Any]:
            scores = self._scores(self._read(full))
            return self.targets.labelled(self.targets.answers(scores, threshold or self._threshold))

        return filled(given_list(inputs), answer)

    def predict_proba(self, inputs: Iterable[Any]) -> Numbers:
        """p(class | input), ``(inputs, classes)``; rows sum to 1 unless there may be several labels."""
        if self.targets.kind == "number":
            raise AnaphoraError("a Classifier trained on numbers has no probabilities; use predict.")
        return self.targets.probabilities(self._scores(self._read(inputs)))
