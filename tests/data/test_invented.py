"""Invented words: word and form change alike, by words that are inflected alike, and the stream can be resumed."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

import anaphora as an
from anaphora.data.batches import pairs as batching
from anaphora.data.batches.padded import Ragged
from anaphora.data.batches.pairs import KEPT, Inventing, PairBatches, common
from anaphora.data.sources.opening import open_source
from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import DataError, SettingsError

VERBS = ["absagen", "verlieben", "frequentieren", "buchstabieren", "markieren", "wandern", "plumpsen"]
NOUNS = ["Bestechungsgeld", "Hausmeister", "Telefonnummer", "Abend", "Wanderung", "Zeitbombe"]
ROWS = [
    *((f"{verb} V;PST;3;SG", verb[:-2] + "te") for verb in VERBS),
    *((f"{verb} V.PTCP;PST", "ge" + verb[:-2] + "t") for verb in VERBS),
    *((f"{noun} N;DAT;PL", noun + "en") for noun in NOUNS),
    ("abgeben V;PST;3;SG", "abgab"),
    ("buku N;PL", "buku-buku"),
    ("pustaka N;PL", "pustaka-pustaka"),
    ("ja V;PST", "nein"),
]


def letters(joint: bool = True) -> PairTokenizer:
    pairs = open_source(ROWS, role="train")
    if joint:
        return PairTokenizer.of_letters(pairs, vocab_size=200)
    learn = functools.partial(Tokenizer.train, vocab_size=200)
    return PairTokenizer.learnt(
        pairs, functools.partial(learn, kind="char+tags"), functools.partial(learn, kind="char")
    )


def inventing(share: float = 0.999, joint: bool = True, seed: int = 1) -> Inventing:
    tokenizer = letters(joint)
    source = Ragged.of(tokenizer.sources([word for word, _ in ROWS]))
    return Inventing(
        source, Ragged.of(tokenizer.targets([form for _, form in ROWS])), tokenizer, share, seed=seed
    )


def written(found: tuple[Ragged, Ragged], tokenizer: PairTokenizer) -> list[tuple[str, str]]:
    sources = ("".join(tokenizer.source.spellings[i] for i in ids) for ids in found[0].lists())
    targets = ("".join(tokenizer.target.spellings[i] for i in ids) for ids in found[1].lists())
    return list(zip(sources, targets, strict=True))


EVERY = np.arange(len(ROWS))


@pytest.mark.parametrize("joint", [True, False])
def test_word_and_form_change_alike_and_keep_their_changes(joint):
    made, tokenizer, changed = inventing(joint=joint), letters(joint), 0
    for epoch in range(30):
        for (old, _), (new, form) in zip(
            ROWS, written(made.rows(EVERY, epoch=epoch), tokenizer), strict=True
        ):
            word, _, tags = new.partition(";")
            assert tags == old.rpartition(" ")[2]
            changed += word != old.rpartition(" ")[0]
            if old in ("abgeben V;PST;3;SG", "wandern V;PST;3;SG"):
                assert word == old.rpartition(" ")[0]  # no other row is inflected alike
            elif tags == "V;PST;3;SG":
                assert (word[-2:], form) == ("en", word[:-2] + "te")
            elif tags == "V.PTCP;PST":
                assert form == "ge" + word[:-2] + "t"
            elif tags == "N;DAT;PL":
                assert form == word + "en"
    assert changed > 300


def test_the_beginning_is_that_of_a_word_with_the_same_tags_and_the_end_stays():
    """What is read is a beginning of a stretch of another row of the kind, then at least three letters of its own."""
    made, tokenizer = inventing(), letters()
    kinds = {row: row.rpartition(" ")[2] for row, _ in ROWS}
    for (old, _), (new, _) in zip(ROWS, written(made.rows(EVERY, epoch=4), tokenizer), strict=True):
        word, before = new.partition(";")[0], old.rpartition(" ")[0]
        if word == before:
            continue
        lenders = [row.rpartition(" ")[0] for row, tags in kinds.items() if tags == kinds[old]]
        assert any(
            word.startswith(one[:k]) and before.endswith(word[k:]) and len(word) - k >= KEPT[0]
            for one in lenders
            for k in range(1, len(one))
        ), (old, new)


def test_a_row_with_little_in_common_stays_and_one_that_repeats_a_part():
    made = inventing()
    last = [(word.replace(" ", ";"), form) for word, form in ROWS[-3:]]
    for epoch in range(10):
        assert written(made.rows(EVERY[-3:], epoch=epoch), letters()) == last


def test_rows_that_are_alike_to_no_other_all_stay():
    tokenizer = letters()
    word, form = Ragged.of(tokenizer.sources(["absagen V;PST"])), Ragged.of(tokenizer.targets(["absagte"]))
    made = Inventing(word, form, tokenizer, 0.999)
    assert all(made.rows(np.array([0]), epoch=epoch) == (word, form) for epoch in range(5))


def test_as_many_as_asked_and_none_at_0():
    assert inventing(0.0).rows(EVERY, epoch=1) == (inventing().source, inventing().target)
    made = inventing(0.4)
    some = np.array([0, 2, 3, 14])  # long enough to be cut whatever stays
    old = [made.source.lists()[i] for i in some]
    changed = [
        new != was
        for epoch in range(400)
        for new, was in zip(made.rows(some, epoch=epoch)[0].lists(), old, strict=True)
    ]
    assert 0.3 < np.mean(changed) < 0.45


def test_rows_follow_from_seed_epoch_and_number_alone():
    made = inventing()
    whole = made.rows(EVERY, epoch=2)
    some = np.array([7, 2, 5])
    part = made.rows(some, epoch=2)
    assert part == tuple(side.chosen(some) for side in whole)
    assert made.rows(EVERY, epoch=3) != whole
    assert inventing(seed=2).rows(EVERY, epoch=2) != whole


def test_the_common_stretch_is_the_longest():
    draw = random.Random(5)
    for _ in range(300):
        first, second = ("".join(draw.choice("abc") for _ in range(draw.randint(0, 8))) for _ in "12")
        i, j, n = common(*([ord(c) for c in text] for text in (first, second)))
        assert first[i : i + n] == second[j : j + n]
        assert not any(first[k : k + n + 1] in second for k in range(len(first) - n))


def test_what_is_no_letter_has_nothing_in_common():
    assert common([None, None], [None, None]) == (0, 0, 0)


def test_other_symbols_are_refused():
    pairs = open_source(ROWS, role="train")
    words = PairTokenizer.train(pairs, kind="word", vocab_size=60)
    with pytest.raises(ValueError, match="letter by letter, but a symbol is of the kind 'word' and 'word'"):
        Inventing(Ragged.of([[1]]), Ragged.of([[1]]), words, 0.5)


def batches(share: float, **more) -> PairBatches:
    given = {"batch_tokens": 60, "max_tokens": 40, "seed": 1, "invented": share, **more}
    return PairBatches(open_source(ROWS, role="train"), letters(), **given)


def test_a_stream_with_invented_words_is_resumed_to_the_symbol():
    stream = batches(0.5)
    for _ in range(7):
        next(stream)
    state, rest = stream.state(), [next(stream) for _ in range(9)]
    again = batches(0.5)
    again.restore(state)
    assert [next(again) for _ in range(9)] == rest


def test_batches_are_as_large_as_asked_and_visit_every_row_once():
    stream = batches(0.9)
    seen: list[int] = []
    while stream.epoch == 0:
        batch = next(stream)
        if stream.epoch == 0:
            seen += batch.indices
            longest = max(map(len, batch.source + batch.target)) + 1
            assert longest * len(batch) <= 60
    assert sorted(seen) == list(range(len(ROWS)))


def test_text_that_is_not_held_is_refused(monkeypatch):
    monkeypatch.setattr(batching, "HELD_TEXT", 10)
    with pytest.raises(DataError, match=r"invented = 0\.5 needs all words at hand"):
        batches(0.5)
    batches(0.0)


def test_a_translator_of_words_is_refused():
    """Training with invented words: ``tests/tasks/test_inflection.py``, where they are assumed."""
    with pytest.raises(SettingsError, match=r"invented = 0\.5 exchanges letters"):
        an.Translator(tokens="word", hidden=8, embedding=8, steps=2, invented=0.5).fit(ROWS, valid=ROWS[:3])
