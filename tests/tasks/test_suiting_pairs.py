"""A translator of single words reads letters, unless the user says what a symbol is."""

from __future__ import annotations

import random

import pytest
import torch

import anaphora as an
from anaphora.data.table import HeldTable
from anaphora.tasks.suiting.translate import (
    FEW,
    FEW_SENTENCES,
    INVENTED,
    LEAST,
    LEAST_WORDS,
    MANY,
    OF_SYMBOLS,
    PASSES_OF_SYMBOLS,
    SOME,
    _copied,
    suit_pairs,
    writes_symbols,
)

DRAW = random.Random(3)


def word() -> str:
    return "".join(DRAW.choice("abdegiklmnorstu") for _ in range(DRAW.randint(4, 9)))


def phones() -> str:
    return " ".join(DRAW.choice(("AH", "B", "D", "EH", "T", "K")) for _ in range(5))


def source_of(pairs: list[tuple[str, str]]) -> HeldTable:
    return HeldTable(pairs, {"kind": "pairs"})


def sentence() -> str:
    return " ".join(word() for _ in range(6))


LETTERS = OF_SYMBOLS["transformer"] | PASSES_OF_SYMBOLS
SHORT = {"batch_tokens": 1024}
KINDS = {
    "inflection": (
        lambda: (f"{word()} {DRAW.choice(('V;PST', 'N;PL', 'V;PRS;3;SG'))}", word()),
        {"source_tokens": "char+tags", "target_tokens": "char", "joint": False} | INVENTED | LETTERS,
    ),
    "spelling": (lambda: (word(), word()), {"tokens": "char"} | LETTERS),
    "spelling to sound": (lambda: (word(), phones()), {"source_tokens": "char", "joint": False} | LETTERS),
    "sound to spelling": (lambda: (phones(), word()), {"target_tokens": "char", "joint": False} | LETTERS),
    "symbols": (lambda: (phones(), phones()), LETTERS),
    "sentences": (lambda: (sentence(), sentence()), FEW_SENTENCES),
    "words into sentences": (lambda: (word(), sentence()), {}),
    "symbols into sentences": (lambda: (phones(), sentence()), {}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_what_a_symbol_is_follows_from_the_pairs(kind):
    draw, expected = KINDS[kind]
    m = an.Translator(model="transformer")
    before = m.settings_
    suit_pairs(m, source_of([draw() for _ in range(LEAST)]))
    assert m.settings_ == before.model_copy(update=SHORT | expected)


@pytest.mark.parametrize(
    "given", [{"tokens": "bpe"}, {"vocab_size": 300}, {"tokens": "word"}, {"bpe_dropout": 0.1}]
)
def test_what_the_user_gives_is_kept(given):
    m = an.Translator(model="transformer", **given)
    before = m.settings_
    suit_pairs(m, source_of([(word(), word()) for _ in range(LEAST)]))
    assert m.settings_ == before.model_copy(update=SHORT)


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("spelling to sound", {"target_tokens": "word"}, ("bpe", "char", "word")),
        ("sound to spelling", {"source_tokens": "word"}, ("bpe", "word", "char")),
        ("spelling", {"source_tokens": "char"}, ("char", "char", "")),
        ("spelling to sound", {"source_tokens": "bpe"}, ("bpe", "bpe", "")),
        ("spelling to sound", {"source_tokens": "bpe", "target_tokens": "word"}, ("bpe", "bpe", "word")),
        ("inflection", {"target_tokens": "char"}, ("bpe", "", "char")),
    ],
)
def test_what_the_user_gives_for_one_side_leaves_the_other_to_be_assumed(kind, given, expected):
    m = an.Translator(**given)
    suit_pairs(m, source_of([KINDS[kind][0]() for _ in range(LEAST)]))
    assert (m.settings_.tokens, m.settings_.source_tokens, m.settings_.target_tokens) == expected


@pytest.mark.parametrize("model", ["lstm-attention", "transformer"])
@pytest.mark.parametrize(
    ("kind", "symbols"), [("spelling", ("char", "", "")), ("inflection", ("bpe", "char+tags", "char"))]
)
def test_one_vocabulary_for_both_sides_is_one_of_letters(kind, symbols, model):
    m = an.Translator(model=model, joint=True)
    suit_pairs(m, source_of([KINDS[kind][0]() for _ in range(LEAST)]))
    s = m.settings_
    assert s.joint
    assert (s.tokens, s.source_tokens, s.target_tokens) == symbols


