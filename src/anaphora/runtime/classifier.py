"""A classifier out of its graph: the encoding before it and the labels after it are those of training."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from anaphora.data.labelled_inputs import TextInputs, VectorInputs, cut
from anaphora.data.labelled_rows import in_order, padded, together
from anaphora.data.labelled_targets import Numbers, Targets
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError, DataError
from anaphora.files import parse_json
from anaphora.runtime.folder import Exported, Session


class Classifier:
    """`predict` and `predict_proba` of an exported `an.Classifier`."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            learnt = parse_json(exported.text("learnt.json"))
            self.targets = Targets.from_json(learnt["targets"])
            self.inputs: TextInputs | VectorInputs
            if learnt["inputs"]["kind"] == "vectors":
                self.inputs = VectorInputs.from_json(learnt["inputs"])
            else:
                tokenizer = Tokenizer.from_json(exported.text("tokenizer.json"))
                self.inputs = TextInputs.from_json(tokenizer, learnt["inputs"])
            self._longest, self._threshold = (
                int(exported.facts["max_tokens"]),
                float(exported.facts["threshold"]),
            )
            self._scan, self._outputs = str(exported.facts["scan"]), int(exported.facts["outputs"])
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._session = Session(exported, threads=threads)

    @property
    def classes_(self) -> list[Any]:
        """The labels, in the order of the columns of `predict_proba`."""
        return self.targets.values

    def predict(self, inputs: Iterable[Any], *, threshold: float | None = None) -> list[Any]:
        """The label of each text, or of each sequence ``(time, features)``; a list of labels where there may be several; a
        number where that is the target."""
        scores = self._scores(inputs)
        return self.targets.labelled(self.targets.answers(scores, threshold or self._threshold))

    def predict_proba(self, inputs: Iterable[Any]) -> Numbers:
        """p(class | input), ``(inputs, classes)``; rows sum to 1 unless there may be several labels."""
        if self.targets.kind == "number":
            raise AnaphoraError("a Classifier trained on numbers has no probabilities; use predict.")
        return self.targets.probabilities(self._scores(inputs))

    def _scores(self, inputs: Iterable[Any]) -> Numbers:
        if isinstance(inputs, str):
            raise DataError("predict takes a list of texts: write [text] for a single one.")
        encoded = cut(self.inputs.encode(list(inputs), self._scan), self._longest)
        name = "symbols" if self.inputs.kind == "text" else "vectors"
        found = np.zeros((len(encoded), self._outputs))
        for rows in in_order(encoded, together(encoded)):
            table, lengths = padded([encoded[i] for i in rows])
            found[rows] = self._session(**{name: table, "lengths": lengths})
        bad = np.flatnonzero(~np.isfinite(found).all(axis=1))
        if len(bad):
            raise DataError(
                f"input {bad[0] + 1}: the prediction is not a finite number; are its values far too large?"
            )
        return found
