"""Scenes of coloured shapes with captions, questions, and the true place of every object.

A scene has 64×64 pixels in 4×4 cells. Each of its objects is small or big, has one of six colours and one of four
shapes, and lies somewhere in a cell of its own; no two share both colour and shape. There are 1 to 3 of them, or 4
to 6 in the variant ``crowded``. Ground, tints and pixels are noisy.

Captions name all objects in reading order, row by row, and say how each lies to the one before it:

    a small red circle left of a big blue cross above a big white square

The second reference says the same from the other side:

    a small red circle and right of it a big blue cross and below it a big white square

"left of" and "right of it" stand between objects of the same row of cells, "above" and "below it" between rows. Either
reference is a right caption, and no other text is: a caption counts as exact if it equals one of them.

Questions have one word as their answer, and are asked only where there is one: the colour of the only circle, the
shape of the only red thing, the size of the red circle, how many circles there are, whether there is a red circle,
whether one thing lies left of (or above) another.

Splits share no set of objects: whatever is seen together in dev or test was never seen together in training.
Baselines: the commonest caption is exact for less than one scene in a hundred; answers guessed from the question
alone are right for about four in ten.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from anaphora.data.corpora.corpus import CORPUS_SEED, SPLITS, Embedded, split_of
from anaphora.data.corpora.shapes_drawing import (
    CELL,
    CELLS,
    COLOURS,
    RADIUS,
    SHAPES,
    Figure,
    Pixels,
    draw_scenes,
)
from anaphora.data.corpora.shapes_questions import ask
from anaphora.data.png import png_bytes
from anaphora.files.writing import make_folder, replace_file, replacing

OBJECTS = {"few": (1, 2, 2, 3, 3, 3), "crowded": (4, 5, 6)}
"""By variant: how many objects, each of these numbers as often as the others."""
_RELATIONS = (("left of", "above"), ("and right of it", "and below it"))
"""By reference: what stands between objects of one row, and of two."""
_TINT, _GROUNDS = 18, (30, 90)


@dataclass(frozen=True)
class Item:
    """One object of a scene: ``centre`` (x, y) and ``box`` (left, top, right, bottom) in pixels; ``spans`` gives for
    every caption the words that name it, from the first up to the one after the last."""

    size: str
    colour: str
    shape: str
    centre: tuple[float, float]
    box: tuple[float, float, float, float]
    spans: list[tuple[int, int]]

    def record(self) -> dict[str, Any]:
        """The same as JSON."""
        return {
            "size": self.size,
            "colour": self.colour,
            "shape": self.shape,
            "centre": list(self.centre),
            "box": list(self.box),
            "spans": [list(span) for span in self.spans],
        }


@dataclass(frozen=True)
class Scene:
    """picture uint8 ``(64, 64, 3)``; captions, any of which is right; questions with their answers; objects in reading
    order."""

    picture: Pixels
    captions: list[str]
    questions: list[tuple[str, str]]
    objects: list[Item]


@dataclass(frozen=True)
class SceneCorpus(Embedded):
    """The corpus as it lists and writes itself: a folder of PNG files, lists of them, and the places of objects."""

    name: str = "shapes"
    summary: str = (
        "scenes of coloured shapes, to be captioned or asked about; the place of every object is known"
    )
    variants: Mapping[str, str] = field(
        default_factory=lambda: {"few": "one to three objects", "crowded": "four to six objects"}
    )
    sizes: Mapping[str, int] = field(default_factory=lambda: {"train": 8_000, "dev": 300, "test": 1_000})
    tasks: tuple[str, ...] = ("caption", "answer")
    unit: str = "scenes"
    form: str = ""

    def generate(self, variant: str, split: str, size: int, seed: int = CORPUS_SEED) -> list[Scene]:
        """The first ``size`` scenes of a split."""
        random = Random(f"{self.name} {variant} {split} {seed}")
        grounds: list[int] = []
        laid: list[list[Figure]] = []
        while len(laid) < size:
            ground, figures = random.randrange(*_GROUNDS), _lay(variant, random)
            if split_of(" ".join(sorted(_name(figure) for figure in figures)), seed) == split:
                grounds.append(ground)
                laid.append(figures)
        place = (seed, SPLITS.index(split), int.from_bytes(variant.encode(), "big"))
        speckle = np.random.RandomState(np.random.MT19937(np.random.SeedSequence(place)))
        pictures = draw_scenes(grounds, laid, speckle)
        asking = Random(f"{self.name} {variant} {split} {seed} questions")
        return [_told(picture, figures, asking) for picture, figures in zip(pictures, laid, strict=True)]

    def show(self, variant: str, split: str, size: int) -> list[str]:
        lines = []
        for scene in self.generate(variant, split, size):
            lines += [
                scene.captions[0],
                *(f"  {question}  → {answer}" for question, answer in scene.questions),
            ]
        return lines

    def records(self, variant: str, split: str, size: int) -> list[Any]:
        return [
            {
                "captions": scene.captions,
                "questions": scene.questions,
                "objects": [item.record() for item in scene.objects],
            }
            for scene in self.generate(variant, split, size)
        ]

    def text(self, variant: str, split: str, size: int) -> str:
        return _captions(self.generate(variant, split, size))

    def write(self, place: Path, variant: str, split: str, size: int) -> None:
        """Fill a folder: ``00000.png`` …; ``captions.tsv`` with picture and references; ``questions.tsv`` with
        picture, question and answer; ``dialogues.tsv`` with questions that need the ones before them; ``places.jsonl`` with
        the objects of each picture."""
        make_folder(place)
        scenes = self.generate(variant, split, size)
        for number, scene in enumerate(scenes):
            with replacing(place / _file(number), synced=False) as file:
                file.write(png_bytes(scene.picture))
        asked = [
            f"{_file(number)}\t{question}\t{answer}\n"
            for number, scene in enumerate(scenes)
            for question, answer in scene.questions
        ]
        places = [
            json.dumps({"picture": _file(number), "objects": [item.record() for item in scene.objects]})
            + "\n"
            for number, scene in enumerate(scenes)
        ]
        texts = {"captions.tsv": _captions(scenes), "questions.tsv": "".join(asked)}
        texts["dialogues.tsv"] = "".join(
            f"{_file(number)}\t{question}\t{answer}\n"
            for number, scene in enumerate(scenes)
            for question, answer in dialogue(scene.objects)
        )
        for name, text in {**texts, "places.jsonl": "".join(places)}.items():
            replace_file(place / name, text.encode())


def dialogue(objects: Sequence[Item]) -> list[tuple[str, str]]:
    """Three questions about the first object whose shape no other has, the last two of which only call it "it"; none where
    there is no such object."""
    shapes = [item.shape for item in objects]
    alone = next((item for item in objects if shapes.count(item.shape) == 1), None)
    if alone is None:
        return []
    return [
        (f"is there a {alone.shape} ?", "yes"),
        ("what colour is it ?", alone.colour),
        ("what size is it ?", alone.size),
    ]


def _file(number: int) -> str:
    return f"{number:05d}.png"


def _captions(scenes: list[Scene]) -> str:
    return "".join("\t".join([_file(number), *scene.captions]) + "\n" for number, scene in enumerate(scenes))


def _lay(variant: str, random: Random) -> list[Figure]:
    """The objects of a random scene, in reading order."""
    counts = OBJECTS[variant]
    count = counts[random.randrange(len(counts))]
    cells = sorted(random.sample(range(CELLS * CELLS), count))
    kinds = random.sample(range(len(COLOURS) * len(SHAPES)), count)
    figures = []
    for cell, kind in zip(cells, kinds, strict=True):
        size = list(RADIUS)[random.randrange(len(RADIUS))]
        colour = list(COLOURS)[kind % len(COLOURS)]
        slack = int(2 * (CELL / 2 - 0.5 - RADIUS[size]))  # in steps of half a pixel, whole within the cell
        x, y = (CELL / 2 + random.randrange(-slack, slack + 1) / 2 for _ in range(2))
        red, green, blue = (random.randrange(-_TINT, _TINT + 1) for _ in range(3))
        row, column = divmod(cell, CELLS)
        figures.append(
            Figure(row, column, (x, y), size, colour, SHAPES[kind // len(COLOURS)], (red, green, blue))
        )
    return figures


def _name(figure: Figure) -> str:
    return f"{figure.size} {figure.colour} {figure.shape}"


def _told(picture: Pixels, figures: list[Figure], random: Random) -> Scene:
    """The scene with all that can be said of it."""
    described = [_caption(figures, *words) for words in _RELATIONS[: 1 if len(figures) == 1 else None]]
    captions, spans = zip(*described, strict=True)
    objects = [_item(figure, list(of)) for figure, of in zip(figures, zip(*spans, strict=True), strict=True)]
    return Scene(picture, list(captions), ask(figures, random), objects)


def _caption(figures: list[Figure], beside: str, over: str) -> tuple[str, list[tuple[int, int]]]:
    """All objects in order, and which words name each."""
    words: list[str] = []
    spans = []
    for i, figure in enumerate(figures):
        if i:
            words += (beside if figure.row == figures[i - 1].row else over).split()
        words.append("a")
        spans.append((len(words), len(words) + 3))
        words += [figure.size, figure.colour, figure.shape]
    return " ".join(words), spans


def _item(figure: Figure, spans: list[tuple[int, int]]) -> Item:
    x, y = figure.column * CELL + figure.middle[0], figure.row * CELL + figure.middle[1]
    reach = RADIUS[figure.size]
    box = (x - reach, y - reach, x + reach, y + reach)
    return Item(figure.size, figure.colour, figure.shape, (x, y), box, spans)


CORPUS = SceneCorpus()
