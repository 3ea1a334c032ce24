"""``an.Embedder``: sequences to vectors, for search and clusters."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
from torch import nn

from anaphora.data.alike import ALIKE_READER, AlikeBatches, Lookups, check_alike, open_alike, positives_of
from anaphora.data.split import Split
from anaphora.data.table import Table
from anaphora.errors import DataError
from anaphora.kinds.kind import Kinds
from anaphora.kinds.measures.judged import Judged, no_options, timed
from anaphora.kinds.measures.retrieval import lookup_measures, lookups_judged
from anaphora.kinds.text import TextInputs
from anaphora.kinds.vector import Clustering, Embedded, Neighbour, VectorOutput, unit
from anaphora.kinds.vectors import VectorInputs
from anaphora.models.embeddings.vectors import Vectors, neighbours, spherical_kmeans
from anaphora.probe.trace import Trace
from anaphora.tasks.embed.build import build_embedder
from anaphora.tasks.embed.info import EmbedderSettings
from anaphora.tasks.embed.objective import ContrastiveObjective, own_retrieval
from anaphora.tasks.embed.probing import probe_embedder, probe_inputs
from anaphora.tasks.guarding import probing
from anaphora.tasks.keywords import EmbedderKeywords, EmbedderModel
from anaphora.tasks.looking import no_beam, symbol_vectors
from anaphora.tasks.reading import SequenceReader
from anaphora.tasks.recipe import Recipe
from anaphora.training.objective import Batches, Objective
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


class Embedder(SequenceReader):
    """Make a vector of a whole sequence, near to those of sequences that are alike.

    >>> m = an.Embedder("bow", steps=2).fit([("two dogs", "a pair of dogs"), ("it rains", "rain falls")] * 4)
    >>> m.predict(["two dogs", "it rains"]).shape, len(m.cluster(["two dogs", "it rains"], k=2).labels)
    ((2, 128), 2)

    Trained on pairs, on inputs with labels, or on inputs alone (see ``positives``). A sequence is a text, or vectors
    ``(time, features)``. ``anaphora models embed`` lists the presets and ``anaphora explain`` the settings.
    """

    command = "embed"
    embeds_inputs = True
    settings_: EmbedderSettings
    model_: nn.Module
    inputs_: TextInputs | VectorInputs

    def __init__(
        self, model: EmbedderModel | str | None = None, **settings: Unpack[EmbedderKeywords]
    ) -> None:
        super().__init__(model, **settings)

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Table, Table]:
        s = self.settings_
        read = {"positives": self._given.get("positives", "auto"), "spill": spill, "bad_rows": s.bad_rows}
        rule = Split("rows", s.holdout, s.seed)
        train, dev = ALIKE_READER.training(data, valid, rule, **read, **fields)
        check_alike(train, dev)
        self.settings_ = s.model_copy(update={"positives": positives_of(train)})  # what config.json then says
        return train, dev

    def _learn(self, data: Table) -> None:
        s = self.settings_
        if data.holds_vectors:
            self.inputs_ = VectorInputs.learn(data.column(0), s.scale)
            return
        if s.frontend != "none":
            raise DataError("frontend reads frames of vectors, but the data are texts; leave it out.")
        self.inputs_ = TextInputs(self._learn_symbols(data, sides=1 + (s.positives == "pairs")))

    def _vocabulary(self) -> dict[str, int]:
        return {**self.inputs_.sizes, "vector": self.settings_.vector_size}

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Table, Table]:
        return ALIKE_READER.reopen(recipe.data, run.path / "data", positives=self.settings_.positives)

    def _fresh_model(self) -> nn.Module:
        seed_everything(self.settings_.seed, "model")
        return build_embedder(self.settings_, self.inputs_)

    def _objective_and_batches(self, data: Table, dev: Table) -> tuple[Objective, Batches]:
        s = self.settings_
        cut_by = {"batch_tokens": s.batch_tokens, "max_tokens": s.max_tokens, "seed": s.seed}
        batches = AlikeBatches(data, self._encode, s.positives, **cut_by)
        if s.batch_tokens < 2 * self._symbols(data) / len(data):
            problem = "holds one input, but inputs are compared with others of their batch; raise it."
            raise DataError(f"a batch of batch_tokens = {s.batch_tokens} {problem}")
        return ContrastiveObjective(s, self._asked(dev)), batches

    def _asked(self, rows: Table) -> Lookups:
        return Lookups.of(rows.read(range(len(rows))), positives_of(rows), self.kinds.encode)

    @property
    def kinds(self) -> Kinds:
        output = VectorOutput(self.settings_.vector_size)
        return Kinds(self._input, output, self._longest, filled=True, learnt=self.recipe_.trained_on)

    @overload
    def predict(self, inputs: Iterable[Any], *, details: Literal[False] = False) -> Vectors: ...

    @overload
    def predict(self, inputs: Iterable[Any], *, details: Literal[True]) -> list[Embedded | None]: ...

    def predict(self, inputs: Iterable[Any], *, details: bool = False) -> Vectors | list[Embedded | None]:
        """Return the vectors of inputs, ``(inputs, vector_size)``, each of length 1, and of NaN for a text with nothing in it; with
        ``details`` each as an `Embedded`, and None for such a text."""
        session = self.session
        found: Any = session.answer(session.kinds.from_python(inputs), {"details": details})
        return found  # type: ignore[no-any-return]

    def _vectors(self, items: Sequence[Any]) -> Vectors:
        """Return the vectors of inputs, none of which may be empty."""
        session = self.session
        return unit(session.outputs(session.kinds.encode(items)))

    embed = predict  # as other libraries call it

    def search(self, queries: Iterable[Any], documents: Any, *, k: int = 5) -> list[list[Neighbour]]:
        """For each query the ``k`` nearest of ``documents``: inputs, or vectors ``(n, vector_size)`` that `predict` made of them."""
        items, vectors = self._known(documents)
        found = neighbours(self._vectors(self.kinds.from_python(queries)), vectors, k)
        return [[Neighbour(index, items[index], near) for index, near in row] for row in found]

    def cluster(self, inputs: Any, k: int, *, seed: int = 1) -> Clustering:
        """``inputs`` (or their vectors) in ``k`` clusters, by spherical k-means."""
        return Clustering(*spherical_kmeans(self._known(inputs)[1], k, seed=seed))

    def score(self, data: Any, *, bad_rows: str | None = None, **asked: Any) -> dict[str, Any]:
        """How often what is alike is found: recall among the 1, 5 and 10 nearest and the mean reciprocal rank, in percent.

        Of pairs, each first text is looked up among all second ones; of inputs with labels, another of the same label among all others; of
        inputs alone, the second half by the first. ``asked``: ``positives``, where the data do not tell, ``source_field``, ``target_field``.
        """
        self._check_trained()
        rows = self._asked(self._scored(data, bad_rows, **asked))
        found = lookup_measures(rows, *map(unit, self._looked_up(rows)))
        own = own_retrieval(self.settings_, rows, found)
        return {"examples": len(rows.queries), **found.report, **own}

    def _open_test(self, data: Any, bad_rows: str | None, **asked: Any) -> Table:
        self._check_fields({key: value for key, value in asked.items() if key != "positives"})
        strict = bad_rows or self.settings_.bad_rows
        return open_alike(data, role="test", bad_rows=strict, learnt=self.recipe_.trained_on, **asked)

    def _judge(self, data: Table, options: Mapping[str, Any]) -> Judged:
        no_options(self, options)
        rows = self._asked(data)
        both, seconds = timed(lambda _: self._looked_up(rows), [rows])
        return lookups_judged(rows, lookup_measures(rows, *map(unit, both)), seconds)

    def _looked_up(self, rows: Lookups) -> tuple[Any, Any]:
        session = self.session
        queries = session.outputs(rows.queries)
        return queries, queries if rows.itself else session.outputs(rows.targets)

    @probing
    def probe(
        self, x: Any, target: Any | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while one input is read; ``gradients`` and ``ablation`` look back from the distance to ``target``."""
        self._check_trained()
        no_beam(self, beam)
        return probe_embedder(self, x, target, what)

    def probe_embeddings(self, inputs: Iterable[Any] | None = None) -> Trace:
        """The vectors of ``inputs``, or of the symbols of texts, for the view embeddings."""
        self._check_trained()
        if inputs is not None:
            return probe_inputs(self, self.kinds.from_python(inputs))
        if not isinstance(self.inputs_, TextInputs):
            raise DataError("this Embedder reads vectors, so it has no vectors of symbols; give inputs.")
        return symbol_vectors(self, self.model_, self.inputs_.tokenizer)

    def _known(self, given: Any) -> tuple[Sequence[Any], Vectors]:
        """Inputs with their vectors, or vectors that were computed before, with their numbers."""
        if isinstance(given, np.ndarray) and given.ndim == 2 and given.dtype.kind == "f":
            if given.shape[1] != (size := self.settings_.vector_size):
                raise DataError(f"the vectors have {given.shape[1]} numbers; this Embedder gives {size}.")
            return range(len(given)), unit(given)
        items = self.kinds.from_python(given)
        return items, self._vectors(items)
