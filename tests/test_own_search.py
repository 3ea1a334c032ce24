"""Searches and language models of the user's own, in every task that writes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.data.symbols import EOS
from anaphora.errors import DataError, SettingsError

TINY: dict[str, Any] = {
    "steps": 2,
    "valid_every": 2,
    "save_every": 2,
    "hidden": 8,
    "batch_tokens": 64,
    "seed": 3,
}
PAIRS = [("a b", "x y"), ("b a", "y x"), ("a", "x"), ("b", "y")] * 3
SPOKEN = [((np.random.default_rng(i).normal(0, 0.1, 1600).astype(np.float32), 4000), "ab") for i in range(6)]
PICTURES = [(np.full((16, 16, 3), 40 * i, np.uint8), "a dot") for i in range(6)]


@pytest.fixture(scope="module")
def translator() -> Any:
    return an.Translator("gru-attention", tokens="word", **TINY).fit(PAIRS, valid=PAIRS)


def greedily(step: Any, state: Any, *, start: Any, eos: int, max_length: Any) -> Any:
    return an.search.greedy(step, state, start=start, eos=eos, max_length=max_length)


def shortest(step: Any, state: Any, *, start: Any, eos: int, max_length: Any) -> Any:
    """Ends at once, whatever the model thinks."""
    log_probs, _ = step(start, state)
    torch.testing.assert_close(log_probs.exp().sum(1), torch.ones(len(start)))  # they are log p
    of_end = log_probs[:, eos].tolist()
    return [[an.search.Hypothesis([], p, p, [p], finished=True)] for p in of_end]


def test_the_search_gets_the_step_and_gives_the_outputs(translator: Any) -> None:
    texts = [source for source, _ in PAIRS]
    assert translator.predict(texts, search=greedily) == translator.predict(texts, beam=1)
    assert translator.predict(texts, search=shortest) == [""] * len(texts)
    assert translator.score(PAIRS, search=shortest)["exact_match"] == 0.0


class Only:
    """A language model to which one symbol is as good as certain."""

    def __init__(self, symbol: int, size: int):
        self.log_probs = torch.full((size,), -20.0)
        self.log_probs[[symbol, EOS]] = -0.7

    def start(self, rows: int) -> Any:
        return torch.zeros(rows)

    def step(self, symbols: Any, state: Any) -> Any:
        return self.log_probs.expand(len(symbols), -1), state


def test_a_language_model_is_added_symbol_by_symbol(translator: Any) -> None:
    target = translator.tokenizer_.target
    (y,) = target.encode("y")
    only = Only(y, target.size)
    (found,) = translator.predict(["a b"], lm=only, lm_weight=5.0, max_length=4)
    assert set(found.split()) <= {"y"}
    plain = translator.predict(["a b"], details=True)[0]
    assert translator.predict(["a b"], details=True, lm=only, lm_weight=0.0)[0].text == plain.text
    drawn = translator.predict(["a b"], decode="sample", lm=only, lm_weight=50.0, max_length=4)
    assert set(drawn[0].split()) <= {"y"}


def test_a_trained_language_model_may_number_its_words_otherwise(translator: Any, tmp_path: Path) -> None:
    lm = an.LanguageModel("ngram", lines=True, tokens="word", order=2).fit(
        ["z y y", "y y", "y x"] * 9, out=tmp_path / "lm"
    )
    texts = ["a b", "b"]
    direct = translator.predict(texts, details=True, lm=lm, lm_weight=1.0)
    assert translator.predict(texts, details=True, lm=str(tmp_path / "lm"), lm_weight=1.0) == direct
    assert direct != translator.predict(texts, details=True)
    letters = an.LanguageModel("ngram", lines=True, tokens="char").fit(["ab", "ba"] * 20)
    with pytest.raises(DataError, match="has other symbols than the model that writes"):
        translator.predict(texts, lm=letters)
    running = an.LanguageModel("ngram", tokens="word").fit(["x y", "y x"] * 20)
    with pytest.raises(DataError, match="must be a model of lines"):
        translator.predict(texts, lm=running)


def test_what_cannot_be_searched_with_is_one_sentence(translator: Any) -> None:
    with pytest.raises(
        SettingsError, match="must give a list of hypotheses for each of 1 items, but gave a int"
    ):
        translator.predict(["a"], search=lambda *given, **ends: 3)
    with pytest.raises(SettingsError, match="hypotheses"):
        translator.predict(["a"], search=lambda *given, **ends: [[]])
    with pytest.raises(SettingsError, match=r"lm = .* has no start"):
        translator.predict(["a"], lm=object())
    with pytest.raises(SettingsError, match="coverage is for the built-in beam alone"):
        translator.predict(["a"], search=greedily, coverage=0.1)
    with pytest.raises(SettingsError, match="takes the place of decode"):
        translator.predict(["a"], search=greedily, decode="sample")


@pytest.mark.parametrize("preset", ["bilstm-ctc", "attention"])
def test_a_transcriber_takes_a_search(preset: str) -> None:
    m = an.Transcriber(preset, **{**TINY, "batch_tokens": 400}).fit(SPOKEN, valid=SPOKEN)
    inputs = [x for x, _ in SPOKEN]
    own = an.search.ctc_greedy if preset == "bilstm-ctc" else greedily
    assert m.predict(inputs, search=own) == m.predict(inputs, beam=1)
    with pytest.raises(SettingsError, match="leave beam, lexicon and lm to it"):
        m.predict(inputs, search=own, beam=4)
    words = an.NGram(2).fit([["ab"], ["ab", "ab"]])
    assert m.predict(inputs, lm=words, lm_weight=0.0) == m.predict(inputs, lexicon="train")


def test_a_captioner_takes_a_search() -> None:
    m = an.Captioner("lstm-attention", picture_size=16, channels=4, **TINY).fit(PICTURES, valid=PICTURES)
    pictures = [x for x, _ in PICTURES[:2]]
    assert m.predict(pictures, search=greedily) == m.predict(pictures, beam=1)
    only = Only(4, m.tokenizer_.size)
    assert set(m.predict(pictures, lm=only, lm_weight=9.0, max_length=3)[0].split()) <= {
        m.tokenizer_.decode([4])
    }
