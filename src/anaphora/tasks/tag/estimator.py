"""``an.Tagger``: learn to give every word a tag."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor

from anaphora.data.conll_examples import given_sentences
from anaphora.data.conll_sentences import (
    Tagged,
    open_sentences,
    open_training_sentences,
    reopen_training_sentences,
    words_of,
)
from anaphora.data.sources.source import Source
from anaphora.data.tag_learnt import Learnt, Origin, choose_scheme, form_of_data
from anaphora.data.tag_schemes import allowed
from anaphora.data.tag_vocabulary import Letters, Reader, hiding_rates, learn_words
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError, DataError
from anaphora.models import tagger as models
from anaphora.models.classical.hmm.tagger import MOST_TAGS, HMMTagger
from anaphora.models.own import OwnTagger
from anaphora.probe.trace import Trace
from anaphora.tasks.config import RunConfig
from anaphora.tasks.estimator import Estimator, whatever_the_batch
from anaphora.tasks.judged import Judged, no_options, timed
from anaphora.tasks.keywords import TaggerKeywords, TaggerModel
from anaphora.tasks.learnt import read_tokenizer
from anaphora.tasks.looking import no_beam, symbol_vectors
from anaphora.tasks.own import own_model
from anaphora.tasks.pretrained import with_width
from anaphora.tasks.response import Response
from anaphora.tasks.tag.build import adopt_words, build_tagger, first_weights
from anaphora.tasks.tag.inference import Tagging, answers
from anaphora.tasks.tag.info import TaggerSettings
from anaphora.tasks.tag.metrics import tag_scores, tags_judged
from anaphora.tasks.tag.objective import TagObjective, decode, own_scores, training_batches
from anaphora.tasks.tag.probing import probe_tagger
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


class Tagger(Estimator):
    """Give every word a tag: parts of speech, named entities, chunks.

        m = an.Tagger(model="bilstm-crf")
        m.fit("train.conll", valid="dev.conll", out="runs/names")
        m.predict(["Teddy Roosevelt liked Teddy bears ."])

    ``anaphora models tag`` lists the presets and ``anaphora explain`` the settings.
    """

    command = "tag"
    settings_: TaggerSettings
    model_: models.Tagger | HMMTagger
    tokenizer_: Tokenizer
    learnt_: Learnt
    _reader: Reader

    def __init__(self, model: TaggerModel | str | None = None, **settings: Unpack[TaggerKeywords]) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _open(
        self, data: Tagged, valid: Tagged | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Source, Source]:
        s, named = self.settings_, dict[str, Any](fields)
        return open_training_sentences(
            data, valid, seed=s.seed, holdout=s.holdout, bad_rows=s.bad_rows, spill=spill, **named
        )

    def _learn(self, data: Source) -> None:
        s = self.settings_
        sentences = [(words_of(words), words_of(tags)) for words, tags in data]
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
        given = adopt_words(self)
        s = self.settings_
        self.tokenizer_ = given.tokenizer or learn_words(
            spoken, vocab_size=s.vocab_size, lowercase=s.lowercase
        )
        self.settings_ = s = with_width(s, self._given, self.tokenizer_)
        seen = None if s.characters == "none" else Letters.learn(word for words in spoken for word in words)
        letters = None if seen is None else "".join(seen.known)
        self.learnt_ = Learnt(tags, scheme, origin, letters=letters, context=given.context)
        self._make_reader()

    def _inherited(self) -> dict[str, Tensor]:
        return first_weights(self)

    def _make_reader(self) -> None:
        letters = self.learnt_.letters
        self._reader = Reader(self.tokenizer_, None if letters is None else Letters(tuple(letters)))

    def _symbols(self, data: Source) -> float:
        return float(sum(len(words_of(words)) for words, _ in data))

    def _fresh_model(self) -> models.Tagger:
        seed_everything(self.settings_.seed, "model")
        letters, learnt = self._reader.letters, self.learnt_
        words, tags = self.tokenizer_.size, len(learnt.tags)
        own = own_model(
            self.command,
            self.settings_,
            inputs=words,
            outputs=tags,
            vocabulary=self.tokenizer_,
            labels=learnt.tags,
        )
        if own is not None:
            rules = tuple(torch.from_numpy(rule) for rule in allowed(learnt.scheme, learnt.tags))
            return OwnTagger(own, tags, rules=rules)  # type: ignore[arg-type]
        return build_tagger(
            self.settings_,
            self.tokenizer_.size,
            letters.size if letters else 0,
            self.learnt_.tags,
            self.learnt_.scheme,
            self.learnt_.context,
        )

    def _lesson(self, data: Source, dev: Source) -> tuple[Objective, Batches]:
        s, learnt = self.settings_, self.learnt_
        number = {tag: i for i, tag in enumerate(learnt.tags)}
        rows = list(data)
        words = self._reader.read([words_of(words) for words, _ in rows])
        tags = [[number[tag] for tag in words_of(tags)] for _, tags in rows]
        batches = training_batches(
            words, tags, batch_tokens=s.batch_tokens, max_tokens=s.max_tokens, seed=s.seed
        )
        held = [(words_of(words), words_of(tags)) for words, tags in dev]
        read = self._reader.read([words for words, _ in held])
        objective = TagObjective(
            learnt.tags,
            [(words, symbols, tags) for (words, tags), symbols in zip(held, read, strict=True)],
            hiding=hiding_rates(words, self.tokenizer_.size, s.hide_rare),
            settings=s,
            metric=self._metric(),
            spans=learnt.spans,
        )
        return objective, batches

    def _metric(self) -> str:
        asked = self.settings_.metric
        if asked == "auto":
            return "f1" if self.learnt_.spans else "accuracy"
        if asked == "f1" and not self.learnt_.spans:
            raise DataError(
                "metric = f1 counts spans, but the training tags mark none; set metric = accuracy."
            )
        return asked

    def _reopen(self, run: RunFolder, config: RunConfig) -> tuple[Source, Source]:
        return reopen_training_sentences(config.data, spill=run.path / "data")

    def _write_learnt(self, run: RunFolder) -> None:
        run.write_text("learnt.json", self.learnt_.to_json())
        if not self._direct:
            run.write_text("tokenizer.json", self.tokenizer_.to_json())

    def _read_learnt(self, run: RunFolder) -> None:
        self.learnt_ = Learnt.from_json(run.read_text("learnt.json"), run.learnt)
        if self._direct:
            return
        self.tokenizer_ = read_tokenizer(run, Tokenizer, self)
        self._make_reader()

    def _vocabulary(self) -> dict[str, int]:
        learnt = self.learnt_
        words = len(learnt.words) if self._direct else self.tokenizer_.size
        letters = {} if learnt.letters is None else {"characters": len(learnt.letters)}
        return {"words": words, **letters, "tags": len(learnt.tags)}

    # ------------------------------------------------------------------ the HMM, which is counted

    def _solve(self, data: Source, dev: Source, reporter: Reporter | None) -> dict[str, float]:
        learnt = self.learnt_
        self._metric()  # refuse what cannot be measured before counting
        self.model_ = HMMTagger.fit(
            ((words_of(words), words_of(tags)) for words, tags in data),
            words=learnt.words,
            tags=learnt.tags,
            order=self.settings_.order,
            rules=allowed(learnt.scheme, learnt.tags),
        )
        scores = self._scores([(words_of(words), words_of(tags)) for words, tags in dev])
        return {key: value for key, value in scores.items() if isinstance(value, float)}

    def _weights(self) -> dict[str, Tensor]:
        if isinstance(self.model_, HMMTagger):
            return {
                "counts": torch.from_numpy(self.model_.counts),
                "moves": torch.from_numpy(self.model_.moves),
            }
        return super()._weights()

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        if not self._direct:
            super()._rebuild(tensors, device)
            return
        learnt = self.learnt_
        counts, moves = tensors["counts"].cpu().numpy(), tensors["moves"].cpu().numpy()
        expected = (len(learnt.tags) + 1,) * self.settings_.order
        if counts.shape != (2, len(learnt.words), len(learnt.tags)) or moves.shape != expected:
            raise RuntimeError("counts of other words or tags")
        rules = allowed(learnt.scheme, learnt.tags)
        self.model_ = HMMTagger(learnt.words, learnt.tags, counts, moves, rules=rules)

    # ------------------------------------------------------------------ use

    @overload
    def predict(
        self, sentences: Iterable[str | Sequence[str]], *, details: Literal[False] = False
    ) -> list[list[str]]: ...

    @overload
    def predict(
        self, sentences: Iterable[str | Sequence[str]], *, details: Literal[True]
    ) -> list[Tagging]: ...

    def predict(
        self, sentences: Iterable[str | Sequence[str]], *, details: bool = False
    ) -> list[list[str]] | list[Tagging]:
        """A tag for every word of each sentence, which is a list of words or a text with spaces between them.

        With ``details`` each is a `Tagging` with the probability of every tag.
        """
        found = self._tag(self._words(sentences), probabilities=details)
        return found if details else [tagging.tags for tagging in found]

    def tag(self, sentences: Iterable[str | Sequence[str]]) -> list[Tagging]:
        """The words of each sentence with their tags and how probable those are."""
        return self._tag(self._words(sentences), probabilities=True)

    def score(
        self,
        data: Tagged,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        form: str = "auto",
    ) -> dict[str, Any]:
        """Accuracy, precision, recall and F1 of spans where tags mark spans, and ``by_type`` the same for each; in percent."""
        self._check_trained()
        if form not in ("auto", form_of_data(data)):
            raise DataError(
                f"score reads the form of its data from their ending; rename the file to .{form}, or leave form out."
            )
        pairs = self._open_test(data, bad_rows, source_field=source_field, target_field=target_field)
        return self._scores([(words_of(words), words_of(tags)) for words, tags in pairs])

    def _open_test(self, data: Tagged, bad_rows: str | None, **fields: Any) -> Source:
        named = self.learnt_.origin.fields(
            form_of_data(data), fields.get("source_field"), fields.get("target_field")
        )
        return open_sentences(
            data,
            role="test",
            source_field=named["source_field"],
            target_field=named["target_field"],
            bad_rows=bad_rows or self.settings_.bad_rows,
        )

    def _judge(self, data: Source, options: Mapping[str, Any]) -> Judged:
        no_options(self, options)
        sentences = [words_of(words) for words, _ in data]
        found, seconds = timed(lambda some: self._tag(some, probabilities=False), sentences)
        predicted, gold = [one.tags for one in found], [words_of(tags) for _, tags in data]
        return tags_judged(sentences, gold, predicted, seconds, spans=self.learnt_.spans)

    def respond(self, source: str, options: Mapping[str, Any]) -> Iterator[Response]:
        """One response for each sentence; see `answers`."""
        self._check_trained()
        return answers(
            lambda sentences: self._tag(sentences, probabilities=True),
            source,
            options,
            self.learnt_.origin,
            self._trained_on,
        )

    @whatever_the_batch
    def probe(
        self,
        sentence: str | Sequence[str],
        target: str | Sequence[str] | None = None,
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
        return symbol_vectors(self, self.model_, self.tokenizer_)

    def _scores(self, gold: list[tuple[list[str], list[str]]]) -> dict[str, Any]:
        found = self._tag([words for words, _ in gold], probabilities=False)
        predicted, wanted = [one.tags for one in found], [tags for _, tags in gold]
        scores = tag_scores(predicted, wanted, spans=self.learnt_.spans)
        return scores | own_scores(self.settings_, wanted, predicted, scores)

    @whatever_the_batch
    def _tag(self, sentences: Sequence[Sequence[str]], *, probabilities: bool) -> list[Tagging]:
        model, tags = self.model_, self.learnt_.tags
        paths: list[list[int]]
        chances: list[list[float]]
        if isinstance(model, HMMTagger):
            paths = [model.decode(words).tolist() if words else [] for words in sentences]
            chances = [[] for _ in paths]
            if probabilities:
                chances = [
                    [float(row[i]) for row, i in zip(model.marginals(words), path, strict=True)]
                    if words
                    else []
                    for words, path in zip(sentences, paths, strict=True)
                ]
        else:
            model.eval()
            paths, chances = decode(
                model, self._reader.read(sentences), probabilities=probabilities, strict=True
            )
        both = zip(sentences, paths, chances, strict=True)
        return [Tagging(list(words), [tags[i] for i in path], chance) for words, path, chance in both]

    def _words(self, sentences: Iterable[str | Sequence[str]]) -> list[list[str]]:
        self._check_trained()
        return given_sentences(sentences)
