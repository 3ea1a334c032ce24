"""An answerer's run cannot be lost: killed and resumed it ends with the same bytes, with augmentation and all."""

from __future__ import annotations

import random
import signal
import time

import pytest
from answer_tiny import scenes, settings, write
from tasks_command import finish, lines, start, wait_for

pytest.importorskip("PIL")
pytestmark = pytest.mark.xdist_group("answerer durability")
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
    words = ["train", "answer", "train.tsv", "-o", run]
    for key, value in settings(**more, augment=0.1, mirror=True).items():
        words += ["--set", f"{key}={str(value).lower() if isinstance(value, bool) else value}"]
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("answerer-durability")
    write(folder, "train", scenes(60))
    return folder


def test_killed_three_times_it_ends_with_the_same_bytes(place):
    finish(place, *order("whole"))
    draw, kills = random.Random("answer"), 0
    for _ in range(3):
        begun = (place / "run" / "config.json").exists()
        process = start(place, *(["resume", "run"] if begun else [*order("run"), "--force"]))
        enough = lines(place / "run") + draw.randrange(2, 15)
        wait_for(process, lambda enough=enough: lines(place / "run") >= enough)
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2
    finish(place, "resume", "run")
    for name in FILES:
        assert (place / "run" / name).read_bytes() == (place / "whole" / name).read_bytes(), name
    assert "damaged" not in finish(place, "verify", "run")


def test_resuming_after_a_picture_changed_is_refused(place):
    from PIL import Image

    Image.new("RGB", (16, 16)).save(place / "train" / "3.png")
    assert "have changed since the run began" in finish(place, "resume", "whole", code=2)
