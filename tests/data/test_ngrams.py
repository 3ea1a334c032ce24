"""Texts as sets of n-grams: by hand, and by a plain count of all substrings."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from anaphora.data.ngrams import NGramSet

LEARN = {"lowercase": False, "least": 1, "most": 10**6}


def spelled(grams, text):
    return {grams.known[i - 4] for i in grams.encode(text)}


def test_by_hand():
    words = NGramSet.learn(["it isn't bad, is it"], words=2, characters=0, **LEARN)
    assert set(words.known) == {
        *("\tit", "\tisn't", "\tbad", "\t,", "\tis"),
        *("\tit isn't", "\tisn't bad", "\tbad ,", "\t, is", "\tis it"),
    }
    letters = NGramSet.learn(["to  be"], words=1, characters=3, **LEARN)
    pairs, threes = {" t", "to", "o ", " b", "be", "e "}, {" to", "to ", "o b", " be", "be "}
    assert set(letters.known) == {"\tto", "\tbe"} | pairs | threes
    assert letters.size == 4 + len(letters.known)


def test_a_text_has_what_is_known_of_it_once():
    grams = NGramSet.learn(["good film", "good script"], words=1, characters=3, **LEARN)
    ids = grams.encode("goods good good x")
    assert ids.tolist() == sorted(set(ids.tolist()))
    assert ids.min() >= 4
    assert spelled(grams, "goods") == {
        " g",
        " go",
        "go",
        "goo",
        "oo",
        "ood",
        "od",
    }  # a new word, known in part
    assert len(grams.encode("")) == len(grams.encode("zzz")) == 0


def test_rare_ones_and_the_case_of_letters():
    texts = ["Good", "good good", "bad"]
    assert NGramSet.learn(texts, words=1, characters=0, **LEARN).known == ("\tGood", "\tbad", "\tgood")
    lower = NGramSet.learn(texts, words=1, characters=0, lowercase=True, least=2, most=9)
    assert lower.known == ("\tgood",)
    assert spelled(lower, "GOOD") == {"\tgood"}
    first = NGramSet.learn(texts, words=1, characters=0, lowercase=True, least=1, most=1)
    assert first.known == ("\tgood",)


def test_rare_words_are_kept_alone_and_come_first():
    texts = ["to be or", "or not to", "be not, be"]
    how = {"words": 2, "characters": 3, "lowercase": False, "least": 2, "most": 10**6}
    plain, rare = (NGramSet.learn(texts, **how, rare_words=kept) for kept in (False, True))
    assert set(rare.known) - set(plain.known) == {"\t,"}  # no pair of words and no letters that one text has
    assert rare.known[: rare.of_words] == ("\t,", "\tbe", "\tnot", "\tor", "\tto")
    assert plain.known[: plain.of_words] == ("\tbe", "\tnot", "\tor", "\tto")
    fewest = NGramSet.learn(texts, **{**how, "most": len(plain.known)}, rare_words=True)
    assert fewest.known == plain.known  # what one text has goes first where there are too many


def test_rare_words_are_left_out_where_most_words_are_met_once():
    """Texts without spaces between words are one long word each, and no two have the same."""
    how = {"words": 1, "characters": 0, "lowercase": False, "least": 2, "most": 10**6, "rare_words": True}
    sentences = ["他來了", "她來了", "他走了", "好", "好"]
    assert NGramSet.learn(sentences, **how).known == ("\t好",)
    assert len(NGramSet.learn([" ".join(text) for text in sentences], **how).known) == 6


@given(st.lists(st.text("ab c'.\n", max_size=12), max_size=6), st.integers(2, 5), st.integers(1, 3))
def test_characters_by_a_plain_count(texts, longest, least):
    counts = Counter()
    for text in texts:
        line = f" {' '.join(text.split())} "
        counts.update(
            {line[i:j] for i in range(len(line)) for j in range(i + 2, min(i + longest, len(line)) + 1)}
        )
    grams = NGramSet.learn(texts, words=1, characters=longest, lowercase=False, least=least, most=10**6)
    found = [gram for gram in grams.known if not gram.startswith("\t")]
    assert found == sorted(gram for gram, count in counts.items() if count >= least)
    for text in texts:
        line = f" {' '.join(text.split())} "
        assert {gram for gram in spelled(grams, text) if "\t" not in gram} == {g for g in found if g in line}
