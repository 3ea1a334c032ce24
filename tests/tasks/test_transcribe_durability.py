"""A transcriber's run cannot be lost: killed and resumed it ends with the same bytes, whatever was drawn at random on the way."""

from __future__ import annotations

import random
import wave

import numpy as np
import pytest
from tasks_command import KILLS, check_same_end, finish, kill_and_resume, setting_words
from transcribe_tiny import recordings, settings

FILES = (
    "model.safetensors",
    "metrics.jsonl",
    "samples.jsonl",
    "config.json",
    "learnt.json",
    "tokenizer.json",
    "README.md",
)


def order(run: str) -> list[str]:
    """The words of ``anaphora train …`` for a run of a second or two."""
    more = {"steps": 60, "save_every": 7, "valid_every": 20, "log_every": 1, "dropout": 0.1, "ema": 0.9}
    given = settings("conv-ctc", **more, masks=2, time_mask=3, speed=0.1, bins=12, members=2)
    return ["train", "transcribe", "sound.tsv", "-o", run, *setting_words(given)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """``sound.tsv``, a list of WAV files, and an uninterrupted run on it named ``whole``."""
    folder = tmp_path_factory.mktemp("transcriber-durability")
    rows = []
    for i, (_, text) in enumerate(recordings(40)):
        pitch = 200 + 40 * i
        samples = 9000 * np.sin(2 * np.pi * pitch * np.arange(4000) / 8000)
        with wave.open(str(folder / f"{i}.wav"), "wb") as file:
            file.setparams((1, 2, 8000, 0, "NONE", ""))
            file.writeframes(samples.astype("<i2").tobytes())
        rows.append(f"{i}.wav\t{text[:4]}\n")
    (folder / "sound.tsv").write_text("".join(rows))
    finish(folder, *order("whole"))
    return folder


@pytest.mark.parametrize("kills", KILLS)
def test_killed_it_ends_with_the_same_bytes(place, kills):
    run, past_a_checkpoint = f"killed-{kills}", (9, 20)
    draw = random.Random(1)
    assert kill_and_resume(place, order(run), draw, times=kills, steps=past_a_checkpoint) >= min(kills, 2)
    check_same_end(place, run, "whole", FILES)


def test_the_command_answers_for_a_file_and_for_bad_ones(place):
    assert len(finish(place, "predict", "whole", "0.wav").splitlines()) == 1
    (place / "bad.txt").write_text("0.wav\nmissing.wav\n")
    assert "missing.wav" in finish(place, "predict", "whole", "bad.txt", code=2)
    said = finish(place, "predict", "whole", "bad.txt", "--skip-bad", "--json")
    assert '"file": "0.wav"' in said
    assert "1 of 2" in said
    said = finish(place, "score", "whole", "sound.tsv", "--set", "lexicon=train")
    assert "wer" in said
    assert "errors" in said


def test_resuming_after_a_recording_changed_is_refused(place):
    samples = (place / "3.wav").read_bytes()
    (place / "3.wav").write_bytes(samples[:-1000] + bytes(1000))
    try:
        assert "has changed since the run began" in finish(place, "resume", "whole", code=2)
    finally:
        (place / "3.wav").write_bytes(samples)
