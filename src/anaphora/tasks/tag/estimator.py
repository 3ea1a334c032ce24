"""``an.Tagger``: learn to give every word a tag, or every frame a label."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from anaphora.data.labelled_targets import Targets, split
from anaphora.data.sources.conll import words_of
from anaphora.data.sources.sentences import given_sentences
from anaphora.data.sources.tagged import TAGGED_READER, open_tagged
from anaphora.data.split import Split
from anaphora.data.table import Table
from anaphora.data.tag_learnt import Learnt, Origin, choose_scheme, form_of_data
from anaphora.data.tag_vocabulary import Letters, Reader, learn_words
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.word_pieces import PieceReader
from anaphora.errors import AnaphoraError, DataError
from anaphora.kinds.kind import given_inputs
from anaphora.kinds.measures.judged import Judged, Measured, no_options, timed
from anaphora.kinds.measures.tags import frame_measures, tag_measures, tags_judged
from anaphora.kinds.vectors import FrameReader, VectorInputs
from anaphora.models import tagger as models
from anaphora.models.classical.hmm.tagger import MOST_TAGS, HMMTagger
from anaphora.probe.trace import Trace
from anaphora.tasks.balancing import balance
from anaphora.tasks.begun.tag import adopt_words, first_weights
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import TaggerKeywords, TaggerModel
from anaphora.tasks.learning import check_shared, given_labels, label_kind, warn_of_single_words
from anaphora.tasks.looking import no_beam, symbol_vectors
from anaphora.tasks.pretrained import with_width
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.tag import suit_sentences
from anaphora.tasks.tag.build import counted_hmm, fresh_tagger, hmm_tensors, rebuilt_hmm
from anaphora.tasks.tag.inference import Tagging, answered, tagged
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.tasks.tag.objective import objective_and_batches, outline, spelled
from anaphora.tasks.tag.probing import probe_tagger
from anaphora.training.loop import TrainingResult
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import own_measures
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


class Tagger(Estimator):
    """Give every word a tag (parts of speech, named entities, chunks), or every frame of vectors a label.

        m = an.Tagger(model="bilstm-crf")
        m.fit("train.conll", valid="dev.conll", out="runs/names")
        m.predict(["Teddy Roosevelt liked Teddy bears ."])

        an.Tagger(model="bilstm").fit(X, y)      # X[i] (time, features), y[i] with a label for every frame

    A label is a class, with ``target="classes"`` any number of them, with ``target="number"`` a number.
    ``anaphora models tag`` lists the presets and ``anaphora explain`` the settings.

    >>> m = an.Tagger("hmm").fit([("the dog", "DET NOUN"), ("a cat", "DET NOUN")] * 6)
    >>> m.predict([["the", "cat"]])
    [['DET', 'NOUN']]
    """

    command = "tag"
    settings_: TaggerSettings
    model_: models.Tagger | HMMTagger
    tokenizer_: Tokenizer
    learnt_: Learnt
    _reader: Reader | PieceReader | FrameReader
    _labels = "str"

    def __init__(self, model: TaggerModel | str | None = None, **settings: Unpack[TaggerKeywords]) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Table, Table]:
        s = self.settings_
        read: dict[str, Any] = {"bad_rows": s.bad_rows, "spill": spill, **fields}
        return TAGGED_READER.training(data, valid, Split("rows", s.holdout, s.seed), **read)

    def _note(self, data: Any, fields: Mapping[str, str | None]) -> None:
        labels = given_labels(data, dict(fields)) or ()
        self._labels = label_kind([row.tolist() if hasattr(row, "tolist") else row for row in labels])

    def _learn(self, data: Table) -> None:
        s = self.settings_
        if data.holds_vectors:
            self._learn_frames(data)
            return
        for key, usual in (("target", "class"), ("frontend", "none")):
            if getattr(s, key) != usual:
                raise DataError(
                    f"{key} = {getattr(s, key)} is about frames of vectors, but the data are words; leave it out."
                )
        sentences = [(words_of(words), words_of(tags)) for words, tags in data]
        warn_of_single_words([words for words, _ in sentences])
        scheme = choose_scheme(s.scheme, [tags for _, tags in sentences])
        tags = tuple(sorted({tag for _, tags in sentences for tag in tags}))
        origin = Origin.of(data.describe())
        if self._direct:
            if s.order == 3 and len(tags) > MOST_TAGS:
                raise DataError(
                    f"the training data have {len(tags)} tags, and order = 3 takes at most {MOST_TAGS}; set order = 2."
                )
            known = tuple(sorted({word for words, _ in sentences for word in words}))
            self.learnt_ = Learnt(tags, scheme, origin, words=known)
            return
        spoken = [words for words, _ in sentences]
        if not s.init:
            suit_sentences(self, data.describe(), spoken, spans=scheme != "none")
        given = adopt_words(self, spoken)
        s = self.settings_
        self.tokenizer_ = given.tokenizer or learn_words(
            spoken, vocab_size=s.vocab_size, lowercase=s.lowercase
        )
        self.settings_ = s = with_width(s, self._given, self.tokenizer_)
        seen = None if s.characters == "none" else Letters.learn(word for words in spoken for word in words)
        letters = None if seen is None else "".join(seen.known)
        self.learnt_ = Learnt(
            tags, scheme, origin, letters=letters, context=given.context, framing=given.framing
        )
        self._make_reader()

    def _learn_frames(self, data: Table) -> None:
        s = self.settings_
        if s.init or s.embeddings:
            raise DataError("init and embeddings are about words, but the data are vectors; leave them out.")
        if self._direct:
            raise DataError(f"the preset {s.model} counts words, but the data are vectors; choose another.")
        labels = [words_of(text) for text in data.column(1)]
        scheme = choose_scheme(s.scheme, labels) if s.target == "class" else "none"
        targets = Targets.learn(s.target, [label for row in labels for label in row])
        targets = replace(targets, labels="str" if s.target == "number" else self._labels)
        if "max_tokens" not in self._given:
            longest = max(len(x) for x in data.column(0))
            self.settings_ = s.model_copy(update={"max_tokens": max(s.max_tokens, longest)})
        self._reader = FrameReader(VectorInputs.learn(data.column(0), s.scale), targets)
        self.learnt_ = Learnt(targets.names, scheme, Origin(), frames=self._reader.to_json())

    def _check_labels(self, data: Table, *names: str) -> None:
        check_shared(self.targets_, (tag for row in self._apart(data)[1] for tag in row), *names)

    @property
    def framewise(self) -> bool:
        """Whether frames of vectors are tagged instead of words."""
        return self.learnt_.frames is not None

    @property
    def targets_(self) -> Targets:
        """What a label is."""
        return self._reader.targets if self.framewise else Targets("class", self.learnt_.tags)  # type: ignore[union-attr]

    def _inherited(self) -> dict[str, Tensor]:
        return first_weights(self)

    def _take(self, recipe: Recipe) -> None:
        super()._take(recipe)
        if recipe.artifacts and not recipe.direct:
            self._make_reader()

    def _make_reader(self) -> None:
        if self.learnt_.frames is not None:
            self._reader = FrameReader.from_json(self.learnt_.frames)
            return
        letters = self.learnt_.letters
        kind = PieceReader if self.learnt_.framing else Reader
        self._reader = kind(self.tokenizer_, None if letters is None else Letters(tuple(letters)))

    def _symbols(self, data: Table) -> float:
        return float(sum(len(words_of(tags)) for _, tags in _pairs(data)))

    def _fresh_model(self) -> models.Tagger:
        seed_everything(self.settings_.seed, "model")
        return fresh_tagger(self)

    def _objective_and_batches(self, data: Table, dev: Table) -> tuple[Objective, Batches]:
        return objective_and_batches(self, self._apart(data), self._apart(dev))

    def _after_steps(self, run: RunFolder, dev: Any, result: TrainingResult) -> TrainingResult:
        """Balance the precision and recall of spans on the dev data."""
        return balance(self, run, *self._apart(dev), result)

    def _apart(self, data: Table) -> tuple[list[Any], list[list[str]]]:
        """The sentences (lists of words) or sequences of frames, and their labels."""
        pairs = list(_pairs(data))
        inputs = [x if self.framewise else words_of(x) for x, _ in pairs]
        return inputs, [words_of(tags) for _, tags in pairs]

    def _metric(self) -> str:
        asked = self.settings_.metric
        if asked == "auto":
            return "loss" if self.targets_.kind == "number" else "f1" if self.learnt_.spans else "accuracy"
        if asked == "f1" and not (self.learnt_.spans or self.framewise):
            raise DataError(
                "metric = f1 counts spans, but the training tags mark none; set metric = accuracy."
            )
        return asked

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Table, Table]:
        return TAGGED_READER.reopen(recipe.data, run.path / "data")

    def _vocabulary(self) -> dict[str, int]:
        learnt = self.learnt_
        if isinstance(getattr(self, "_reader", None), FrameReader):
            return {**self._reader.inputs.sizes, "tags": len(learnt.tags)}  # type: ignore[union-attr]
        words = len(learnt.words) if self._direct else self.tokenizer_.size
        letters = {} if learnt.letters is None else {"characters": len(learnt.letters)}
        return {"words": words, **letters, "tags": len(learnt.tags)}

    # ------------------------------------------------------------------ the HMM, which is counted

    def _solve(self, data: Table, dev: Table, reporter: Reporter | None) -> dict[str, float]:
        learnt = self.learnt_
        self._metric()  # refuse what cannot be measured before counting
        self.model_ = counted_hmm(learnt, self.settings_.order, data)
        scores = self._scores(*self._apart(dev))
        return {key: value for key, value in scores.items() if isinstance(value, float)}

    def _weights(self) -> dict[str, Tensor]:
        if isinstance(self.model_, HMMTagger):
            return hmm_tensors(self.model_)
        return super()._weights()

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        if not self._direct:
            super()._rebuild(tensors, device)
            return
        self.model_ = rebuilt_hmm(self.learnt_, self.settings_.order, tensors)

    # ------------------------------------------------------------------ use

    @overload
    def predict(self, sentences: Iterable[Any], *, details: Literal[False] = False) -> list[list[Any]]: ...

    @overload
    def predict(self, sentences: Iterable[Any], *, details: Literal[True]) -> list[Tagging]: ...

    def predict(self, sentences: Iterable[Any], *, details: bool = False) -> list[list[Any]] | list[Tagging]:
        """A tag for every word of each sentence, which is a list of words or a text with spaces between them; or a label for
        every frame of each array ``(time, features)``.

        With ``details`` each is a `Tagging` with the probability of every tag.
        """
        found = tagged(self, self._read(sentences))
        return found if details else [tagging.tags for tagging in found]

    def predict_proba(self, sentences: Iterable[Any]) -> list[Any]:
        """p(label | sequence) of every word or frame, an array ``(time, classes)`` for each sequence."""
        self._check_trained()
        if self.targets_.kind == "number":
            raise AnaphoraError("a Tagger trained on numbers has no probabilities; use predict.")
        return self._answer(self._read(sentences))[1]

    def tag(self, sentences: Iterable[str | Sequence[str]]) -> list[Tagging]:
        """The words of each sentence with their tags and how probable those are."""
        return tagged(self, self._read(sentences))

    def score(
        self,
        data: Any,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        form: str = "auto",
    ) -> dict[str, Any]:
        """Accuracy, precision, recall and F1 of spans where tags mark spans, and ``by_type`` the same for each; in percent.

        Of frames accuracy and the mean F1 of the classes; of numbers ``mse``, ``mae`` and ``r2``. Raises a `DataError` where
        the data are words but frames were learned, or the reverse.
        """
        self._check_trained()
        if form not in ("auto", form_of_data(data)):
            raise DataError(
                f"score reads the form of its data from their ending; rename the file to .{form}, or leave form out."
            )
        pairs = self._scored(data, bad_rows, source_field=source_field, target_field=target_field)
        return self._scores(*self._apart(pairs))

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Table:
        named: dict[str, Any] = self.learnt_.origin.fields(
            form_of_data(data), fields.get("source_field"), fields.get("target_field")
        )
        learnt = self.recipe_.trained_on.get("of", self.recipe_.trained_on).get("pairs")
        pairs = open_tagged(
            data, role="test", bad_rows=bad_rows or self.settings_.bad_rows, learnt=learnt, **named
        )
        if pairs.holds_vectors != self.framewise:
            has, reads = ("frames", "words") if pairs.holds_vectors else ("words", "frames of vectors")
            raise DataError(f"the data are {has}, but this Tagger was trained on {reads}; give it those.")
        self._check_labels(pairs, "data")
        return pairs

    def _judge(self, data: Table, options: Mapping[str, Any]) -> Judged:
        no_options(self, options)
        inputs, gold = self._apart(data)
        (found, _), seconds = timed(self._answer, inputs)
        shown = [outline(x) if self.framewise else " ".join(x) for x in inputs]
        measured = self._measured(found, gold)
        write: Callable[[Any], str] = str if self.targets_.kind == "class" else spelled
        if self.targets_.kind == "classes":
            gold = [[spelled(sorted(split(label))) for label in row] for row in gold]
            found = [[sorted(map(str, labels)) for labels in row] for row in found]
        written = [list(map(write, row)) for row in found]
        return tags_judged(shown, gold, written, measured, seconds)

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        return "numbers" if self.framewise else "text"

    @probing
    def probe(
        self,
        sentence: Any,
        target: str | Sequence[Any] | None = None,
        *,
        what: Sequence[str] = (),
        beam: int | None = None,
    ) -> Trace:
        """What happens inside while one sentence is tagged; the loss looked back from is that of the tags ``target``, or
        of its own. ``what`` may ask for ``gradients`` and ``ablation`` of heads."""
        self._check_trained()
        no_beam(self, beam)
        return probe_tagger(self, sentence, target, what)

    def probe_embeddings(self) -> Trace:
        """The vectors of the words, for the view embeddings."""
        self._check_trained()
        if isinstance(self.model_, HMMTagger):
            raise AnaphoraError("a hidden Markov model counts words and has no vectors of them.")
        if self.framewise:
            raise AnaphoraError("this Tagger reads frames, so it has no vectors of words.")
        return symbol_vectors(self, self.model_, self.tokenizer_)

    def _scores(self, inputs: list[Any], gold: list[list[str]]) -> dict[str, Any]:
        return self._report(self._answer(inputs)[0], gold)

    def _report(self, found: list[list[Any]], gold: list[list[str]]) -> dict[str, Any]:
        """How good the labels ``found`` are, by our measures and the user's, which see all of them one after the other."""
        number = self.targets_.kind == "number"
        truth: list[Any] = [float(y) if number else y for row in gold for y in row]
        answers = [y if number else spelled(y) for row in found for y in row]
        report = self._measured(found, gold).report
        return {**report, **own_measures(self.settings_, truth, answers, report)}

    def _measured(self, found: list[list[Any]], gold: list[list[str]]) -> Measured:
        if self.framewise and not self.learnt_.spans:
            return frame_measures(self.targets_, found, gold)
        return tag_measures([list(map(str, row)) for row in found], gold, spans=self.learnt_.spans)

    @whatever_the_batch
    def _answer(self, inputs: Sequence[Any]) -> tuple[list[list[Any]], list[Any]]:
        """The labels of each input, and the probabilities ``(time, classes)`` of all of them."""
        return answered(self, inputs)

    def _read(self, inputs: Iterable[Any]) -> list[Any]:
        self._check_trained()
        return given_inputs(inputs, self.recipe_.trained_on) if self.framewise else self._words(inputs)

    def _words(self, sentences: Iterable[str | Sequence[str]]) -> list[list[str]]:
        return given_sentences(sentences)


def _pairs(data: Table) -> Iterable[tuple[Any, str]]:
    return data.read(range(len(data))) if data.holds_vectors else data
