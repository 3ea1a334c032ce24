"""Writes the kept sample of the present format: ``python tests/tasks/tasks_golden.py``.

Run it when a format is about to be released; once released, its sample is never written again.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anaphora as an
from anaphora.tasks.recipe import FORMAT

HOME = Path(__file__).with_name("golden")
INPUTS = ["a", "b a d", "q u e u e", "", "z ☃", "a b c d e f g h i j"]


def answers(model: an.Translator) -> list[dict[str, Any]]:
    """What the model says to INPUTS: greedily, and the three best of a beam with their scores."""
    best = model.search(INPUTS, beam=4, n_best=3)
    return [
        {
            "input": text,
            "greedy": greedy,
            "best": [[output.text, round(output.score, 5)] for output in outputs],
        }
        for text, greedy, outputs in zip(INPUTS, model.predict(INPUTS, beam=1), best, strict=True)
    ]


def write() -> None:
    settings = {"tokens": "word", "hidden": 8, "embedding": 8, "steps": 2000, "lr": 2e-2, "batch_tokens": 400}
    settings |= {
        "valid_every": 500,
        "save_every": 500,
        "valid_examples": 20,
        "max_length": 24,
        "device": "cpu",
    }
    model = an.Translator(model="lstm-attention", dropout=0.0, **settings).fit("copy")
    folder = HOME / f"format-{FORMAT}"
    model.save(folder, force=True)
    expected = json.dumps(answers(an.load(folder)), ensure_ascii=False, indent=1)
    (HOME / f"format-{FORMAT}.json").write_text(expected + "\n", encoding="utf-8")


if __name__ == "__main__":
    write()
