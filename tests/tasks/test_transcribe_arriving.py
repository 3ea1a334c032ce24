"""Sound that is still arriving: the end is what ``predict`` says of the whole, and utterances end where people pause."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

import anaphora as an
from anaphora.errors import AnaphoraError, DataError
from anaphora.tasks.transcribe.inference.again import HearingAgain
from anaphora.tasks.transcribe.inference.arriving import FrameStream, hears_as_it_arrives
from anaphora.tasks.transcribe.inference.streaming import HearingAsItArrives, open_hearing
from anaphora.tasks.transcribe.inference.updates import Endpoint, Update
from anaphora.tasks.transcribe.inference.words import Word

RATE = 8000
TONES = {"a": 400.0, "b": 900.0, "c": 1600.0, " ": 2600.0}


def spoken(text: str, seed: int = 0, after: float = 0.05) -> Any:
    """Each letter a tone of its own, with silence between and ``after`` seconds of it at the end."""
    draw, parts = np.random.default_rng(seed), [np.zeros(600)]
    for letter in text:
        n = int(draw.integers(560, 900))
        parts += [0.5 * np.sin(2 * np.pi * TONES[letter] * np.arange(n) / RATE), np.zeros(300)]
    x = np.concatenate([*parts, np.zeros(int(after * RATE))])
    return (x + 0.003 * draw.normal(size=len(x))).astype(np.float32)


def texts(count: int, seed: int = 0) -> list[str]:
    draw = np.random.default_rng(seed)
    return [
        " ".join("".join(draw.choice(list("abc"), size=draw.integers(1, 4))) for _ in range(3))
        for _ in range(count)
    ]


SETTINGS: dict[str, Any] = {
    "hidden": 24, "layers": 1, "batch_tokens": 2000, "lr": 2e-2, "warmup": 0, "dropout": 0.0, "ema": 0.0, "valid_every": 1000,
    "save_every": 1000, "subsample": 3, "masks": 0, "speed": 0.0, "volume": 0.0, "bins": 12, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained() -> Any:
    """A causal model of each preset, made when it is first asked for."""
    made: dict[str, an.Transcriber] = {}

    def model(preset: str) -> an.Transcriber:
        if preset not in made:
            data = [((spoken(text, i), RATE), text) for i, text in enumerate(texts(30))]
            more: dict[str, Any] = {"steps": 60}
            if preset == "conformer-ctc":
                more = {
                    "steps": 90,
                    "lr": 5e-3,
                    "heads": 2,
                    "feedforward": 48,
                    "kernel": 5,
                    "chunk": 5,
                    "left": 2,
                }
            if preset == "transducer":  # it learns to stay silent first
                more = {"steps": 160, "lr": 1e-2, "hidden": 32, "embedding": 8, "ctc_weight": 0.6}
            made[preset] = an.Transcriber(preset, **{**SETTINGS, **more}).fit(data, valid=data[:2])
        return made[preset]

    return model


def heard(hearing: Any, samples: Any, piece: int = 997) -> tuple[list[Update], Any]:
    """All updates, one after each piece, and the transcript of the end."""
    updates = []
    for at in range(0, len(samples), piece):
        hearing.push(samples[at : at + piece])
        updates.append(hearing.update())
    return updates, hearing.finish()


@pytest.mark.parametrize("preset", ["lstm-ctc", "conformer-ctc", "transducer"])
@pytest.mark.parametrize("options", [{"beam": 1}, {"beam": 6}])
def test_the_end_is_what_predict_says_and_certain_words_stay(trained, preset, options):
    model = trained(preset)
    assert hears_as_it_arrives(model)
    settled = 0
    for seed, text in enumerate(texts(2, seed=9)):
        samples = spoken(text, seed)
        hearing = open_hearing(model, RATE, options)
        assert isinstance(hearing, HearingAsItArrives)
        updates, final = heard(hearing, samples)
        (whole,) = model.predict([(samples, RATE)], details=True, **options)
        assert final.text == whole.text
        stable = [word for update in updates for word in update.stable]
        assert final.words[: len(stable)] == stable
        assert [word.word for word in final.words] == [word.word for word in whole.words]
        settled += len(stable)
        assert not any(update.ended for update in updates)
    if options["beam"] == 1:  # in a beam of so short a recording an unlikely beginning may stay alive
        assert settled


def test_words_with_a_lexicon_and_hot_words_are_those_of_predict(trained):
    model = trained("lstm-ctc")
    for more in ({}, {"hot_words": "abc:4, b a:2", "hot_bonus": 1.0}):
        options = {"lexicon": "train", "beam": 20, **more}
        samples = spoken("ab c", 3)
        hearing = open_hearing(model, RATE, options)
        assert isinstance(hearing, HearingAsItArrives)
        updates, final = heard(hearing, samples)
        (whole,) = model.predict([(samples, RATE)], details=True, **options)
        assert final.text == whole.text
        stable = [word.word for update in updates for word in update.stable]
        assert final.text.split()[: len(stable)] == stable


def test_several_voices_are_heard_where_they_are_asked_for(trained):
    model, samples = trained("lstm-ctc"), spoken("ab c", 3)
    final = heard(open_hearing(model, RATE, {"voices": 3, "beam": 1}), samples, len(samples))[1]
    (whole,) = model.predict([(samples, RATE)], voices=3, beam=1, details=True)
    assert [word.word for word in final.words] == [word.word for word in whole.words]


def test_whole_numbers_arrive_as_those_of_a_file(trained):
    model, samples = trained("lstm-ctc"), spoken("ab c", 3)
    found = []
    for given in (samples, np.round(samples * 32768).astype(np.int16)):
        session = model.listening(RATE, beam=1)
        session.push(given)
        found.append(session.finish().text)
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"rate": 0}, "rate of 0"),
        ({"rate": 10**9}, "from 1000 to 384000"),
        ({"rate": 8000.5}, "whole number"),
        ({"endpoint": -1.0}, "endpoint = -1"),
        ({"endpoint": float("nan")}, "endpoint = nan"),
        ({"every": -1.0}, "every = -1"),
    ],
)
def test_what_cannot_be_listened_to_is_told_in_a_sentence(trained, given, told):
    with pytest.raises(AnaphoraError, match=told):
        trained("lstm-ctc").listening(**{"rate": RATE, **given})


@pytest.mark.parametrize(
    ("sound", "told"),
    [
        (np.zeros((10, 2)), r"shape \(10, 2\)"),
        ("abc", "no numbers"),
        (np.full(10, np.nan), "NaN"),
        (np.full(10, 1e30), "from −1 to 1"),
    ],
)
def test_sound_that_cannot_be_heard_is_told_in_a_sentence(trained, sound, told):
    with pytest.raises(DataError, match=told):
        trained("lstm-ctc").listening(RATE).push(sound)


def test_chunks_as_they_arrive_are_those_of_the_whole(trained, tmp_path):
    trained("conformer-ctc").save(tmp_path / "run")
    model = an.load(tmp_path / "run")
    samples = spoken("abc cab b", 5)
    with torch.no_grad():
        frames = torch.from_numpy(model._hear((samples, RATE)))[None]
        scores, _ = model.model_.eval()(frames, torch.tensor([frames.shape[1]]))
        stream = FrameStream(model.model_, model.ear_, RATE)
        parts = [stream.push(samples[at : at + 700]) for at in range(0, len(samples), 700)]
        parts.append(stream.finish())
    torch.testing.assert_close(torch.cat(parts), scores[0].log_softmax(-1), rtol=1e-4, atol=1e-4)
    whole = an.Transcriber(
        "conformer-ctc", **{**SETTINGS, "steps": 1, "chunk": 0, "heads": 2, "feedforward": 8}
    )
    assert not hears_as_it_arrives(whole.fit([((samples, RATE), "abc cab b")] * 2))


@pytest.mark.parametrize("preset", ["lstm-ctc", "transducer"])
def test_a_pause_ends_an_utterance(trained, preset):
    model = trained(preset)
    samples = np.concatenate([spoken("abc", 1, after=1.2), spoken("cb", 2, after=1.2)])
    endpoint = Endpoint(silence=0.6)
    updates, final = heard(open_hearing(model, RATE, {"beam": 4}, endpoint=endpoint), samples)
    ends = [update for update in updates if update.ended]
    assert len(ends) >= 2
    assert all(not update.partial for update in ends)
    assert [word for update in updates for word in update.stable] == final.words
    assert final.text == " ".join(word.word for word in final.words)
    assert all(a.end <= b.end for a, b in zip(final.words, final.words[1:], strict=False))
    assert any(word.start > len(samples) / RATE / 2 for word in final.words)


@pytest.mark.parametrize("preset", ["lstm-ctc", "conformer-ctc", "transducer"])
@pytest.mark.parametrize("pause", [1.0, 7.0])
def test_digital_silence_changes_nothing_of_what_follows(trained, preset, pause):
    model = trained(preset)
    one, other = spoken("abc", 1, after=0.0), spoken("cab", 2, after=0.0)
    whole = np.concatenate([one, np.zeros(int(pause * RATE), np.float32), other, np.zeros(RATE, np.float32)])
    # A beam adds up paths over silence such as training had not, and finds other letters in more of it.
    updates, final = heard(open_hearing(model, RATE, {"beam": 1}, endpoint=Endpoint(silence=0.6)), whole)
    padded = [np.concatenate([x, np.zeros(RATE // 2, np.float32)]) for x in (one, other)]
    alone = model.predict([(x, RATE) for x in padded], beam=1)
    letters = [
        "".join(k for k, _ in itertools.groupby("".join(t.split()))) for t in (final.text, " ".join(alone))
    ]
    assert letters[0] == letters[1]  # of a tone that goes on the models write one letter or more
    first = len(one) / RATE
    assert not any(first + 0.3 < word.start < first + pause - 0.3 for word in final.words)
    assert final.words[-1].start > first + pause - 0.3
    assert sum(update.ended for update in updates) == 2


def test_a_muted_microphone_says_nothing(trained):
    hearing = open_hearing(
        trained("lstm-ctc"), RATE, {"beam": 1}, endpoint=Endpoint(silence=0.6, longest=3.0)
    )
    updates, final = heard(hearing, np.zeros(8 * RATE, np.float32))
    assert not any(update.stable or update.partial or update.ended for update in updates)
    assert final.text == ""
    assert final.words == []


def test_models_that_need_the_whole_end_utterances_too(trained):
    model = trained("lstm-ctc")

    def transcribe(samples: Any) -> list[Word]:
        found = model.transcribe([(samples, RATE)])[0][0].words
        return list(found)

    samples = np.concatenate([spoken("abc", 1, after=1.5), spoken("cb", 2, after=1.5)])
    hearing = HearingAgain(transcribe, RATE, endpoint=Endpoint(silence=0.6))
    updates, final = heard(hearing, samples, piece=4000)
    assert sum(update.ended for update in updates) >= 2
    assert [word for update in updates for word in update.stable] == final.words
    assert isinstance(open_hearing(trained("transducer"), RATE, {"lexicon": "train"}), HearingAgain)


def test_an_utterance_ends_by_silence_or_by_its_length():
    rule, words = Endpoint(silence=0.5, longest=4.0), [Word("a", 1.0, 1.2, 0.9)]
    assert not rule.ends(words, 0.0, 1.6)
    assert rule.ends(words, 0.0, 1.7)
    assert not rule.ends([], 0.0, 3.9)
    assert rule.ends([], 0.0, 4.0)
    assert rule.ends([Word("a", 3.9, 4.0, 0.9)], 0.0, 4.0)
    assert rule.ends(words, 0.0, 1.3, quiet=0.5)  # what follows the last sound is no word
    assert not rule.ends([], 0.0, 1.3, quiet=0.5)


def test_nothing_heard_is_nothing(trained):
    hearing = open_hearing(trained("lstm-ctc"), RATE, {})
    assert hearing.update() == Update([], [])
    assert hearing.finish().text == ""
