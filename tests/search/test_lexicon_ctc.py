"""Words from CTC frames against enumeration of all paths and of all ways to read them as words."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

import anaphora as an
from anaphora.search import Lexicon, NBest, WordHypothesis, ctc_beam

NAMES = "-abc|"  # the blank, three letters and the separator
Words = tuple[str, ...]


def random_log_probs(seed: int, *shape: int, spread: float = 2.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return (spread * torch.randn(*shape, dtype=torch.float64, generator=generator)).log_softmax(-1)


def every_output(log_p: Tensor) -> dict[tuple[int, ...], float]:
    """p(y | x) of every y for one row ``(time, symbols)``, without the code under test."""
    p = log_p.exp().tolist()
    found: dict[tuple[int, ...], float] = {}
    for path in itertools.product(range(len(p[0])), repeat=len(p)):
        labels = tuple(k for i, k in enumerate(path) if k != 0 and (i == 0 or k != path[i - 1]))
        found[labels] = found.get(labels, 0.0) + math.prod(p[t][k] for t, k in enumerate(path))
    return found


def readings(labels: str, spelled: list[tuple[str, str]], separated: bool) -> Iterator[Words]:
    """All word sequences that are spelled like this; a run of separators may stand where a word ends or none began."""
    if not labels:
        yield ()
        return
    if separated and labels[0] == "|":
        yield from readings(labels[1:], spelled, separated)
        return
    for word, spelling in spelled:
        rest = labels[len(spelling) :]
        if labels.startswith(spelling) and (not separated or not rest or rest[0] == "|"):
            yield from ((word, *others) for others in readings(rest, spelled, separated))


def some_lexicon(chance: random.Random, letters: str = "abc") -> list[tuple[str, str]]:
    """A few words with their spellings; some share one, some have two."""
    spelled = {
        (f"w{chance.randrange(4)}", "".join(chance.choices(letters, k=chance.randrange(1, 4))))
        for _ in range(chance.randrange(1, 6))
    }
    return sorted(spelled)


def as_lexicon(spelled: list[tuple[str, str]], names: str, separated: bool) -> Lexicon:
    words: dict[str, list[str]] = {}
    for word, spelling in spelled:
        words.setdefault(word, []).append(" ".join(spelling))
    return Lexicon(words, names, separator="|" if separated else None)


def some_lm(chance: random.Random) -> an.NGram:
    texts = [" ".join(f"w{chance.randrange(4)}" for _ in range(chance.randrange(1, 5))) for _ in range(6)]
    return an.NGram(order=chance.randrange(1, 4), smoothing="witten-bell").fit(texts)


def hot_bonus(words: Words, hot: dict[str, float]) -> float:
    """How often each phrase is there, by its bonus."""
    total = 0.0
    for phrase, bonus in hot.items():
        parts = tuple(phrase.split())
        total += bonus * sum(words[i : i + len(parts)] == parts for i in range(len(words)))
    return total


def by_words(found: NBest) -> dict[Words, float]:
    """The score of each word sequence; they are distinct and sorted."""
    assert all(isinstance(h, WordHypothesis) for h in found)
    assert [h.score for h in found] == sorted((h.score for h in found), reverse=True)
    scores = {tuple(h.words): h.score for h in found if isinstance(h, WordHypothesis)}
    assert len(scores) == len(found)
    return scores


def enumerated(
    log_p: Tensor, spelled: list[tuple[str, str]], names: str, separated: bool, extra: Any
) -> dict[Words, float]:
    """The score of every word sequence: its best labels, and what `extra` adds."""
    found: dict[Words, float] = {}
    for labels, p in every_output(log_p).items():
        for words in set(readings("".join(names[k] for k in labels), spelled, separated)):
            found[words] = max(found.get(words, -math.inf), math.log(p) + extra(words))
    return found


@pytest.mark.parametrize("separated", [False, True])
@pytest.mark.parametrize("with_lm", [False, True])
def test_wide_search_is_enumeration(separated: bool, with_lm: bool) -> None:
    names = NAMES if separated else NAMES[:4]
    for seed in range(100):
        chance = random.Random(seed)
        spelled = some_lexicon(chance)
        log_p = random_log_probs(seed, 1, chance.randrange(1, 6), len(names))
        lm, weight, bonus = some_lm(chance) if with_lm else None, chance.random(), chance.uniform(-1, 1)
        options = {"lm": lm, "lm_weight": weight, "word_bonus": bonus, "per_node": None, "n_best": None}

        def extra(
            words: Words, lm: an.NGram | None = lm, weight: float = weight, bonus: float = bonus
        ) -> float:
            return bonus * len(words) + (weight * lm.log_prob(list(words)) if lm else 0.0)

        expected = enumerated(log_p[0], spelled, names, separated, extra)
        lexicon = as_lexicon(spelled, names, separated)
        (found,) = ctc_beam(log_p, lexicon=lexicon, width=2000, **options)  # type: ignore[arg-type]
        assert by_words(found) == pytest.approx(expected, rel=1e-9), seed
        assert all(h.finished for h in found)


def test_hot_phrases_are_counted_once_complete() -> None:
    for seed in range(60):
        chance = random.Random(seed)
        spelled = some_lexicon(chance, "ab")
        words = sorted({word for word, _ in spelled})
        hot = {
            " ".join(chance.choices(words, k=chance.randrange(1, 4))): chance.uniform(-1, 3) for _ in range(3)
        }
        log_p = random_log_probs(seed, 1, 5, 3)
        expected = enumerated(log_p[0], spelled, "-ab", False, lambda words, hot=hot: hot_bonus(words, hot))
        lexicon = as_lexicon(spelled, "-ab", False)
        (found,) = ctc_beam(log_p, lexicon=lexicon, hot_words=hot, per_node=None, width=2000, n_best=None)
        assert by_words(found) == pytest.approx(expected, rel=1e-9), (seed, hot)


class Slow:
    """A trigram asked in Python, one pair at a time; its states are the last two words."""

    def __init__(self, ngram: an.NGram):
        self.ngram = ngram
        self.asked: list[tuple[Words, str]] = []

    def start(self) -> Words:
        return ()

    def score(self, states: Sequence[Words], words: Sequence[str]) -> tuple[list[float], list[Words]]:
        self.asked += zip(states, words, strict=True)
        return [self._log_p(s, w) for s, w in zip(states, words, strict=True)], [
            (*s, w) for s, w in zip(states, words, strict=True)
        ]

    def end(self, states: Sequence[Words]) -> list[float]:
        return [math.log(self.ngram.distribution(list(state))[3]) for state in states]

    def _log_p(self, state: Words, word: str) -> float:
        number = self.ngram.words.ids.get(word, 1)
        return math.log(self.ngram.distribution(list(state))[number])


@pytest.mark.parametrize("separated", [False, True])
def test_a_model_asked_in_python_gives_what_the_tables_give(separated: bool) -> None:
    names = NAMES if separated else NAMES[:4]
    for seed in range(20):
        chance = random.Random(seed)
        lexicon = as_lexicon(some_lexicon(chance), names, separated)
        log_p = random_log_probs(seed, 2, 5, len(names))
        lm = some_lm(chance)
        slow = Slow(lm)
        options = {"lexicon": lexicon, "width": 2000, "n_best": None, "per_node": None, "lm_weight": 0.7}
        ours = ctc_beam(log_p, lm=lm, **options)  # type: ignore[arg-type]
        theirs = ctc_beam(log_p, lm=slow, **options)  # type: ignore[arg-type]
        for a, b in zip(ours, theirs, strict=True):
            assert by_words(a) == pytest.approx(by_words(b))
        assert len(slow.asked) == len(set(slow.asked))  # each question once