def test_one_vocabulary_of_letters_and_phones_is_left_to_the_user():
    m = an.Translator(model="transformer", joint=True)
    suit_pairs(m, source_of([(word(), phones()) for _ in range(LEAST)]))
    assert (m.settings_.joint, m.settings_.tokens, m.settings_.source_tokens) == (True, "bpe", "")


def test_sides_apart_are_letters_too():
    m = an.Translator(model="transformer", joint=False)
    suit_pairs(m, source_of([(word(), word()) for _ in range(LEAST)]))
    assert (m.settings_.joint, m.settings_.tokens) == (False, "char")


def test_settings_of_the_user_stay_beside_those_for_symbols():
    m = an.Translator(model="transformer", dropout=0.4, epochs=3)
    suit_pairs(m, source_of([(phones(), phones()) for _ in range(LEAST)]))
    assert (m.settings_.dropout, m.settings_.epochs, m.settings_.min_steps) == (0.4, 3, 0)
    assert m.settings_.r_drop == 0


def test_what_suits_a_transformer_is_not_given_to_others():
    m = an.Translator(model="lstm-attention")
    before = m.settings_
    suit_pairs(m, source_of([(phones(), phones()) for _ in range(LEAST)]))
    assert m.settings_ == before.model_copy(update=SHORT | PASSES_OF_SYMBOLS)


@pytest.mark.parametrize("model", ["lstm-attention", "gru-attention", "transformer", "lstm"])
def test_words_with_tags_are_invented_where_there_are_few_of_them(model):
    row = KINDS["inflection"][0]()
    for count, given, expected in ((60, {}, 0.5), (60, {"invented": 0.0}, 0.0), (FEW + 1, {}, 0.0)):
        m = an.Translator(model=model, **given)
        suit_pairs(m, source_of([row] * count))
        assert m.settings_.invented == expected, (count, given)


def test_letters_of_words_with_tags_speak_for_themselves_where_a_preset_has_attention_of_one_kind():
    rows = source_of([KINDS["inflection"][0]() for _ in range(LEAST)])
    for model, given, expected in (
        ("lstm-attention", {}, (True, True)),
        ("lstm-attention", {"lexical": False}, (False, False)),
        ("lstm-attention", {"encoder": torch.nn.Identity}, (True, False)),
        ("gru-attention", {}, (False, False)),
        ("transformer", {}, (False, False)),
    ):
        m = an.Translator(model=model, **given)
        suit_pairs(m, rows)
        assert (m.settings_.joint, m.settings_.lexical) == expected, model


@pytest.mark.parametrize(
    ("count", "batch", "most"),
    [
        (FEW, 1024, 12_000),
        (FEW + 1, 2048, 12_000),
        (SOME + 1, 4096, 12_000),
        (MANY, 4096, 24_000),
    ],
)
def test_batches_and_length_follow_from_the_number_of_pairs(count, batch, most, monkeypatch):
    data = source_of([(sentence(), sentence()) for _ in range(LEAST)])
    monkeypatch.setattr(type(data), "__len__", lambda _: count)
    monkeypatch.setattr(data, "read", lambda _: [(sentence(), sentence()) for _ in range(LEAST)])
    m = an.Translator()
    suit_pairs(m, data)
    assert (m.settings_.batch_tokens, m.settings_.max_steps) == (batch, most)
    m = an.Translator(batch_tokens=500, steps=9)
    suit_pairs(m, data)
    assert (m.settings_.batch_tokens, m.settings_.steps, m.settings_.max_steps) == (500, 9, 0)


@pytest.mark.parametrize("kind", ["spelling", "spelling to sound", "sound to spelling"])
def test_few_single_words_are_read_by_letters_too(kind):
    draw, expected = KINDS[kind]
    for count, chosen in ((LEAST_WORDS, SHORT | expected), (LEAST_WORDS - 1, {})):
        m = an.Translator(model="transformer")
        before = m.settings_
        suit_pairs(m, source_of([draw() for _ in range(count)]))
        assert m.settings_ == before.model_copy(update=chosen)


@pytest.mark.parametrize("kind", ["sentences", "symbols", "symbols into sentences"])
def test_few_pairs_of_others_are_sentences(kind):
    for count, chosen in ((LEAST - 1, FEW_SENTENCES), (LEAST_WORDS, FEW_SENTENCES), (LEAST_WORDS - 1, {})):
        m = an.Translator(model="transformer")
        before = m.settings_
        suit_pairs(m, source_of([KINDS[kind][0]() for _ in range(count)]))
        assert m.settings_ == before.model_copy(update=chosen)


