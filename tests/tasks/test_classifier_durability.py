"""A classifier's run cannot be lost: killed and resumed it ends with the same bytes, texts, vectors and pictures alike."""

from __future__ import annotations

import random

import numpy as np
import pytest
from classify_tiny import PICTURES, bars, settings, texts, waves
from tasks_command import KILLS, check_same_end, finish, kill_and_resume, setting_words

FILES = ("model.safetensors", "metrics.jsonl", "samples.jsonl", "config.json", "learnt.json", "README.md")


def order(data: str, run: str, steps: int = 80) -> list[str]:
    """The words of ``anaphora train …`` for a run of a second or two."""
    more = {"steps": steps, "save_every": 7, "valid_every": 20, "log_every": 1, "dropout": 0.1, "ema": 0.9}
    preset = data.removesuffix(".npz") if data.removesuffix(".npz") in PICTURES else "bilstm attention"
    more |= {} if preset in PICTURES else {"word_dropout": 0.1}
    return ["train", "classify", data, "-o", run, *setting_words(settings(preset, **more))]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("classifier-durability")
    (folder / "texts.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in texts(200)))
    sequences, labels = zip(*waves(100), strict=True)
    lengths = [len(x) for x in sequences]
    np.savez(folder / "waves.npz", X=np.concatenate(sequences), y=np.array(labels), lengths=lengths)
    pictures, labels = zip(*bars(100), strict=True)
    for preset in PICTURES:
        np.savez(folder / f"{preset}.npz", X=np.stack(pictures), y=np.array(labels))
    return folder


@pytest.mark.parametrize("kills", KILLS)
@pytest.mark.parametrize(
    "data",
    [
        "texts.tsv",
        "glimpse.npz",
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("waves.npz", "grid-lstm.npz")),
    ],
)
def test_killed_it_ends_with_the_same_bytes(place, data, kills):
    whole, run = f"whole-{data}-{kills}", f"killed-{data}-{kills}"
    finish(place, *order(data, whole))
    draw = random.Random(data)
    assert kill_and_resume(place, order(data, run), draw, times=kills, steps=(8, 20)) >= min(kills, 2)
    check_same_end(place, run, whole, FILES)


def test_resuming_after_the_data_changed_is_refused(place):
    finish(place, *order("waves.npz", "changed", steps=7))
    np.savez(place / "waves.npz", X=np.ones((4, 2, 2)), y=[1, 1, 2, 2])
    assert "has changed since the run began" in finish(place, "resume", "changed", code=2)
