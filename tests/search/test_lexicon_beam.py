"""Words from next-symbol models, against enumeration of everything the lexicon can spell."""

from __future__ import annotations

import itertools
import math
import random
from functools import lru_cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import anaphora as an
from anaphora.errors import AnaphoraError
from anaphora.search import Lexicon, NBest, Step, WordHypothesis, beam, lexicon_beam

EOS, BOS = 0, 1
NAMES = [".", "<", "a", "b", "c", "|"]
Words = tuple[str, ...]


class Model:
    """Distributions that depend on every symbol before; the state is the history itself."""

    def __init__(self, seeds: list[int], symbols: int, spread: float = 1.5):
        self.seeds, self.symbols, self.spread = seeds, symbols, spread
        self.rows = lru_cache(None)(self._rows)

    def _rows(self, seed: int, history: tuple[int, ...]) -> list[float]:
        chance = random.Random(f"{seed} {history}")
        scores = torch.tensor([self.spread * chance.gauss(0, 1) for _ in range(self.symbols)])
        return scores.double().log_softmax(-1).tolist()

    def step(self, symbols: Tensor, state: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
        history = torch.cat((state["history"], symbols[:, None]), dim=1)
        pairs = zip(state["seed"].tolist(), history.tolist(), strict=True)
        rows = [self.rows(seed, tuple(past[1:])) for seed, past in pairs]
        return torch.tensor(rows, dtype=torch.float64), {"history": history, "seed": state["seed"]}

    @property
    def state(self) -> dict[str, Tensor]:
        empty = torch.zeros(len(self.seeds), 0, dtype=torch.long)
        return {"history": empty, "seed": torch.tensor(self.seeds)}

    def log_p(self, seed: int, symbols: tuple[int, ...]) -> float:
        return sum(self.rows(seed, symbols[:n])[k] for n, k in enumerate((*symbols, EOS)))

    def search(self, **options: object) -> list[NBest]:
        start = torch.full((len(self.seeds),), BOS)
        return lexicon_beam(self.step, self.state, start=start, eos=EOS, **options)  # type: ignore[arg-type]


def spelled_words(chance: random.Random) -> list[tuple[str, str]]:
    return sorted(
        {
            (f"w{chance.randrange(4)}", "".join(chance.choices("abc", k=chance.randrange(1, 4))))
            for _ in range(chance.randrange(1, 6))
        }
    )


def as_lexicon(spelled: list[tuple[str, str]], separated: bool) -> Lexicon:
    words: dict[str, list[str]] = {}
    for word, spelling in spelled:
        words.setdefault(word, []).append(" ".join(spelling))
    return Lexicon(words, NAMES, separator="|" if separated else None)


def everything(spelled: list[tuple[str, str]], separated: bool, most: int) -> dict[str, set[Words]]:
    """Every text of at most so many symbols that spells words, with all its readings."""
    found: dict[str, set[Words]] = {}
    waiting: list[tuple[str, Words]] = [("", ())]
    for text, words in waiting:
        for word, spelling in spelled:
            longer = f"{text}|{spelling}" if separated and text else text + spelling
            if len(longer) <= most and (*words, word) not in found.setdefault(longer, set()):
                found[longer].add((*words, word))
                waiting.append((longer, (*words, word)))
    return found


def by_words(found: NBest) -> dict[Words, float]:
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    scores = {tuple(h.words): h.score for h in found if isinstance(h, WordHypothesis)}
    assert len(scores) == len(found)
    return scores


@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.parametrize("with_lm", [False, True])
def test_wide_search_is_enumeration(separated: bool, with_lm: bool) -> None:
    for seed in range(80):
        chance = random.Random(seed)
        spelled = spelled_words(chance)
        model = Model([seed], 6)
        texts = [" ".join(f"w{chance.randrange(4)}" for _ in range(3)) for _ in range(5)]
        lm = an.NGram(order=2, smoothing="witten-bell").fit(texts) if with_lm else None
        weight, bonus = chance.random(), chance.uniform(-1, 1)
        expected: dict[Words, float] = {}
        for text, all_words in everything(spelled, separated, 5).items():
            log_p = model.log_p(seed, tuple(NAMES.index(c) for c in text))
            for words in all_words:
                score = log_p + bonus * len(words) + (weight * lm.log_prob(list(words)) if lm else 0.0)
                expected[words] = max(expected.get(words, -math.inf), score)
        (found,) = model.search(
            lexicon=as_lexicon(spelled, separated), width=5000, n_best=10_000, max_length=6, lm=lm,
            lm_weight=weight, word_bonus=bonus,
        )  # fmt: skip
        assert by_words(found) == pytest.approx(expected), seed
        assert all(h.finished and h.log_prob == pytest.approx(sum(h.steps)) for h in found)


@settings(max_examples=40)
@given(seed=st.integers(0, 10_000), width=st.integers(1, 6), bonus=st.floats(-1, 2), separated=st.booleans())
def test_narrow_search_finds_only_what_there_is(seed: int, width: int, bonus: float, separated: bool) -> None:
    chance = random.Random(seed)
    spelled = spelled_words(chance)
    model, lexicon = Model([seed], 6), as_lexicon(spelled, separated)
    (found,) = model.search(lexicon=lexicon, width=width, n_best=3, max_length=7, word_bonus=bonus)
    (best,) = model.search(lexicon=lexicon, width=5000, n_best=3, max_length=7, word_bonus=bonus)
    assert found[0].score <= best[0].score + 1e-9
    readings = everything(spelled, separated, 6)
    for h in found:
        assert isinstance(h, WordHypothesis)
        assert h.finished
        assert tuple(h.words) in readings["".join(NAMES[k] for k in h.tokens)]
        assert h.score == pytest.approx(model.log_p(seed, tuple(h.tokens)) + bonus * len(h.words))


def test_an_input_alone_or_in_a_batch() -> None:
    lexicon = as_lexicon([("w0", "ab"), ("w1", "abc"), ("w2", "c")], separated=True)
    together = Model([3, 4, 5], 6).search(lexicon=lexicon, width=4, n_best=2, max_length=9)
    alone = [
        Model([seed], 6).search(lexicon=lexicon, width=4, n_best=2, max_length=9)[0] for seed in (3, 4, 5)
    ]
    assert together == alone


def six_words() -> tuple[Lexicon, Step, Tensor]:
    """The six words of the lecture and a model of letters that knows nothing but their frequency."""
    letters = ["</s>", "<s>", *"ADEINRST"]
    lexicon = Lexicon(["ARE", "ART", "ARTIST", "ANT", "AN", "AND"], letters)
    p = torch.tensor([0.30, 0.0, 0.20, 0.06, 0.04, 0.02, 0.14, 0.10, 0.02, 0.12])

    def step(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return p.log().expand(len(symbols), -1), state

    return lexicon, step, torch.tensor([1])


def test_six_words_on_a_tree() -> None:
    lexicon, step, start = six_words()
    (found,) = lexicon_beam(step, None, start=start, eos=0, lexicon=lexicon, max_length=4, n_best=10)
    scores = {" ".join(h.words): math.exp(h.score) for h in found if isinstance(h, WordHypothesis)}
    assert scores == pytest.approx(
        {
            "AN": 0.2 * 0.14 * 0.3,
            "ANT": 0.2 * 0.14 * 0.12 * 0.3,
            "ART": 0.2 * 0.1 * 0.12 * 0.3,
            "AND": 0.2 * 0.14 * 0.06 * 0.3,
            "ARE": 0.2 * 0.1 * 0.04 * 0.3,
        }
    )
    # Without the tree the best output is no word at all, with it EOS follows the end of a word alone.
    (free,) = beam(step, None, start=start, eos=0, max_length=4, length_penalty=0.0)
    assert free[0].tokens == []
    assert scores[" ".join(found[0].words)] == max(scores.values())  # type: ignore[attr-defined]


def test_the_best_beginning_where_no_word_can_end() -> None:
    lexicon, step, start = six_words()
    (found,) = lexicon_beam(step, None, start=start, eos=0, lexicon=lexicon, max_length=2)
    assert [(h.tokens, h.finished) for h in found] == [([2], False)]  # an A, the beginning of every word


def test_one_way_into_a_node() -> None:
    # After a separator a bigram has forgotten the word before: one beginning per node is all that is needed.
    table = (
        2 * torch.randn(6, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    ).log_softmax(-1)

    def step(symbols: Tensor, state: None) -> tuple[Tensor, None]:
        return table[symbols], state

    lexicon = as_lexicon([("w0", "ab"), ("w1", "abc"), ("w2", "c"), ("w3", "ba")], separated=True)
    options = {"start": torch.tensor([BOS]), "eos": EOS, "lexicon": lexicon, "max_length": 12}
    every = lexicon_beam(step, None, width=100_000, **options)  # type: ignore[arg-type]
    one = lexicon_beam(step, None, width=12, per_node=1, **options)  # type: ignore[arg-type]
    assert every == one
    near = lexicon_beam(step, None, width=100_000, beam_distance=0.5, **options)  # type: ignore[arg-type]
    assert near[0][0].score <= every[0][0].score


def test_hot_phrases_are_in_the_score_once() -> None:
    spelled = [("w0", "a"), ("w1", "b"), ("w2", "c")]
    model = Model([7], 6)
    hot = {"w0 w1": 1.5, "w1": 0.25, "w2 w2 w2": 2.0}
    (found,) = model.search(
        lexicon=as_lexicon(spelled, False), width=2000, n_best=500, max_length=5, hot_words=hot
    )
    assert len(found) == sum(3**n for n in range(1, 5))
    for h in found:
        assert isinstance(h, WordHypothesis)
        said = " ".join(h.words)
        pairs = list(itertools.pairwise(h.words))
        bonus = 1.5 * pairs.count(("w0", "w1")) + 0.25 * h.words.count("w1")
        bonus += 2.0 * sum(h.words[i : i + 3] == ["w2"] * 3 for i in range(len(h.words)))
        assert h.score == pytest.approx(model.log_p(7, tuple(h.tokens)) + bonus), said


def test_an_ngram_of_letters_writes_words() -> None:
    lm = an.NGram(3, tokens="char").fit(["the cat sat", "the hat", "a cat"])
    lexicon = Lexicon(["the", "cat", "hat", "chat"], lm.words.ids, separator=" ")
    options = {"start": torch.tensor([2]), "eos": 3, "lexicon": lexicon, "max_length": 14, "n_best": 5}
    (found,) = lexicon_beam(lm.step, lm.start(1), **options)  # type: ignore[arg-type]
    for h in found:
        assert isinstance(h, WordHypothesis)
        assert h.score == pytest.approx(lm.log_prob(" ".join(h.words)), abs=1e-4)
        assert lm.words.spell(h.tokens) == list(" ".join(h.words))
    assert {"the cat", "the hat"} & {" ".join(h.words) for h in found if isinstance(h, WordHypothesis)}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"width": 0}, "width and per_node must be at least 1"),
        ({"per_node": 0}, "width and per_node"),
        ({"beam_distance": 0.0}, "beam_distance"),
        ({"n_best": 0}, "n_best"),
        ({"lm_weight": -1.0}, "lm_weight"),
        ({"lm": 3}, "WordModel"),
        ({"word_bonus": math.nan}, "word_bonus must be a number"),
        ({"hot_words": {"w9": 1.0}}, "'w9' is not in the lexicon"),
        ({"hot_words": {"": 1.0}}, "empty"),
        ({"hot_words": {"w0": math.nan}}, "must be a number"),
        ({"lexicon": Lexicon(["a"], "ab")}, "spelled with EOS"),
        ({"lexicon": Lexicon({"a": [8]}, [str(i) for i in range(9)])}, "need 9 symbols, but step scores 6"),
    ],
)
def test_what_cannot_be_asked(options: dict[str, object], sentence: str) -> None:
    given: dict[str, object] = {"lexicon": as_lexicon([("w0", "a")], False), "max_length": 4, **options}
    with pytest.raises(AnaphoraError, match=sentence):
        Model([0], 6).search(**given)
