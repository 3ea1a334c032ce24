"""What classifiers and embedders share: inputs read as in training, and outputs in batches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from anaphora.data.batches.pooled import Input, in_order, padded_inputs, together
from anaphora.data.labelled_inputs import Inputs, NGramInputs, TextInputs, VectorInputs, cut
from anaphora.data.ngrams import PACKED
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.runtime.folder import Exported, Session
from anaphora.runtime.given import check_finite, given_list
from anaphora.runtime.stored import stored_tokenizer

Numbers = np.ndarray[Any, np.dtype[np.float64]]


class SequenceReader:
    """A graph whose inputs are whole sequences: texts by a tokenizer, vectors or pictures by their mean and scale."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        try:
            learnt = parse_json(exported.text("learnt.json"))
            self.inputs: Inputs
            if learnt["inputs"]["kind"] == "vectors":
                self.inputs = VectorInputs.from_json(learnt["inputs"])
            elif learnt["inputs"]["kind"] == "ngrams":
                self.inputs = NGramInputs.from_json(learnt["inputs"], exported.content(PACKED))
            else:
                self.inputs = TextInputs.from_json(stored_tokenizer(exported), learnt["inputs"])
            longest = exported.facts["max_tokens"]
            self._longest = None if longest is None else int(longest)
            self._outputs = int(exported.facts["outputs"])
            self._scan = str(exported.facts.get("scan", "rows"))
            self._take(learnt, exported.facts)
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._damaged = exported.damaged
        self._session = Session(exported, threads=threads)
        self._name = next(iter(self._session.described.inputs))

    def _take(self, learnt: Mapping[str, Any], facts: Mapping[str, Any]) -> None:
        """Read what else was learned."""

    def _read(self, inputs: Iterable[Any]) -> list[Input]:
        found = self.inputs.encode(given_list(inputs), self._scan)
        return found if self._longest is None else cut(found, self._longest)

    def _scores(self, encoded: list[Input]) -> Numbers:
        """What the graph puts out, ``(inputs, outputs)``."""
        found = np.zeros((len(encoded), self._outputs))
        for rows in in_order(encoded, together(encoded)):
            table, lengths = padded_inputs([encoded[i] for i in rows])
            (scores,) = self._session(**{self._name: table, "lengths": lengths}).values()
            if scores.shape != (len(rows), self._outputs):
                raise self._damaged(f"the graph has not the {self._outputs} outputs that are said")
            found[rows] = scores
        check_finite(found)
        return found
