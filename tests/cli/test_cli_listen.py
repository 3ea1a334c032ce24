"""``anaphora listen``: sound from a file or a pipe becomes lines of words, with a report at the end."""

from __future__ import annotations

import io
import json
import struct
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.data.audio import live
from anaphora.errors import DataError
from anaphora.tasks.transcribe.inference.session import Session
from anaphora.tasks.transcribe.inference.updates import Update
from anaphora.tasks.transcribe.inference.words import Transcript, Word

RATE = 8000


def sound(seconds=1.5, seed=0):
    draw = np.random.default_rng(seed)
    t = np.arange(int(seconds * RATE)) / RATE
    return (
        0.3 * np.sin(2 * np.pi * 500 * t * (1 + (t > seconds / 2))) + 0.01 * draw.normal(size=len(t))
    ).astype(np.float32)


def wav(samples, rate=RATE, channels=1, size=0xFFFFFFFF):
    """A WAV stream whose head does not know its length."""
    body = (np.clip(samples, -1, 1) * 32767).astype("<i2")
    body = np.repeat(body, channels)
    form = struct.pack("<HHIIHH", 1, channels, rate, rate * 2 * channels, 2 * channels, 16)
    return (
        b"RIFF"
        + struct.pack("<I", size)
        + b"WAVEfmt "
        + struct.pack("<I", 16)
        + form
        + b"data"
        + struct.pack("<I", size)
        + body.tobytes()
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("listen") / "run"
    data = [((sound(seed=i), RATE), "ab") for i in range(4)]
    small = {
        "hidden": 8,
        "layers": 1,
        "steps": 25,
        "bins": 8,
        "lr": 3e-2,
        "warmup": 0,
        "dropout": 0.0,
        "masks": 0,
        "speed": 0.0,
    }
    settings = {**small, "volume": 0.0, "ema": 0.0, "valid_every": 100, "save_every": 100, "device": "cpu"}
    an.Transcriber(model="lstm-ctc", **settings).fit(data, valid=data[:1], out=folder)
    return folder


def piped(monkeypatch, content):
    stdin = SimpleNamespace(buffer=io.BytesIO(content), isatty=lambda: False)
    monkeypatch.setattr(sys, "stdin", stdin)


def test_a_pipe_becomes_words_and_a_report(run, monkeypatch, capsys):
    whole = np.concatenate([sound(), np.zeros(RATE, np.float32), sound(seed=1)])
    piped(monkeypatch, wav(whole))
    assert main.run(["listen", str(run), "-", "--json", "--endpoint", "0", "--beam", "1"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    final = lines[-1]
    assert final["type"] == "final"
    assert final["streaming"] is True
    assert final["seconds"] == pytest.approx(4.0)
    assert final["real_time_factor"] > 0
    rounded = ((np.clip(whole, -1, 1) * 32767).astype("<i2") / 32768).astype(np.float32)
    assert final["text"] == an.load(run).predict([(rounded, RATE)], beam=1)[0]
    stable = [word for line in lines[:-1] for word in line["stable"]]
    assert final["words"][: len(stable)] == stable


def test_raw_samples_take_their_rate_from_the_options(run, monkeypatch, capsys):
    piped(monkeypatch, sound().astype("<f4").tobytes())
    assert main.run(["listen", str(run), "--rate", str(RATE), "--format", "f32"]) == 0
    said = capsys.readouterr()
    assert "1.5 s of sound took" in said.err
    assert "real-time factor" in said.err
    piped(monkeypatch, b"")
    assert main.run(["listen", str(run)]) == 0
    assert "There was no sound." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["x.wav", "--microphone"], "--microphone listens to no file"),
        (["-", "--real-time"], "--real-time is about a FILE"),
        (["missing.wav"], "missing.wav"),
        (["."], ". is a folder; give one sound file."),
        (["-", "--set", "beam=many"], "beam"),
    ],
)
def test_mistakes_are_one_sentence(run, monkeypatch, capsys, arguments, said):
    piped(monkeypatch, b"")
    assert main.run(["listen", str(run), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_there_must_be_sound(run, monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    assert main.run(["listen", str(run)]) == 2
    assert "there is no sound" in capsys.readouterr().err


def test_a_microphone_needs_its_package(run, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "sounddevice", None)
    assert main.run(["listen", str(run), "--microphone"]) == 2
    assert "pip install sounddevice" in capsys.readouterr().err


def test_heads_are_read_and_channels_mixed():
    given = live.of_stream(io.BytesIO(wav(sound(), channels=2)), rate=1, kind="f32")
    assert given.rate == RATE
    np.testing.assert_allclose(np.concatenate(list(given.pieces)), sound(), atol=1e-4)
    odd = live.of_stream(io.BytesIO(sound().astype("<f4").tobytes()[:-3]), rate=RATE, kind="f32")
    np.testing.assert_allclose(np.concatenate(list(odd.pieces)), sound()[:-1], atol=1e-6)
    bytes_ = live.of_stream(io.BytesIO(bytes([128, 255, 0] * 9)), rate=RATE, kind="u8")
    np.testing.assert_allclose(np.concatenate(list(bytes_.pieces))[:3], [0, 127 / 128, -1])


def test_chunks_after_the_samples_are_no_sound():
    whole = wav(sound(), size=2 * len(sound()))
    given = live.of_stream(io.BytesIO(whole + b"LIST" + bytes(range(256)) * 40), rate=1, kind="f32")
    assert len(np.concatenate(list(given.pieces))) == len(sound())
    for unknown in (0, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF):
        given = live.of_stream(io.BytesIO(wav(sound(), size=unknown)), rate=1, kind="f32")
        assert len(np.concatenate(list(given.pieces))) == len(sound())


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"fLaC" + bytes(500), "is a FLAC file"),
        (b"OggS" + bytes(500), "is an OGG file"),
        (b"ID3" + bytes(500), "is an MP3 file"),
        (bytes(4) + b"ftypM4A " + bytes(500), "is an MP4 file"),
        (b"a letter, not sound\n" * 9, "standard input is a text"),
    ],
)
def test_what_is_no_sound_is_not_taken_for_raw_samples(content, said):
    with pytest.raises(DataError, match=said):
        live.of_stream(io.BytesIO(content), rate=RATE, kind="s16")


