"""``an.Translator``: learn to turn one sequence into another of any length."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, Unpack

from torch import Tensor

from anaphora.data.asked import filled
from anaphora.data.batches.pairs import PairBatches
from anaphora.data.sources.opening import ROW_READER, open_source
from anaphora.data.split import Split
from anaphora.data.table import Table
from anaphora.data.tokenizers import PairTokenizer
from anaphora.kinds.measures.judged import Judged, timed
from anaphora.kinds.measures.texts import translation_measures, translations_judged
from anaphora.models.own import own_seq2seq
from anaphora.models.seq2seq import Seq2Seq
from anaphora.probe.trace import Trace
from anaphora.search import NBest
from anaphora.settings.search import most_symbols
from anaphora.tasks.artifacts import learn_sides
from anaphora.tasks.begun.translate import begin, first_weights
from anaphora.tasks.given import given_texts
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import TranslatorKeywords, TranslatorModel
from anaphora.tasks.looking import only_what, symbol_vectors
from anaphora.tasks.outputs import (
    Output,
    check_n_best,
    search_settings,
    searched_outputs,
    warn_of_limit,
)
from anaphora.tasks.own import own_model
from anaphora.tasks.plan import LOOK
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.remembered import rival_of
from anaphora.tasks.suiting.sizing import settle_r_drop
from anaphora.tasks.suiting.translate import check_invented, suit_pairs, writes_symbols
from anaphora.tasks.translate.build import build_seq2seq
from anaphora.tasks.translate.inference import encode_sources, search_outputs, warn_of_unknown
from anaphora.tasks.translate.info import TranslatorSettings
from anaphora.tasks.translate.objective import TranslationObjective
from anaphora.tasks.translate.probing import probe_translator
from anaphora.tasks.writing import Writer
from anaphora.training.objective import Batches, Objective
from anaphora.training.own import own_measures
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything


class Translator(Writer):
    """Turn one sequence into another: p(y|x) = ∏_τ p(y_τ | y_<τ, x).

        m = an.Translator(model="lstm-attention", hidden=256)
        m.fit("train.tsv", valid="dev.tsv", out="runs/en-de")
        m.predict(["two dogs run"], beam=5)

    ``anaphora models translate`` lists the presets and ``anaphora explain`` the settings.

    >>> pairs = [("one", "1"), ("two", "2"), ("two one", "2 1")] * 4
    >>> m = an.Translator("lstm-attention", hidden=8, embedding=8, steps=2, tokens="char").fit(pairs, valid=pairs[:3])
    >>> len(m.predict(["one two"], beam=2))
    1
    """

    command = "translate"
    settings_: TranslatorSettings
    model_: Seq2Seq
    tokenizer_: PairTokenizer
    begun_parts = ("",)

    def __init__(
        self, model: TranslatorModel | str | None = None, **settings: Unpack[TranslatorKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Table, Table]:
        if self.settings_.init:
            begin(self)
        s, named = self.settings_, dict[str, Any](fields)
        rule = Split("rows", s.holdout, s.seed)
        return ROW_READER.training(data, valid, rule, bad_rows=s.bad_rows, spill=spill, **named)

    def _learn(self, data: Table) -> None:
        if not self.settings_.init:
            suit_pairs(self, data)
            self.tokenizer_ = learn_sides(self.settings_, data)
        settle_r_drop(self)
        check_invented(self)

    def _suit_student(self, data: Table) -> None:
        if not self.settings_.init:
            suit_pairs(self, data)
        settle_r_drop(self)
        check_invented(self)

    def _inherited(self) -> dict[str, Tensor]:
        return first_weights(self) if self.settings_.init else {}

    def _symbols(self, data: Table) -> float:
        rows = data.read(range(0, len(data), max(1, len(data) // LOOK)))
        sources = self.tokenizer_.sources([source for source, _ in rows])
        targets = self.tokenizer_.targets([target for _, target in rows])
        longer = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
        return sum(longer) / len(longer) * len(data)

    def _fresh_model(self) -> Seq2Seq:
        seed_everything(self.settings_.seed, "model")
        source, target = self.tokenizer_.source.size, self.tokenizer_.target.size
        own = own_model(
            self.command, self.settings_, inputs=source, outputs=target, vocabulary=self.tokenizer_
        )
        if own is not None:
            return own_seq2seq(own, target)
        return build_seq2seq(self.settings_, self.tokenizer_.source.size, self.tokenizer_.target.size)

    def _objective_and_batches(self, data: Table, dev: Table) -> tuple[Objective, Batches]:
        s = self.settings_
        batches = PairBatches(
            data,
            self.tokenizer_,
            batch_tokens=s.batch_tokens,
            max_tokens=s.max_tokens,
            seed=s.seed,
            bpe_dropout=s.bpe_dropout,
            invented=s.invented,
        )
        if batches.lengths is not None:
            sources, targets = (side.tolist() for side in batches.lengths)
            limits = [most_symbols(source, s.max_length) for source in sources]
            if s.max_length:
                warn_of_limit([target + 1 for target in targets], limits, f"max_length = {s.max_length}")
            elif any(target >= limit for target, limit in zip(targets, limits, strict=True)):
                longest = max(targets) + 1
                s = self.settings_ = s.model_copy(update={"max_length": longest + longest // 2})
        shown = dev.read(range(min(len(dev), s.valid_examples)))
        return TranslationObjective(s, self.tokenizer_, shown, symbols=writes_symbols(data)), batches

    def _advice(self, run: Path) -> str:
        return str(rival_of(self, run) or "")

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Table, Table]:
        return ROW_READER.reopen(recipe.data, run.path / "data")

    def _vocabulary(self) -> dict[str, int]:
        return {"source": self.tokenizer_.source.size, "target": self.tokenizer_.target.size}

    # ------------------------------------------------------------------ use

    @whatever_the_batch
    def search(self, texts: Iterable[str], /, *, n_best: int = 1, **options: Any) -> list[list[Output]]:
        """The ``n_best`` outputs for each text with their scores, different texts and best first; samples as they were drawn. Of a
        text with nothing in it the output is empty.

        Options are those of `predict`.
        """
        self._check_trained()
        pair = self.tokenizer_.between(options.pop("source_language", ""), options.pop("target_language", ""))
        settings = search_settings(self.settings_, options, self.tokenizer_.target)
        check_n_best(n_best)

        def found(some: Sequence[list[int]], wide: int) -> list[NBest]:
            return search_outputs(self.model_, some, n_best=wide, around=pair.around, **settings)

        decode, drawn = self.tokenizer_.target.decode, settings["decode"] == "sample"

        def answer(full: list[str]) -> list[list[Output]]:
            return searched_outputs(found, self._encode(full, pair), n_best, decode, drawn=drawn)

        return filled(given_texts(texts, self.recipe_.trained_on), answer, [Output("", 0.0, 0.0, True)])

    def score(
        self,
        data: Any,
        *,
        source_field: str | None = None,
        target_field: str | None = None,
        bad_rows: str | None = None,
        **search: Any,
    ) -> dict[str, Any]:
        """BLEU and chrF (with sacrebleu's signatures) and exact match of the outputs for ``data``, in percent.

        References are compared as the model knows them: with single spaces, and in lower case if it was trained so.
        """
        rows = list(self._scored(data, bad_rows, source_field=source_field, target_field=target_field))
        outputs = self.predict([source for source, _ in rows], **search)
        references = [self.tokenizer_.target.normalized(target) for _, target in rows]
        report = translation_measures(outputs, references, tokenize=self.settings_.bleu_tokenize).report
        return {**report, **own_measures(self.settings_, references, outputs, report)}

    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Table:
        return open_source(
            data,
            role="test",
            bad_rows=bad_rows or self.settings_.bad_rows,
            learnt=self.recipe_.trained_on,
            **fields,
        )

    def _judge(self, data: Table, options: Mapping[str, Any]) -> Judged:
        rows = list(data)
        sources = [source for source, _ in rows]
        outputs, seconds = timed(lambda some: self.predict(some, **options), sources)
        references = [self.tokenizer_.target.normalized(target) for _, target in rows]
        measured = translation_measures(outputs, references, tokenize=self.settings_.bleu_tokenize)
        return translations_judged(sources, references, outputs, measured, seconds)

    @probing
    def probe(
        self, text: str, target: str | None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while ``text`` becomes the best output, or the ``target`` given."""
        only_what(self, what, ("gradients", "attribution", "ablation"))
        (source,) = self._encode([text])
        return probe_translator(self, text, source, target, beam=beam, what=what)

    def probe_embeddings(self) -> Trace:
        """The vectors of the source's symbols, for the view embeddings."""
        self._check_trained()
        return symbol_vectors(self, self.model_.encoder, self.tokenizer_.source)

    def between(self, source: str = "", target: str = "") -> Self:
        """Translate from one language to another from now on, with a model that knows many (M2M-100, NLLB).

            m = an.load("m2m100_418M").between("en", "fr")

        A code that is not given stays as it is. Raises a `DataError` for one that the model does not know, and for a model that
        does not choose among languages.
        """
        self._check_trained()
        self.tokenizer_ = self.tokenizer_.between(source, target)
        return self

    def _encode(self, texts: Iterable[str], pair: PairTokenizer | None = None) -> list[list[int]]:
        self._check_trained()
        given = given_texts(texts, self.recipe_.trained_on)
        self.model_.eval()
        tokenizer = pair or self.tokenizer_
        sources = encode_sources(tokenizer, given, self.settings_.max_tokens)
        warn_of_unknown(tokenizer, given, sources)
        return sources