def many_phones() -> str:
    """Six of a hundred phones, as an inventory with stress or tone has."""
    return " ".join(f"P{DRAW.randrange(100)}" for _ in range(6))


@pytest.mark.parametrize("turned", [False, True])
def test_a_hundred_phones_beside_single_words_are_symbols(turned):
    pairs = [(word(), many_phones()) for _ in range(LEAST)]
    side, expected = (
        ("target", KINDS["sound to spelling"]) if turned else ("source", KINDS["spelling to sound"])
    )
    m = an.Translator(model="transformer")
    before = m.settings_
    suit_pairs(m, source_of([(said, spelt) for spelt, said in pairs] if turned else pairs))
    assert m.settings_ == before.model_copy(update=SHORT | expected[1])
    assert getattr(m.settings_, f"{side}_tokens") == "char"


def test_a_hundred_phones_on_both_sides_of_few_pairs_are_sentences():
    m = an.Translator(model="transformer")
    before = m.settings_
    suit_pairs(m, source_of([(many_phones(), many_phones()) for _ in range(LEAST)]))
    assert m.settings_ == before.model_copy(update=FEW_SENTENCES)


@pytest.mark.parametrize(
    ("draw", "count", "expected"),
    [
        (lambda: (word(), phones()), LEAST_WORDS, True),
        (lambda: (word(), many_phones()), LEAST, True),
        (lambda: (phones(), phones()), LEAST, True),
        (lambda: (word(), phones()), LEAST_WORDS - 1, False),
        (lambda: (phones(), word()), LEAST, False),
        (lambda: (word(), sentence()), LEAST, False),
    ],
)
def test_targets_of_a_fixed_set_of_symbols_are_known(draw, count, expected):
    assert writes_symbols(source_of([draw() for _ in range(count)])) is expected


def other_script(text: str) -> str:
    return "".join(chr(ord(letter) + 0x400) if letter.isalpha() else letter for letter in text)


@pytest.mark.parametrize("draw", [sentence, word])
def test_what_few_pairs_copy_is_one_symbol_on_both_sides(draw):
    texts = [draw() for _ in range(LEAST)]
    alike, apart = [(text, f"{text} ok") for text in texts], [(text, other_script(text)) for text in texts]
    for rows, model, given, expected in (
        (alike, "lstm-attention", {}, (True, True)),
        (apart, "lstm-attention", {}, (False, True)),
        (alike, "lstm-attention", {"lexical": False}, (False, False)),
        (alike, "lstm-attention", {"joint": False}, (False, True)),
        (alike, "lstm-attention", {"tokens": "bpe"}, (False, False)),
        (alike, "gru-attention", {}, (False, False)),
        (alike * 11, "lstm-attention", {}, (False, False)),  # more than FEW
    ):
        m = an.Translator(model=model, **given)
        suit_pairs(m, source_of(rows))
        assert (m.settings_.joint, m.settings_.lexical) == expected, (len(rows), model, given)


def test_one_word_of_twenty_is_copied_enough():
    words = [word() for _ in range(20)]
    for kept, expected in ((1, True), (0, False)):
        rows = [(" ".join(words), " ".join([*words[:kept], *(f"{one}x" for one in words[kept:])]))] * LEAST
        assert _copied(rows, by_letters=False) is expected


def test_few_sentences_are_trained_for_longer_by_the_preset_that_was_measured():
    rows = [(sentence(), sentence()) for _ in range(LEAST)]
    for model, given, expected in (
        ("lstm-attention", {}, 3000),
        ("lstm-attention", {"vocab_size": 400}, 3000),
        ("lstm-attention", {"steps": 7}, 0),
        ("transformer", {}, 1000),
    ):
        m = an.Translator(model=model, **given)
        suit_pairs(m, source_of(rows))
        assert m.settings_.min_steps == expected, (model, given)


def test_a_run_keeps_what_was_chosen(tmp_path):
    pairs = [(word(), phones()) for _ in range(LEAST + 50)]
    m = an.Translator(
        model="transformer", hidden=8, heads=2, layers=1, feedforward=8, steps=1, valid_examples=2
    )
    m.fit(pairs, valid=pairs[:2], out=tmp_path / "run")
    again = an.load(tmp_path / "run")
    assert again.settings_.source_tokens == "char"
    assert again.settings_.joint is False
    (symbols,) = m.tokenizer_.sources(["kit"])
    assert len(symbols) == 3