def test_a_few_raw_bytes_and_samples_of_eight_bits_may_look_like_text():
    assert len(np.concatenate(list(live.of_stream(io.BytesIO(b"abcdef"), rate=RATE, kind="s16").pieces))) == 3
    text = b"a letter, not sound\n" * 9
    assert len(np.concatenate(list(live.of_stream(io.BytesIO(text), rate=RATE, kind="u8").pieces))) == len(
        text
    )


def test_a_microphone_that_is_not_there_is_one_sentence(run, monkeypatch, capsys):
    class PortAudioError(Exception):
        pass

    def stream(*_, **__):
        raise PortAudioError("Error querying device -1.")

    monkeypatch.setitem(
        sys.modules, "sounddevice", SimpleNamespace(InputStream=stream, PortAudioError=PortAudioError)
    )
    assert main.run(["listen", str(run), "--microphone"]) == 2
    assert (
        "the microphone cannot be read at 16000 Hz (Error querying device -1); connect"
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (wav(sound())[:30], "ends inside its head"),
        (
            wav(sound()).replace(struct.pack("<HHI", 1, 1, RATE), struct.pack("<HHI", 7, 1, RATE)),
            "is not read",
        ),
        (b"RIFF____WAVEdata____", "does not say what its samples are"),
        (b"RIFF____WAVEJUNK" + struct.pack("<I", 1 << 30), "does not end"),
    ],
)
def test_damaged_heads_are_one_sentence(content, said):
    with pytest.raises(DataError, match=said):
        live.of_stream(io.BytesIO(content), rate=RATE, kind="s16")


def test_a_file_may_come_no_faster_than_it_is_spoken(monkeypatch):
    slept = []
    monkeypatch.setattr(live.time, "sleep", slept.append)
    monkeypatch.setattr(live.time, "monotonic", lambda: 0.0)
    pieces = list(live._cut(sound(0.35), RATE, True))
    assert [len(piece) for piece in pieces] == [800, 800, 800, 400]
    np.testing.assert_allclose(slept, [0.1, 0.2, 0.3, 0.35])


def test_the_report_says_when_words_were_shown_and_certain():
    clock = iter(np.arange(0, 100, 0.25))  # every look at the clock is a quarter of a second later
    updates = iter(
        [Update([], [Word("a", 0, 0.5, 1)]), Update([Word("a", 0, 0.5, 1)], [Word("b", 1, 1.5, 1)])]
    )
    hearing = SimpleNamespace(
        every=1.0,
        push=lambda x: None,
        update=lambda: next(updates),
        finish=lambda: Transcript("a b", [], 0, 0),
    )
    session = Session(hearing, 10, clock=lambda: float(next(clock)))
    assert session.push(np.zeros(5, np.float32)) is None
    assert session.push(np.zeros(5, np.float32)).partial  # 1 s, and a quarter of work
    assert session.push(np.zeros(10, np.float32)).stable  # 2 s
    session.finish()
    report = session.report()
    assert report["seconds"] == 2
    assert report["work"] == pytest.approx(1.0)
    assert report["real_time_factor"] == pytest.approx(0.5)
    assert report["shown"]["mean"] == pytest.approx((0.75 + 0.75) / 2)  # 1.25 − 0.5 and 2.25 − 1.5
    assert report["certain"]["mean"] == pytest.approx(2.25 - 0.5)
    assert report["update"]["mean"] == pytest.approx(0.25)
