"""Movements of a hand in front of two noisy sensors, with a label for every frame: most need what comes later.

Between rests the hand is lifted for 4 to 9 frames and lowered for as many. A ``push`` and a ``wave`` begin alike: only while
the hand is lowered does the second sensor tell them apart, by 1 during a push. All frames of a movement have its name, so
a model that reads from left to right can only guess while the hand goes up.

    first = height + U(−0.3, 0.3),    second = (1 while a push is lowered) + U(−0.3, 0.3)

In the variant ``height`` the label is the height itself, a number for every frame, to be freed from the noise.

Baseline: always answering ``rest`` is right in 48 % of the frames; of two movements that look alike every second guess is.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.data.corpora.vector_corpus import VectorCorpus

MOVEMENTS = (2, 4)
RESTS = (4, 14)
LIFTS = (4, 9)
"""Least and most movements of a sequence, frames of a rest, frames in which the hand goes up."""


def draw(variant: str, size: int, random: np.random.RandomState) -> list[tuple[Any, str]]:
    """``size`` sequences ``(time, 2)`` with the labels of their frames, separated by spaces; numbers have three places."""
    found = []
    for _ in range(size):
        heights, seconds, names = [0.0] * _between(RESTS, random), [], ["rest"]
        names *= len(heights)
        seconds = [0.0] * len(heights)
        for _ in range(_between(MOVEMENTS, random)):
            push, lift, rest = bool(random.randint(2)), _between(LIFTS, random), _between(RESTS, random)
            up = [(step + 1) / lift for step in range(lift)]
            heights += [*up, *reversed(up), *([0.0] * rest)]
            seconds += [*([0.0] * lift), *([1.0 * push] * lift), *([0.0] * rest)]
            names += [*(["push" if push else "wave"] * (2 * lift)), *(["rest"] * rest)]
        noise = random.randint(-300, 301, (len(names), 2)) / 1000
        x = np.round(np.stack((heights, seconds), 1) + noise, 3).astype(np.float32)
        labels = names if variant == "kinds" else [f"{height:.4g}" for height in heights]
        found.append((x, " ".join(labels)))
    return found


def _between(bounds: tuple[int, int], random: np.random.RandomState) -> int:
    return int(random.randint(bounds[0], bounds[1] + 1))


CORPUS = VectorCorpus(
    name="gestures",
    summary="movements of a hand, named frame by frame; always answering rest is right in 48 % of the frames",
    variants={
        "kinds": "rest, push or wave for every frame; what comes later tells push and wave apart",
        "height": "a number for every frame: the height of the hand without the noise",
    },
    sizes={"train": 1_000, "dev": 100, "test": 200},
    draw=draw,
    tasks=("tag",),
    framewise=True,
)
