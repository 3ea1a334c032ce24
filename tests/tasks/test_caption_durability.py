"""A captioner's run cannot be lost: killed and resumed it ends with the same bytes, hard attention's draws and all."""

from __future__ import annotations

import random
import signal
import time

import pytest
from caption_tiny import pictures, settings, write
from tasks_command import finish, lines, start, wait_for

pytest.importorskip("PIL")
pytestmark = pytest.mark.xdist_group("captioner durability")
FILES = ("model.safetensors", "metrics.jsonl", "samples.jsonl", "config.json", "tokenizer.json", "README.md")


def order(run: str, preset: str) -> list[str]:
    """The words of ``anaphora train …`` for a run of a few seconds."""
    more = {"steps": 60, "save_every": 7, "valid_every": 20, "log_every": 1, "dropout": 0.1, "ema": 0.9}
    words = ["train", "caption", "train.tsv", "-o", run]
    for key, value in settings(preset, **more, augment=0.1).items():
        words += ["--set", f"{key}={value}"]
    return words


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captioner-durability")
    write(folder, "train", pictures(60))
    return folder


@pytest.mark.parametrize("preset", ["lstm-hard", pytest.param("transformer", marks=pytest.mark.slow)])
def test_killed_three_times_it_ends_with_the_same_bytes(place, preset):
    whole, run = f"whole-{preset}", f"killed-{preset}"
    finish(place, *order(whole, preset))
    draw, kills = random.Random(preset), 0
    for _ in range(3):
        begun = (place / run / "config.json").exists()
        process = start(place, *(["resume", run] if begun else [*order(run, preset), "--force"]))
        enough = lines(place / run) + draw.randrange(2, 15)
        wait_for(process, lambda enough=enough: lines(place / run) >= enough)
        time.sleep(draw.uniform(0, 0.02))
        process.kill()
        process.communicate()
        kills += process.returncode == -signal.SIGKILL
    assert kills >= 2
    finish(place, "resume", run)
    for name in FILES:
        assert (place / run / name).read_bytes() == (place / whole / name).read_bytes(), name
    assert "damaged" not in finish(place, "verify", run)


def test_resuming_after_a_picture_changed_is_refused(place):
    finish(place, *order("changed", "lstm"))
    (place / "train-2.png").write_bytes((place / "train-3.png").read_bytes())
    assert "have changed since the run began" in finish(place, "resume", "changed", code=2)
