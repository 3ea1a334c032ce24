"""The corpus of synthetic voices: the same everywhere, nobody in two splits, words that sound as their phones say."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
import torch

from anaphora.cli import main
from anaphora.data.audio.features import LogMel
from anaphora.data.batches.pooled import random_of
from anaphora.data.corpora.sound_corpus import SPEAKERS
from anaphora.data.corpora.tones import CORPUS, LEXICON
from anaphora.data.corpora.tones_voice import PHONES, RATE, say, speaker
from anaphora.kinds.measures.judged import values
from anaphora.kinds.measures.transcripts import error_measures

VARIANT = CORPUS.default_variant


def loudness(x, low, high):
    """Power between two frequencies."""
    spectrum = np.abs(np.fft.rfft(x * np.hanning(len(x)))) ** 2
    frequencies = np.fft.rfftfreq(len(x), 1 / RATE)
    return spectrum[(frequencies >= low) & (frequencies < high)].sum()


def spoken(*phones, number=0):
    return say([list(phones)], speaker(number, 1), random_of(5, number))


def test_the_same_for_everybody():
    digest = hashlib.sha256()
    for x, text in CORPUS.generate(VARIANT, "dev", 5):
        assert x.dtype == np.float32
        np.testing.assert_array_equal(x * 32_768, np.round(x * 32_768))
        digest.update((x * 32_768).astype("<i2").tobytes() + text.encode())
    assert digest.hexdigest()[:16] == "37f3801758c10281"


def test_an_utterance_does_not_depend_on_how_many_are_asked_for():
    few, many = (CORPUS.generate(VARIANT, "test", n) for n in (2, 4))
    for (x, text), (y, other) in zip(few, many, strict=False):
        np.testing.assert_array_equal(x, y)
        assert text == other


def test_the_variants_are_the_same_recordings():
    words, phones, noisy = (CORPUS.generate(variant, "dev", 3) for variant in ("words", "phones", "noisy"))
    for (x, text), (y, sounds), (z, other) in zip(words, phones, noisy, strict=True):
        np.testing.assert_array_equal(x, y)
        assert sounds.split() == [phone for word in text.split() for phone in LEXICON[word]]
        assert other == text
        silence = slice(0, 600)  # nobody speaks yet
        assert 4 < z[silence].std() / x[silence].std() < 8


def test_the_baseline_is_as_stated():
    truth = CORPUS.transcripts(VARIANT, "test", 300)
    answers = ["the sheep bite the sheep"] * len(truth)
    assert values(error_measures(truth, answers))["wer"] == pytest.approx(81.6, abs=0.1)


def test_splits_share_neither_sentences_nor_speakers():
    said = {split: CORPUS.transcripts(VARIANT, split, 500) for split in ("train", "dev", "test")}
    assert len(set().union(*said.values())) == 1500
    people = [speaker(i, 1) for i in range(sum(SPEAKERS.values()))]
    assert len({(one.pitch, one.tract) for one in people}) == len(people)


def test_sentences_follow_the_grammar():
    counts, things = {"two", "four", "ten"}, {"men", "sheep", "bees"}
    for text in CORPUS.transcripts(VARIANT, "train", 300):
        words = text.split()
        assert set(words) <= set(LEXICON)
        verbs = [word for word in words if word in {"sees", "bites", "buys", "see", "bite", "buy"}]
        assert len(verbs) == 1
        plural = words[words.index(verbs[0]) - 1] in things
        assert verbs[0].endswith("s") != plural
        assert all(
            first not in counts or second in things or second in {"red", "sad", "big", "blue", "thin", "tin"}
            for first, second in pairwise(words)
        )


def test_every_word_occurs_and_many_sound_alike():
    said = " ".join(CORPUS.transcripts(VARIANT, "train", 500)).split()
    assert set(said) == set(LEXICON)
    assert {phone for phones in LEXICON.values() for phone in phones} == set(PHONES)
    assert len(LEXICON) - len(set(LEXICON.values())) == 4


def test_sounds_are_where_their_formants_and_noises_are():
    vowels = {name: spoken(name)[1000:1800] for name in ("iy", "uw", "aa")}
    # a tongue in front raises the second formant: much more of "iy" than of "uw" lies above 1700 Hz
    above = {name: loudness(x, 1700, 3000) / loudness(x, 100, 1300) for name, x in vowels.items()}
    assert above["iy"] > 5 * above["uw"]
    assert loudness(vowels["aa"], 600, 1000) > 3 * loudness(vowels["iy"], 600, 1000)
    hiss = {name: spoken(name)[1000:1700] for name in ("s", "sh")}
    sharp = {name: loudness(x, 3100, 4000) / loudness(x, 1800, 2800) for name, x in hiss.items()}
    assert sharp["s"] > 10 * sharp["sh"]


def test_pitch_is_the_speakers():
    for number in (0, 1, 2):
        x = spoken("aa", number=number)[1100:1900]
        delays = np.correlate(x, x, "full")[len(x) :]
        period = 20 + int(np.argmax(delays[20:120])) + 1
        assert RATE / period == pytest.approx(speaker(number, 1).pitch, rel=0.25)


def test_words_that_are_alike_are_not_the_same():
    features = LogMel(RATE, bins=30)
    for one, other in (
        ("dog", "dock"),
        ("pen", "pan"),
        ("bites", "buys"),
        ("ship", "sheep"),
        ("thin", "tin"),
    ):
        first, second = (
            features(torch.from_numpy(spoken(*LEXICON[word]))[None])[0][0] for word in (one, other)
        )
        shorter = min(len(first), len(second))
        assert (first[:shorter] - second[:shorter]).abs().mean(1).max() > 1, (one, other)


def test_the_command_writes_files_and_their_list(tmp_path, capsys):
    folder = tmp_path / "spoken"
    order = ["corpora", "tones", "--write", str(folder), "--split", "dev", "--size", "3"]
    assert main.run(order) == 0
    rows = [row.split("\t") for row in (folder / "list.tsv").read_text().splitlines()]
    assert [text for _, text in rows] == CORPUS.transcripts(VARIANT, "dev", 3)
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [path for path, _ in rows] + ["list.tsv", "lexicon.tsv"]
    )
    assert main.run(order) == 2
    assert "exists already" in capsys.readouterr().err
    assert main.run(["corpora", "tones", "--size", "2"]) == 0
    assert " s  " in capsys.readouterr().out
