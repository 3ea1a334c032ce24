"""``an.Classifier``: learn what a whole sequence is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch
from torch import Tensor

from anaphora.data.batches.padded import ReadBatches, labelled_batches, labels_of
from anaphora.data.batches.pairs import HELD_TEXT
from anaphora.data.corpora import CORPORA
from anaphora.data.labelled_targets import Targets, kind_of
from anaphora.data.sources.arrays import ANY_SIZE, of_vectors
from anaphora.data.sources.labelled import LABELLED_READER, open_labelled
from anaphora.data.sources.sheet import XY, is_xy
from anaphora.data.split import Split
from anaphora.data.table import Table
from anaphora.errors import AnaphoraError
from anaphora.kinds.kind import Kinds, cut
from anaphora.kinds.labels import Classification, LabelOutput
from anaphora.kinds.measures.classes import class_measures
from anaphora.kinds.measures.judged import Judged, timed
from anaphora.kinds.text import NGramInputs, TextInputs
from anaphora.kinds.vectors import VectorInputs
from anaphora.models.classifier import SequenceClassifier
from anaphora.models.own import OwnScores
from anaphora.nn.embedding import Embedding
from anaphora.probe.trace import Trace
from anaphora.settings import build
from anaphora.settings.classify import PICTURES, ClassifierSettings, ClassifyOptions
from anaphora.tasks.begin_senses import adopt_sense, of_task, sense_donor
from anaphora.tasks.begun.coverage import SAMPLE, warn_of_unknown
from anaphora.tasks.classify.build import (
    Direct,
    begin_with,
    build_classifier,
    empty,
    first_weights,
    fitted,
    informed_vectors,
    learn_ngrams,
    of_ngrams,
)
from anaphora.tasks.classify.objective import (
    ClassificationObjective,
    best_measure,
    class_weights,
    classes_judged,
    own_scores,
)
from anaphora.tasks.classify.probing import probe_classifier
from anaphora.tasks.guarding import probing
from anaphora.tasks.keywords import ClassifierKeywords, ClassifierModel
from anaphora.tasks.learning import check_shared, given_labels, label_kind, paired, plain_targets, tell_axes
from anaphora.tasks.looking import no_beam, symbol_vectors
from anaphora.tasks.own import own_model
from anaphora.tasks.pretrained import Donors, with_width
from anaphora.tasks.reading import SequenceReader
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.classify import check_fits, suit_ngrams, suit_preset, suit_texts, suit_vectors
from anaphora.tasks.suiting.rival import rival_of
from anaphora.tasks.suiting.sizing import settle_r_drop
from anaphora.tasks.thresholding import kept, settle_threshold, taken, tell, usable
from anaphora.training.loop import TrainingResult
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import chosen_metric
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything
from anaphora.training.weights import snapshot


class Classifier(SequenceReader):
    """Say what a whole sequence is: p(y | x_1 … x_T), one class, several, or a number.

        m = an.Classifier(model="bilstm", pooling="max")
        m.fit("train.tsv", valid="dev.tsv", out="runs/reviews")
        m.predict(["a good script"])

    A sequence is a text, or vectors ``(time, features)``. ``anaphora models classify`` lists the presets and
    ``anaphora explain`` the settings. After training ``classes_`` are the labels in the order of `predict_proba`.

    >>> m = an.Classifier("ngrams").fit([("good film", "yes"), ("bad film", "no")] * 6)
    >>> m.predict(["a good one"])
    ['yes']
    """

    command = "classify"
    settings_: ClassifierSettings
    model_: SequenceClassifier | OwnScores | Direct
    inputs_: TextInputs | NGramInputs | VectorInputs
    targets_: Targets
    _estimator_type = "classifier"
    _donor: Any = None
    _seen: Table
    _labels = "str"
    _from_file = False
    _chosen: float | None = None  # the threshold of several labels, where dev data choose it

    def __init__(
        self, model: ClassifierModel | str | None = None, **settings: Unpack[ClassifierKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _join(self, X: Any, y: Any) -> Any:
        tell_axes(X)
        return paired(X, plain_targets(y, self.settings_.target))

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Table, Table]:
        if is_xy(valid):
            X, y = valid  # type: ignore[misc]
            valid = XY(X, plain_targets(y, self.settings_.target))
        self._donor = sense_donor(self.settings_.init) if self.settings_.init else None
        if self._donor is not None:
            of_task(self._donor, self.task(), self.settings_.init)
            self.settings_ = adopt_sense(self.task(), self._given, self._donor, self.settings_.init, {})
        s = self.settings_
        return LABELLED_READER.training(
            data,
            valid,
            Split("rows", s.holdout, s.seed),
            spill=spill,
            bad_rows=s.bad_rows,
            scan=ANY_SIZE if self._donor is not None else s.scan,
            **fields,
        )

    def _learn(self, data: Table) -> None:
        targets = Targets.learn(self.settings_.target, labels_of(data))
        suit_preset(self, data, targets)
        check_fits(self.settings_, data, looks=self._donor is not None)
        suit_ngrams(self, data, targets)
        s = self.settings_
        if self._donor is not None:
            self.inputs_ = self._donor.inputs_
        elif data.holds_vectors:
            self.inputs_ = VectorInputs.learn(data.column(0), s.scale, of_vectors(s.features))
            suit_vectors(self, data)
        elif self._direct or s.model == "fasttext":
            self.inputs_ = learn_ngrams(s, (text for text, _ in data.read(range(len(data)))))
        else:
            donors = Donors.open(s)
            if donors is None:
                suit_texts(self, data)
                self.inputs_ = TextInputs(self._learn_symbols(data))
            else:
                self.settings_, self.inputs_ = begin_with(self.task(), self._given, s, donors)
                warn_of_unknown(donors, (text for text, _ in data.read(range(min(len(data), SAMPLE)))))
            symbols = self.inputs_.tokenizer
            self.settings_ = with_width(self.settings_, self._given, symbols)
        settle_r_drop(self)
        labels = kind_of(targets.names) if self._from_file else self._labels
        self.targets_ = replace(targets, labels="str" if s.target == "number" else labels)

    def _check_labels(self, data: Table, *names: str) -> None:
        check_shared(self.targets_, labels_of(data), *names)

    def _note(self, data: Any, fields: Mapping[str, str | None]) -> None:
        self._labels = label_kind(given_labels(data, dict(fields)))
        self._from_file = isinstance(data, str | Path) and str(data).partition(":")[0] not in CORPORA

    def _train_by_steps(self, run: RunFolder, data: Table, *rest: Any, **how: Any) -> TrainingResult:
        self._seen = data  # first weights may depend on them
        try:
            return super()._train_by_steps(run, data, *rest, **how)
        finally:
            del self._seen

    def _inherited(self) -> dict[str, Tensor]:
        assert isinstance(self.model_, SequenceClassifier)
        if isinstance(self.inputs_, NGramInputs):
            texts, labels = zip(*self._seen.read(range(len(self._seen))), strict=True)
            return informed_vectors(self.model_, self._encode(texts), self.targets_.encode(labels))
        if self.settings_.model in PICTURES:
            donor = self._donor if self._donor is not None else sense_donor(self.settings_.init)
            held = {} if donor is None else snapshot(donor.model_)
            return {name: value for name, value in held.items() if name.startswith("encoder.")}
        tokenizer = self.inputs_.tokenizer if isinstance(self.inputs_, TextInputs) else None
        return first_weights(self.settings_, tokenizer, self.model_)

    def _fresh_model(self) -> SequenceClassifier | OwnScores | Direct:
        if self._direct:
            assert not isinstance(self.inputs_, TextInputs)
            return empty(self.settings_, self.targets_, self.inputs_)
        seed_everything(self.settings_.seed, "model")
        if isinstance(self.inputs_, NGramInputs):
            return of_ngrams(self.settings_, self.inputs_.grams.size, self.targets_.size)
        sizes = self.inputs_.sizes
        inputs = sizes.get("symbols") or sizes.get("features") or sizes["channels"]
        tokenizer = self.inputs_.tokenizer if isinstance(self.inputs_, TextInputs) else None
        own = own_model(
            self.command,
            self.settings_,
            inputs=inputs,
            outputs=self.targets_.size,
            vocabulary=tokenizer,
            labels=self.targets_.names,
        )
        if own is not None:
            return OwnScores(own, self.targets_.size)
        parts: dict[str, Any] = dict(self.inputs_.sizes)
        if isinstance(self.inputs_, TextInputs):
            parts |= self.inputs_.framing
        return build_classifier(self.settings_, outputs=self.targets_.size, **parts)

    def _objective_and_batches(self, data: Table, dev: Table) -> tuple[Objective, Batches]:
        s = self.settings_
        truth = self.targets_.encode(labels_of(data))
        cut_by: dict[str, Any] = {
            "batch_tokens": s.batch_tokens,
            "max_tokens": self._longest,
            "seed": s.seed,
        }
        objective = self._objective(truth, dev)
        if data.text_bytes > HELD_TEXT and not data.holds_vectors:
            return objective, ReadBatches(data, self._beginnings, truth, **cut_by)
        sources, _ = zip(*data.read(range(len(data))), strict=True)
        inputs = self._encode(sources)
        if self.inputs_.kind == "text":
            inputs = cut(inputs, self._longest, "training texts")
        return objective, labelled_batches(inputs, truth, **cut_by)

    def _beginnings(self, texts: Sequence[str]) -> list[Any]:
        """Training texts as they are read when the model is used: as far as ``max_tokens``."""
        return [x[: self._longest] for x in self._encode(texts)]

    def _solve(self, data: Table, dev: Table, reporter: Reporter | None) -> dict[str, float]:
        self.model_ = self._fresh_model()
        assert isinstance(self.model_, Direct)
        texts, labels = zip(*data.read(range(len(data))), strict=True)
        truth = self.targets_.encode(labels)
        s = self.settings_
        counts = class_weights(self.targets_, truth).numpy() if s.class_weight == "balanced" else None
        fitted(s, self.model_, self._encode(texts), truth, counts)
        objective = self._objective(truth, dev)
        measured = objective.evaluate(self.model_)
        self._chosen = objective.threshold
        if self._chosen is not None and reporter is not None:  # not where this is a rival of another model
            tell(self._chosen, objective.labels)
        return measured

    def _metric(self) -> str:
        return chosen_metric(self.settings_, best_measure(self.settings_))[0]

    def _advice(self, run: Path) -> str:
        found = rival_of(self, run)
        return "" if found is None else found.advice

    def _objective(self, truth: Any, dev: Table) -> ClassificationObjective:
        """What is minimised, for training examples with the encoded labels ``truth``."""
        held, wanted = zip(*dev.read(range(len(dev))), strict=True)
        texts = [_outline(x) for x in held[:8]] if self.inputs_.kind == "vectors" else held
        shown = cut(self._encode(held), self._longest, "dev examples")
        return ClassificationObjective(self.settings_, self.targets_, truth, (shown, list(wanted)), texts)

    def _after_steps(self, run: RunFolder, dev: Table, result: TrainingResult) -> TrainingResult:
        return settle_threshold(self, run, dev, result)

    def _weights(self) -> dict[str, Tensor]:
        return super()._weights() | kept(self._chosen)

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        self._chosen, weights = taken(tensors)
        super()._rebuild(weights, device)

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Table, Table]:
        return LABELLED_READER.reopen(recipe.data, run.path / "data")

    def _vocabulary(self) -> dict[str, int]:
        return {**self.inputs_.sizes, "classes": len(self.targets_.names)}

    # ------------------------------------------------------------------ use

    @property
    def classes_(self) -> list[Any]:
        """The labels, in the order of the columns of `predict_proba` and of the type they had in Python."""
        self._check_trained()
        return self.targets_.values

    @property
    def n_features_in_(self) -> int:
        """Features of each step, where sequences are vectors."""
        if not hasattr(self, "inputs_") or not isinstance(self.inputs_, VectorInputs):
            raise AttributeError("n_features_in_: this Classifier reads no vectors")
        return len(self.inputs_.mean)

    @overload
    def predict(
        self, inputs: Iterable[Any], *, threshold: float | None = None, details: Literal[False] = False
    ) -> list[Any]: ...

    @overload
    def predict(
        self, inputs: Iterable[Any], *, threshold: float | None = None, details: Literal[True]
    ) -> list[Classification]: ...

    def predict(
        self, inputs: Iterable[Any], *, threshold: float | None = None, details: bool = False
    ) -> list[Any] | list[Classification]:
        """The label of each input; a list of labels where there may be several; a number where that is the target; None for a text
        with nothing in it.

        With ``details`` each is a `Classification` with the probabilities of all classes. Raises a `DataError` for
        an input that is neither a text nor a sequence as in training.
        """
        self._check_trained()
        chosen = self._options(threshold=threshold)["threshold"]

        session = self.session
        given = session.kinds.from_python(inputs)
        return list(session.answer(given, {"threshold": chosen, "details": details}))

    def predict_proba(self, inputs: Iterable[Any]) -> np.ndarray[Any, np.dtype[np.float64]]:
        """p(class | input), ``(inputs, classes)``; rows sum to 1 unless there may be several labels."""
        self._check_trained()
        if self.targets_.kind == "number":
            raise AnaphoraError("a Classifier trained on numbers has no probabilities; use predict.")
        return self.targets_.probabilities(self._scores(inputs))

    @overload
    def score(self, data: Any, y: None = None, **options: Any) -> dict[str, Any]: ...

    @overload
    def score(self, data: Any, y: Any, **options: Any) -> float: ...

    def score(
        self,
        data: Any,
        y: Any | None = None,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        **options: Any,
    ) -> dict[str, Any] | float:
        """Accuracy, macro F1, precision, recall and F1 of each class and the confusion matrix (its rows are the true
        classes), in percent; for numbers the errors and how many are within ``tolerance``.

        ``score(X, y)`` is one number, as scikit-learn's tools need it: the accuracy as a share from 0 to 1, or R² of numbers.
        """
        if y is not None:
            measures = self.score(paired(data, plain_targets(y, self.targets_.kind)), **options)
            return float(measures["r2"] if self.targets_.kind == "number" else measures["accuracy"] / 100)
        chosen = self._options(**options)
        rows = self._scored(data, bad_rows, source_field=source_field, target_field=target_field)
        given, labels = zip(*rows.read(range(len(rows))), strict=True)
        found = self.targets_.answers(self._scores(given), chosen["threshold"])
        measured = class_measures(self.targets_, labels, found, self.settings_.tolerance)
        own = own_scores(self.settings_, self.targets_, labels, found, measured)
        return {"examples": len(labels), **measured.report, **own}

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Table:
        rows = open_labelled(
            data,
            role="test",
            bad_rows=bad_rows or self.settings_.bad_rows,
            scan=ANY_SIZE if getattr(self.inputs_, "fit", None) else self.settings_.scan,
            learnt=self.recipe_.trained_on,
            **fields,
        )
        self._check_labels(rows, "data")
        return rows

    def _judge(self, data: Table, options: Mapping[str, Any]) -> Judged:
        threshold = self._options(**options)["threshold"]
        given, labels = zip(*data.read(range(len(data))), strict=True)
        scores, seconds = timed(self._scores, given)
        shown = list(map(_outline, given)) if self.inputs_.kind == "vectors" else given
        found = self.targets_.answers(scores, threshold)
        measured = class_measures(self.targets_, labels, found, self.settings_.tolerance)
        return classes_judged(self.targets_, shown, labels, scores, found, measured, seconds)

    @probing
    def probe(
        self, x: Any, target: Any | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while one input is read; the loss looked back from is that of the class ``target``, or of
        the answer. ``what`` may ask for ``gradients`` and ``ablation`` of heads."""
        self._check_trained()
        no_beam(self, beam)
        return probe_classifier(self, x, target if target is None else str(target), what)

    def probe_embeddings(self) -> Trace:
        """The vectors of the symbols, for the view embeddings."""
        self._check_trained()
        if isinstance(self.inputs_, NGramInputs):
            raise AnaphoraError(
                f"the preset {self.settings_.model} weighs n-grams and has no vectors of them."
            )
        if not isinstance(self.inputs_, TextInputs):
            raise AnaphoraError("this Classifier reads vectors, so it has no vectors of symbols.")
        embedding = next(module for module in self.model_.modules() if isinstance(module, Embedding))
        return symbol_vectors(self, embedding, self.inputs_.tokenizer)

    @property
    def kinds(self) -> Kinds:
        whole = isinstance(self.inputs_, VectorInputs) and self.inputs_.size is not None
        longest = None if whole else self._longest
        output = LabelOutput(self.targets_, self._threshold)
        return Kinds(self._input, output, longest, learnt=self.recipe_.trained_on)

    def _scores(self, inputs: Iterable[Any]) -> Any:
        session = self.session
        given = session.kinds.from_python(inputs)
        return session.outputs(session.kinds.encode(given))

    @property
    def _longest(self) -> int:
        """Most steps of an example; a picture is never cut, nor is what a model without a network reads."""
        if self._direct or isinstance(self.inputs_, NGramInputs):
            return sys.maxsize
        size = self.inputs_.size if isinstance(self.inputs_, VectorInputs) else None
        return self.settings_.max_tokens if size is None else size[0]

    @property
    def _threshold(self) -> float:
        return usable(self.settings_, self._chosen)

    def _options(self, **given: Any) -> dict[str, Any]:
        asked = {key: value for key, value in given.items() if value is not None}
        chosen = build(ClassifyOptions, asked, owner="predict").model_dump()
        return chosen | {"threshold": chosen["threshold"] or self._threshold}


def _outline(x: Any) -> str:
    """A few numbers that stand for a sequence in the samples."""
    head = " ".join(f"{value:.3g}" for value in x.ravel()[:8])
    return f"{x.shape[0]} × {x.shape[1]}: {head} …"
