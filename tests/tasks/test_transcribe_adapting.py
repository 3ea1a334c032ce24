"""A transcriber adapts to recordings without transcripts, by its own transcripts of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.cli.main import run as anaphora
from anaphora.errors import DataError, SettingsError
from anaphora.tasks import artifacts
from anaphora.tasks.transcribe.inference.adapting import Piece, Said, chosen, cut, surest

TINY = {
    "hidden": 16, "layers": 1, "subsample": 1, "masks": 0, "steps": 60, "lr": 0.02, "warmup": 0, "batch_tokens": 400, "ema": 0.0,
    "normalise": "none", "valid_every": 60, "save_every": 100, "device": "cpu", "dropout": 0.0, "kernel": 3,
}  # fmt: skip


def spoken(texts, shift, seed):
    """Frames ``(time, 2)``: x is 1 while a is said and −1 while b is, 0 between; a speaker adds a ``shift`` to what is said."""
    random = np.random.RandomState(seed)
    found = []
    for text in texts:
        frames = [[0.0, 0.0]] * 2
        for letter in text:
            x = (1.0 if letter == "a" else -1.0) + shift
            frames += [[x, 1.0]] * 3 + [[0.0, 0.0]] * 2
        found.append(np.array(frames, np.float32) + 0.1 * random.randn(len(frames), 2).astype(np.float32))
    return found


def texts_of(count, seed):
    random = np.random.RandomState(seed)
    return ["".join(random.choice(["a", "b"], size=random.randint(1, 4))) for _ in range(count)]


@pytest.fixture(scope="module")
def model():
    texts = texts_of(60, 0)
    pairs = list(zip(spoken(texts, 0.0, 1), texts, strict=True))
    return an.Transcriber("conv-ctc", **TINY).fit(pairs[10:], valid=pairs[:10])


def test_a_bonus_makes_words_as_frequent_as_in_training():
    scores = [[0.0, -1.0], [0.0, -2.0], [0.0, -8.0], [0.0, -9.0]]
    words = [[["a"], ["b"]]] * 4
    even = {"a": 500.0, "b": 500.0}
    assert chosen(scores, words, even, 1.0)[0] == [1, 1, 0, 0]
    assert chosen(scores, words, even, 0.0)[0] == [0, 0, 0, 0]
    assert chosen(scores, words, {}, 1.0)[0] == [
        0,
        0,
        0,
        0,
    ]  # a model that does not know how often words are said


def said(word, confidence, start=0, end=0, first=0, last=0):
    return Said(word, confidence, start, end, first, last)


def test_confidence_counts_within_a_word():
    rows = [[said("a", 0.9), said("b", 0.1)], [said("a", 0.8)], [said("b", 0.2)], [], [said("c", 0.01)]]
    assert surest(rows, 0.5) == [[True, False], [False], [True], [], [True]]
    assert surest(rows, 1.0) == [[True, True], [True], [True], [], [True]]


def test_words_that_are_kept_are_cut_out_of_their_recordings():
    """Between b and c a word may have been missed; d is not kept."""
    words = [
        said("a", 1.0, 5, 8, 0, 1), said("b", 1.0, 12, 14, 2, 3), said("c", 1.0, 40, 42, 4, 5), said("d", 0.1, 50, 52, 6, 7),
        said("e", 1.0, 60, 61, 8, 9),
    ]  # fmt: skip
    found = cut(7, words, [True, True, True, False, True], list(range(9)), 10)
    assert found == [Piece(7, 0, 24, [0, 1, 2]), Piece(7, 30, 46, [4]), Piece(7, 56, 71, [8])]
    assert cut(7, words, [False] * 5, list(range(9)), 10) == []
    assert cut(7, [], [], [], 10) == []


def test_adapting_learns_how_a_speaker_sounds_and_leaves_the_model_alone(model):
    texts = texts_of(40, 3)
    sounds = spoken(texts, 0.95, 4)  # b is almost as silent as a pause
    before = {name: value.clone() for name, value in model.model_.state_dict().items()}
    pairs = list(zip(sounds, texts, strict=True))
    first = model.score(pairs)["cer"]
    other = model.adapt(sounds, rounds=3)
    assert other.score(pairs)["cer"] < 0.5 * first, (first, other.score(pairs)["cer"])
    assert model.score(pairs)["cer"] == first
    assert all(torch.equal(before[name], value) for name, value in model.model_.state_dict().items())
    again = model.adapt(sounds, rounds=3)
    assert all(
        torch.equal(a, b)
        for a, b in zip(other.model_.state_dict().values(), again.model_.state_dict().values(), strict=True)
    )


def test_an_adapted_model_is_saved_as_a_run(model, tmp_path, capsys):
    texts = texts_of(6, 5)
    folder = tmp_path / "theirs"
    folder.mkdir()
    for i, frames in enumerate(spoken(texts, 0.3, 6)):
        np.save(folder / f"{i}.npy", frames)
    (folder / "7.npy").write_bytes(b"no array")
    model.save(tmp_path / "run")
    order = [
        "adapt",
        str(tmp_path / "run"),
        str(folder),
        "-o",
        str(tmp_path / "new"),
        "--rounds",
        "1",
        "--json",
    ]
    assert anaphora(order) == 2
    assert "7.npy" in capsys.readouterr().err
    assert anaphora([*order, "--skip-bad"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out) == {"out": str(tmp_path / "new")}
    assert "round 1 of 1: learning from the surest" in printed.err
    other = an.load(tmp_path / "new")
    assert (other.words_, list(other.counts_)) == (model.words_, list(model.counts_))
    assert not torch.equal(
        other.model_.frames.linear.weight, an.load(tmp_path / "run").model_.frames.linear.weight
    )
    assert anaphora(order) != 0  # the folder is not free


def test_runs_of_before_do_not_know_how_often_words_were_said(model, tmp_path, monkeypatch):
    facts_of = artifacts._facts

    def without(version, facts):
        return facts_of(version, {key: value for key, value in facts.items() if key != "counts"})

    monkeypatch.setattr(artifacts, "_facts", without)
    model.save(tmp_path / "run")
    other = an.load(tmp_path / "run")
    assert list(other.counts_) == []
    assert other.adapt(spoken(["a", "b", "ab"], 0.0, 1), rounds=1).predict(spoken(["a"], 0.0, 1))


@pytest.mark.parametrize(
    ("asked", "said"),
    [({"rounds": 0}, "at least 1"), ({"balance": 2.0}, "from 0 to 1"), ({"search": len}, "leave search out")],
)
def test_what_cannot_be_asked_for_is_named(model, asked, said):
    with pytest.raises(SettingsError, match=said):
        model.adapt(spoken(["a", "b"], 0.0, 1), **asked)


def test_one_recording_is_too_few(model):
    with pytest.raises(DataError, match="1 recordings of at most 30 s are too few"):
        model.adapt(spoken(["a"], 0.0, 1))


def test_silence_is_nothing_to_adapt_to(model):
    with pytest.raises(DataError, match="No word was heard in the 3 recordings"):
        model.adapt([np.zeros((9, 2), np.float32)] * 3)


def test_a_decoder_does_not_adapt():
    pairs = list(zip(spoken(["a", "b"], 0.0, 1), ["a", "b"], strict=True))
    small = {key: value for key, value in TINY.items() if key not in ("kernel", "masks")}
    model = an.Transcriber("attention", **{**small, "steps": 2, "embedding": 4}).fit(pairs, valid=pairs)
    with pytest.raises(SettingsError, match="needs a preset with CTC"):
        model.adapt([frames for frames, _ in pairs])
