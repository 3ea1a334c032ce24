"""An answerer's run cannot be lost: killed and resumed it ends with the same bytes, with augmentation and all."""

from __future__ import annotations

import random

import pytest
from answer_tiny import scenes, settings, write
from tasks_command import KILLS, check_same_end, finish, kill_and_resume, setting_words

pytest.importorskip("PIL")
FILES = (
    "model.safetensors",
    "metrics.jsonl",
    "samples.jsonl",
    "config.json",
    "tokenizer.json",
    "learnt.json",
    "README.md",
)


def order(run: str) -> list[str]:
    """The words of ``anaphora train …`` for a run of a few seconds."""
    more = {"steps": 60, "save_every": 7, "valid_every": 20, "log_every": 1, "dropout": 0.1, "ema": 0.9}
    given = settings(**more, augment=0.1, mirror=True)
    return ["train", "answer", "train.tsv", "-o", run, *setting_words(given)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with data and an uninterrupted run named ``whole``."""
    folder = tmp_path_factory.mktemp("answerer-durability")
    write(folder, "train", scenes(60))
    finish(folder, *order("whole"))
    return folder


@pytest.mark.parametrize("kills", KILLS)
def test_killed_it_ends_with_the_same_bytes(place, kills):
    run, draw = f"killed-{kills}", random.Random("answer")
    assert kill_and_resume(place, order(run), draw, times=kills, steps=(8, 15)) >= min(kills, 2)
    check_same_end(place, run, "whole", FILES)


def test_resuming_after_a_picture_changed_is_refused(place):
    from PIL import Image

    Image.new("RGB", (16, 16)).save(place / "train" / "3.png")
    assert "has changed since the run began" in finish(place, "resume", "whole", code=2)
