"""Sentences of a small grammar, spoken by synthetic voices: who is heard in dev and test never speaks in training.

Forty words, of which many sound alike (dog and dock, pen and pan, bites and buys) and four pairs sound the same (two
and to, four and for, buy and by, see and sea), so that only the words around them tell which is meant:

    sentence = subject, verb, object and in six of ten cases a preposition with one more of these
    "the dog", "a sad king", "two men", "four thin sheep" …; a verb agrees with its subject (bites, bite)

In the variant ``phones`` the transcript gives the phones instead; in ``noisy`` there is more noise.

Baseline: answering "the sheep bite the sheep" to everything, about the best answer without listening: 82 % word error.
"""

from __future__ import annotations

from random import Random

from anaphora.data.corpora.sound_corpus import SoundCorpus

LEXICON: dict[str, tuple[str, ...]] = {
    word: tuple(phones.split())
    for word, phones in {
        "the": "dh ah", "a": "ah",
        "two": "t uw", "four": "f ao", "ten": "t eh n",
        "red": "r eh d", "sad": "s ae d", "big": "b ih g", "blue": "b l uw", "thin": "th ih n", "tin": "t ih n",
        "dog": "d ao g", "dock": "d ao k", "cat": "k ae t", "cap": "k ae p", "man": "m ae n", "pan": "p ae n",
        "pen": "p eh n", "ship": "sh ih p", "bed": "b eh d", "bell": "b eh l", "ball": "b ao l", "king": "k ih ng",
        "sea": "s iy", "night": "n ay t",
        "men": "m eh n", "sheep": "sh iy p", "bees": "b iy z",
        "sees": "s iy z", "bites": "b ay t s", "buys": "b ay z",
        "see": "s iy", "bite": "b ay t", "buy": "b ay",
        "to": "t uw", "for": "f ao", "by": "b ay", "in": "ih n", "at": "ae t", "on": "aa n",
    }.items()
}  # fmt: skip
"""Each word and its phones."""
_ONE = [
    "dog",
    "dock",
    "cat",
    "cap",
    "man",
    "pan",
    "pen",
    "ship",
    "bed",
    "bell",
    "ball",
    "king",
    "sea",
    "night",
]
_MANY = ["men", "sheep", "bees"]
_COUNTS = ["two", "four", "ten"]
_LIKE = ["red", "sad", "big", "blue", "thin", "tin"]
_DOES, _DO = ["sees", "bites", "buys"], ["see", "bite", "buy"]
_WHERE = ["to", "for", "by", "in", "at", "on"]


def sentence(random: Random) -> list[str]:
    """One random sentence, as words."""
    subject, plural = _things(random)
    words = [*subject, random.choice(_DO if plural else _DOES), *_things(random)[0]]
    if random.random() < 0.6:
        words += [random.choice(_WHERE), *_things(random)[0]]
    return words


def _things(random: Random) -> tuple[list[str], bool]:
    plural = random.random() < 0.4
    words = [random.choice(_COUNTS) if plural else random.choice(("the", "a"))]
    if plural and random.random() < 0.3:
        words[0] = "the"
    if random.random() < 0.4:
        words.append(random.choice(_LIKE))
    return [*words, random.choice(_MANY if plural else _ONE)], plural


CORPUS = SoundCorpus(
    name="tones",
    summary="sentences of synthetic voices that training never heard; not listening: 82 % word error",
    variants={
        "words": "five to eleven of forty words, many of which sound alike",
        "phones": "the same recordings, written in phones",
        "noisy": "the same, with six times the noise",
    },
    sizes={"train": 2_000, "dev": 150, "test": 300},
    lexicon=LEXICON,
    sentence=sentence,
)
