"""``an.LanguageModel``: learn what comes next, judge texts, write new ones."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Literal, Unpack, overload

import numpy as np
import torch
from torch import Tensor, nn

from anaphora.data.asked import filled
from anaphora.data.batches.stream import LineBatches, StreamBatches, WindowBatches
from anaphora.data.split import Split
from anaphora.data.symbols import BOS, EOS, UNK
from anaphora.data.text import TEXT_READER, Data, Text, open_text
from anaphora.data.tokenizers import ENOUGH_TEXT, Tokenizer
from anaphora.errors import AnaphoraError, DataError, SettingsError
from anaphora.inference.session import check_finite
from anaphora.kinds.measures.judged import Judged, no_options, timed
from anaphora.kinds.measures.symbols import lines_judged, summary
from anaphora.models.language import Language
from anaphora.models.own import own_language
from anaphora.probe.trace import Trace
from anaphora.settings import build
from anaphora.settings.language import LanguageSettings, SampleOptions, SampleSettings, ScoreOptions
from anaphora.settings.own import Part
from anaphora.tasks.artifacts import learn_tokenizer
from anaphora.tasks.begun.language import begin, first_weights
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.given import given_texts
from anaphora.tasks.guarding import probing, whatever_the_batch
from anaphora.tasks.keywords import LanguageModelKeywords, LanguageModelModel
from anaphora.tasks.language.build import (
    build_language,
    fit_ngram,
    ngram_line_log_probs,
    ngram_tensors,
    rebuild_ngram,
)
from anaphora.tasks.language.inference import LineScore, Listen, device_of, draw, shown
from anaphora.tasks.language.log_probs import (
    adapted,
    encoded,
    log_probs,
    symbol_log_probs,
    training_rows,
)
from anaphora.tasks.language.objective import LanguageObjective, MaskedObjective, masked_measures
from anaphora.tasks.language.probing import probe_language
from anaphora.tasks.looking import no_beam, no_target, symbol_vectors
from anaphora.tasks.own import own_model
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.suiting.counts import rival_of
from anaphora.tasks.suiting.language import suit_text
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything

MOST_EXAMPLES = 1000
"""Lines of the dev text that can be named by their number."""


class LanguageModel(Estimator):
    """What comes next: p(x₁ … x_T) = ∏_t p(x_t | x_<t).

        m = an.LanguageModel(model="lstm", tokens="char")
        m.fit("book.txt", out="runs/book")
        m.sample("Once upon", temperature=0.8)
        m.rank(["an example sentence", "an egg-sample sentence"])

    ``anaphora models language`` lists the presets and ``anaphora explain`` the settings.

    >>> m = an.LanguageModel("ngram", tokens="char").fit(["abab", "abba"] * 5)
    >>> m.rank(["bbbb", "abab"])[0].text
    'abab'
    """

    command = "language"
    begun_parts = ("",)
    settings_: LanguageSettings
    tokenizer_: Tokenizer

    def __init__(
        self, model: LanguageModelModel | str | None = None, **settings: Unpack[LanguageModelKeywords]
    ) -> None:
        super().__init__(model, **settings)

    # ------------------------------------------------------------------ training

    def _join(self, X: Any, y: Any) -> Any:
        raise DataError("a LanguageModel learns from texts alone; leave y out, and give dev data by valid=….")

    def _open(
        self, data: Data, valid: Data | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Text, Text]:
        if self.settings_.init:
            begin(self)
        s = self.settings_
        rule = Split("stream lines" if s.lines else "stream end", s.holdout, s.seed)
        return TEXT_READER.training(data, valid, rule, bad_rows=s.bad_rows, spill=spill, **fields)

    def _learn(self, data: Text) -> None:
        if not self.settings_.init:
            suit_text(self, data)
            self.tokenizer_ = self._made_tokenizer(data)

    def _inherited(self) -> dict[str, Tensor]:
        return first_weights(self) if self.settings_.init else {}

    def _made_tokenizer(self, data: Text) -> Tokenizer:
        s = self.settings_
        stride = 1 + data.characters // ENOUGH_TEXT
        blocks = (block for number, block in enumerate(data.blocks()) if number % stride == 0)
        return learn_tokenizer(s, blocks, raw=not s.lines)

    def _symbols(self, data: Text) -> float:
        block = next(data.blocks())[:100_000]
        return len(self.tokenizer_.encode(block)) / max(1, len(block)) * data.characters

    def _fresh_model(self) -> nn.Module:
        seed_everything(self.settings_.seed, "model")
        size = self.tokenizer_.size
        own = own_model(self.command, self.settings_, inputs=size, outputs=size, vocabulary=self.tokenizer_)
        if own is not None:
            return own_language(own, size, self.settings_.context)
        breaks = 0 if self.settings_.lines else self.tokenizer_.line_break
        return build_language(self.settings_, size, breaks)

    def _objective_and_batches(self, data: Text, dev: Text) -> tuple[Objective, Batches]:
        s, held = self.settings_, encoded(self, dev, self.settings_.valid_symbols)
        batches = self._batches(data)
        if s.model == "masked":
            return MaskedObjective(s, self.tokenizer_.size, held[0]), batches

        def measure(model: Any) -> dict[str, float]:
            return summary(log_probs(self, model, held[0]), held[1])

        return LanguageObjective(
            s, self.tokenizer_.size, measure=measure, show=lambda model: shown(self, model)
        ), batches

    def _batches(self, data: Text) -> Batches:
        s = self.settings_
        if s.lines:
            rows = training_rows(self, data)
            return LineBatches(rows, batch_tokens=s.batch_tokens, max_tokens=s.max_tokens, seed=s.seed)
        (ids,) = training_rows(self, data)
        whole = s.model in ("transformer", "masked") or isinstance(s.model, Part)
        steps = s.context if whole else s.bptt
        kind = WindowBatches if whole else StreamBatches
        return kind(ids, rows=max(1, s.batch_tokens // steps), steps=steps, seed=s.seed)

    def _solve(self, data: Text, dev: Text, reporter: Reporter | None) -> dict[str, float]:
        self.model_ = fit_ngram(self.settings_, training_rows(self, data), self.tokenizer_.size)
        held, characters = encoded(self, dev)
        return summary(log_probs(self, self.model_, held), characters)

    def _advice(self, run: Path) -> str:
        return str(rival_of(self, run) or "")

    def _weights(self) -> dict[str, Tensor]:
        return ngram_tensors(self.model_) if self._direct else super()._weights()

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        if self._direct:
            self.model_ = rebuild_ngram(self.settings_, tensors)
        else:
            super()._rebuild(tensors, device)

    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Text, Text]:
        return TEXT_READER.reopen(recipe.data, run.path / "data")

    def _count(self, dev: Text) -> int:
        return sum(1 for _ in islice(_filled(dev), MOST_EXAMPLES))

    def _example(self, dev: Text, number: int) -> tuple[str, str]:
        """Line ``number`` of the dev text that is not empty."""
        return next(islice(_filled(dev), number, None)), ""

    def _some(self, dev: Text, numbers: Sequence[int]) -> list[tuple[str, str]]:
        wanted = set(numbers)
        some = islice(_filled(dev), max(wanted, default=-1) + 1)
        return [(line, "") for i, line in enumerate(some) if i in wanted]

    def _vocabulary(self) -> dict[str, int]:
        return {"symbols": self.tokenizer_.size}

    # ------------------------------------------------------------------ the next symbol, for any search

    @property
    def begin(self) -> int:
        """The symbol before the first: <s> for lines, a line break for running text."""
        return BOS if self.settings_.lines else self.tokenizer_.line_break

    @property
    def end(self) -> int:
        """The symbol that ends a line: </s>, or a line break."""
        return EOS if self.settings_.lines else self.tokenizer_.line_break

    def start(self, rows: int = 1) -> Any:
        """What is carried before `begin`, for `anaphora.search`."""
        self._check_one_way("step")
        return self.model_.start(rows)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        """log p of every next symbol ``(rows, symbols)`` after one more ``(rows,)``, and the new state."""
        log_probs, state = self.model_.step(symbols, state)
        return log_probs, state

    # ------------------------------------------------------------------ use

    @whatever_the_batch
    def read(self, texts: Iterable[str]) -> list[LineScore]:
        """How probable each text is as a line: log p(x₁ … x_T, end), in nats."""
        self._check_one_way("the probability of a line")
        back = -1 if self.settings_.backward else 1
        given = given_texts(texts, self.recipe_.trained_on)
        rows = [[*row[::back], self.end] for row in self.tokenizer_.encode_batch(given)]
        if self._direct:
            found = ngram_line_log_probs(self.model_, rows, self.begin)
        else:
            found = symbol_log_probs(self.model_.eval(), rows, self.begin)
            check_finite(found, "text")
        return [
            LineScore(text, float(values.sum()), len(values))
            for text, values in zip(given, found, strict=True)
        ]

    @overload
    def predict(self, texts: Iterable[str], *, details: Literal[False] = False) -> list[float | None]: ...

    @overload
    def predict(self, texts: Iterable[str], *, details: Literal[True]) -> list[LineScore | None]: ...

    def predict(
        self, texts: Iterable[str], *, details: bool = False
    ) -> list[float | None] | list[LineScore | None]:
        """Return log p of each text as a line, in nats; with ``details`` the `LineScore`, which has its perplexity too; None for a
        text with nothing in it."""
        found: list[LineScore | None] = filled(given_texts(texts, self.recipe_.trained_on), self.read)
        return found if details else [None if line is None else line.log_prob for line in found]

    def rank(self, alternatives: Iterable[str]) -> list[LineScore]:
        """The alternatives, the most probable first."""
        return sorted(self.read(alternatives), key=lambda line: -line.log_prob)

    def score(
        self, data: Data, *, bad_rows: str | None = None, source_field: str | None = None, **options: Any
    ) -> dict[str, Any]:
        """Loss in nats per symbol, perplexity and bits per character of ``data``; for ``masked`` how well hidden
        symbols are guessed.

        ``options`` let the model learn from what it has judged: ``dynamic`` (a learning rate), ``dynamic_steps``,
        ``dynamic_decay``, ``cache`` (places), ``cache_flatness``, ``cache_weight``. The text is then read from its beginning to its
        end, and the model is the same afterwards. Raises a `SettingsError` where it cannot learn so.

            m.score("test.txt", dynamic=3e-4, cache=2000)
        """
        self._check_trained()
        s = self.settings_
        how = self._score_options(options)
        text = self._scored(data, bad_rows, source_field=source_field)
        rows, characters = encoded(self, text)
        if not self._direct:
            self.model_.eval()
        if s.model == "masked":
            return self._guessed(rows)
        # a model that learns as it goes reads one row at a time, which no other could change
        found = adapted(self, rows, how) if how.adapts else self._steady(rows)
        if not self._direct:
            check_finite(found, "line" if s.lines else "text")
        unknown = sum(int((np.asarray(row) == UNK).sum()) for row in rows)
        counts = {"symbols": sum(map(len, found)), "characters": characters, "unknown": unknown}
        return {**summary(found, characters), **counts}

    @whatever_the_batch
    def _guessed(self, rows: Sequence[Any]) -> dict[str, Any]:
        return dict(masked_measures(self.model_, rows, self.settings_, self.tokenizer_.size))

    @whatever_the_batch
    def _steady(self, rows: Sequence[Any]) -> list[np.ndarray[Any, Any]]:
        return log_probs(self, self.model_, rows)

    def _score_options(self, options: Mapping[str, Any]) -> ScoreOptions:
        how = build(ScoreOptions, options, owner="score")
        learns = isinstance(self.model_, Language)
        if how.adapts and not learns:
            key = "dynamic" if how.dynamic else "cache"
            raise SettingsError(
                [
                    f"{key} has no effect on the preset {self.settings_.model}, whose states predict no next symbol; leave it out."
                ]
            )
        return how

    def _open_test(self, data: Data, bad_rows: str | None, **fields: Any) -> Text:
        learnt = self.recipe_.trained_on.get("of", self.recipe_.trained_on)
        trained = learnt.get("source_field") if isinstance(data, str | Path) else None
        named = fields.get("source_field") or trained
        return open_text(data, role="test", bad_rows=bad_rows or self.settings_.bad_rows, source_field=named)

    @whatever_the_batch
    def _judge(self, data: Text, options: Mapping[str, Any]) -> Judged:
        no_options(self, options)
        self._check_one_way("a comparison")
        if not self._direct:
            self.model_.eval()
        rows, _ = encoded(self, data)
        found, seconds = timed(lambda some: log_probs(self, self.model_, some), rows)
        if not self._direct:
            check_finite(found, "line" if self.settings_.lines else "text")
        return lines_judged(data, rows, found, seconds, self.tokenizer_, by_line=self.settings_.lines)

    @whatever_the_batch
    def sample(self, prompt: str = "", *, listen: Listen | None = None, **options: Any) -> list[str]:
        """New texts that go on from ``prompt``: ``length``, ``temperature``, ``top_k``, ``top_p``, ``min_p``, ``seed``
        and ``n`` as in the settings, and ``precision``. ``listen`` is called with each piece of the first one as it is drawn."""
        self._check_one_way("new text")
        if self.settings_.backward:
            raise AnaphoraError(
                "a backward model would write from the end; train one without backward to sample."
            )
        usual = {key: getattr(self.settings_, key) for key in SampleSettings.model_fields}
        asked = build(SampleOptions, {**usual, "prompt": prompt, **options}, owner="sample").model_dump()
        text = asked.pop("prompt")
        begun = [self.begin, *self.tokenizer_.encode(text)]
        if unknown := begun[1:].count(UNK):
            warnings.warn(
                f"{unknown} of the {len(begun) - 1} symbols of the prompt are not in the vocabulary and are read as <unk>",
                stacklevel=3,
            )
        if not self._direct:
            self.model_.eval()
        drawn = draw(
            self.model_,
            self.tokenizer_,
            begun,
            lines=self.settings_.lines,
            device=device_of(self.model_),
            listen=listen,
            **asked,
        )
        known = len(self.tokenizer_.decode(begun[1:]))
        return [self.tokenizer_.decode([*begun[1:], *h.tokens])[known:] for h in drawn]

    @probing
    def probe(
        self, text: str, target: None = None, *, what: Sequence[str] = (), beam: int | None = None
    ) -> Trace:
        """What happens inside while ``text`` is read, and what was expected after each symbol. ``what`` may ask for
        ``gradients`` and ``ablation`` of heads."""
        self._check_trained()
        no_target(self, target)
        no_beam(self, beam)
        return probe_language(self, text, what)

    def probe_embeddings(self) -> Trace:
        """The vectors of the symbols, for the view embeddings."""
        self._check_trained()
        if not isinstance(self.model_, nn.Module):
            raise AnaphoraError("an n-gram model counts symbols and has no vectors of them.")
        return symbol_vectors(self, self.model_, self.tokenizer_)

    def _check_one_way(self, what: str) -> None:
        self._check_trained()
        if self.settings_.model == "masked":
            raise AnaphoraError(
                f"{what} cannot come from the preset masked: it reads both sides, so it says what is hidden in a "
                "text, not how probable the text is; train another preset, such as transformer."
            )


def _filled(text: Text) -> Iterator[str]:
    """The lines that are not empty."""
    return (line for block in text.blocks() for line in block.split("\n") if line.strip())
