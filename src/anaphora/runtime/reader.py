"""Classifiers and embedders out of their graphs: inputs read and answers made as in training, by a session over the graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.data.labelled_targets import Targets
from anaphora.data.ngrams import PACKED
from anaphora.errors import AnaphoraError, DataError
from anaphora.files import parse_json
from anaphora.inference.session import Session
from anaphora.kinds.kind import Arrays, InputKind, Kinds, Options, OutputKind, Raw
from anaphora.kinds.labels import LabelOutput
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.kinds.vector import VectorOutput
from anaphora.kinds.vectors import VectorInputs
from anaphora.runtime.folder import Exported, OnnxGraph
from anaphora.runtime.stored import stored_tokenizer


class OnnxEngine:
    """A graph that takes the arrays of a batch by their names, and has one output of so many numbers."""

    weight = 1

    def __init__(self, exported: Exported, outputs: int, *, threads: int = 0):
        self.outputs, self._damaged = outputs, exported.damaged
        self._graph = OnnxGraph(exported, threads=threads)

    def run(self, arrays: Arrays) -> NDArray[Any]:
        """Return the outputs of a batch."""
        (found,) = self._graph(**arrays).values()
        if found.shape != (len(arrays["lengths"]), self.outputs):
            raise self._damaged(f"the graph has not the {self.outputs} outputs that are said")
        return found

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Within, nothing is different: a graph runs on the CPU."""
        yield

    def check(self) -> None:
        """No kernel of ours runs in a graph."""


class SequenceModel(ABC):
    """An exported estimator whose inputs are whole sequences."""

    filled = False

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset = exported.preset
        facts = exported.facts
        try:
            learnt = parse_json(exported.text("learnt.json"))
            outputs, longest = int(facts["outputs"]), facts["max_tokens"]
            longest = None if longest is None else int(longest)
            output = self._output(learnt, facts)
            kinds = Kinds(_input(exported, learnt["inputs"]), output, longest, self.filled)
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._session = Session(kinds, OnnxEngine(exported, outputs, threads=threads))

    @abstractmethod
    def _output(self, learnt: Mapping[str, Any], facts: Mapping[str, Any]) -> OutputKind:
        """Return what comes out."""

    def _answer(self, inputs: Iterable[Any], options: Options) -> Any:
        return self._session.answer(self._session.kinds.from_python(inputs), options)


class Embedder(SequenceModel):
    """`predict` of an exported `an.Embedder`."""

    filled = True

    def _output(self, learnt: Mapping[str, Any], facts: Mapping[str, Any]) -> OutputKind:
        return VectorOutput(int(facts["outputs"]))

    def predict(self, inputs: Iterable[Any]) -> NDArray[np.float32]:
        """Return the vectors of inputs, ``(inputs, vector_size)``, each of length 1, and of NaN for a text with nothing in it."""
        found: NDArray[np.float32] = self._answer(inputs, {})
        return found


class Classifier(SequenceModel):
    """`predict` and `predict_proba` of an exported `an.Classifier`."""

    targets: Targets

    def _output(self, learnt: Mapping[str, Any], facts: Mapping[str, Any]) -> OutputKind:
        self.targets = Targets.from_json(learnt["targets"])
        return LabelOutput(self.targets, float(facts["threshold"]))

    @property
    def classes_(self) -> list[Any]:
        """The labels, in the order of the columns of `predict_proba`."""
        return self.targets.values

    def predict(self, inputs: Iterable[Any], *, threshold: float | None = None) -> list[Any]:
        """The label of each text, sequence ``(time, features)`` or picture ``(rows, columns, channels)``; a list of labels
        where there may be several; a number where that is the target; None for a text with nothing in it."""
        return list(self._answer(inputs, {"threshold": threshold}))

    def predict_proba(self, inputs: Iterable[Any]) -> Raw:
        """p(class | input), ``(inputs, classes)``; rows sum to 1 unless there may be several labels."""
        if self.targets.kind == "number":
            raise AnaphoraError("a Classifier trained on numbers has no probabilities; use predict.")
        kinds = self._session.kinds
        return self.targets.probabilities(self._session.outputs(kinds.encode(kinds.from_python(inputs))))


def _input(exported: Exported, learnt: dict[str, Any]) -> InputKind:
    """Return what the graph reads."""
    if learnt["kind"] == "vectors":
        return VectorInputs.from_facts(learnt).reading(str(exported.facts.get("scan", "rows")))
    if learnt["kind"] == "ngrams":
        return NGramInputs.from_facts(learnt, exported.content(PACKED))
    return TextInputs.from_facts(stored_tokenizer(exported), learnt)
