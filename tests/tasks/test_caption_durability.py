"""A captioner's run cannot be lost: killed and resumed it ends with the same bytes, hard attention's draws and all."""

from __future__ import annotations

import random

import pytest
from caption_tiny import pictures, settings, write
from tasks_command import KILLS, check_same_end, finish, kill_and_resume, setting_words

pytest.importorskip("PIL")
FILES = ("model.safetensors", "metrics.jsonl", "samples.jsonl", "config.json", "tokenizer.json", "README.md")


def order(run: str, preset: str, steps: int = 60) -> list[str]:
    """The words of ``anaphora train …`` for a run of a few seconds."""
    more = {"steps": steps, "save_every": 7, "valid_every": 20, "log_every": 1, "dropout": 0.1, "ema": 0.9}
    return ["train", "caption", "train.tsv", "-o", run, *setting_words(settings(preset, **more, augment=0.1))]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioner-durability")
    write(folder, "train", pictures(60))
    return folder


@pytest.mark.parametrize("preset", ["lstm-hard", pytest.param("transformer", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kills", KILLS)
def test_killed_it_ends_with_the_same_bytes(place, preset, kills):
    whole, run = f"whole-{preset}-{kills}", f"killed-{preset}-{kills}"
    finish(place, *order(whole, preset))
    draw = random.Random(preset)
    assert kill_and_resume(place, order(run, preset), draw, times=kills, steps=(8, 15)) >= min(kills, 2)
    check_same_end(place, run, whole, FILES)


def test_resuming_after_a_picture_changed_is_refused(place):
    finish(place, *order("changed", "lstm", steps=7))
    (place / "train-2.png").write_bytes((place / "train-3.png").read_bytes())
    assert "has changed since the run began" in finish(place, "resume", "changed", code=2)
