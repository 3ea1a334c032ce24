"""Pictures of coloured shapes with captions, and questions with answers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from anaphora.data.corpora.corpus import CORPUS_SEED, SPLITS, Embedded, split_of
from anaphora.data.pictures import png_bytes
from anaphora.files.writing import make_folder, replace_file, replacing

CELLS, CELL = 4, 16
SIDE = CELLS * CELL
RADIUS = {"small": 4.5, "big": 7.0}
SHAPES = ("circle", "square", "triangle", "cross")
COLOURS = {
    "red": (215, 45, 40),
    "green": (50, 165, 60),
    "blue": (55, 90, 225),
    "yellow": (235, 215, 50),
    "purple": (160, 60, 190),
    "white": (240, 240, 240),
}
NOISE = 10
"""How far a pixel may be off, of 255."""
_TOGETHER = 256  # scenes drawn at once, which bounds the memory it takes

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
Numbers = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Figure:
    """What is to be drawn in a cell: middle is (x, y) in pixels of the cell, tint is added to the colour."""

    row: int
    column: int
    middle: tuple[float, float]
    size: str
    colour: str
    shape: str
    tint: tuple[int, int, int]


def draw_scenes(
    grounds: Sequence[int], figures: Sequence[Sequence[Figure]], random: np.random.RandomState
) -> Pixels:
    """``(scenes, 64, 64, 3)``: for every scene the grey level of its ground, and what lies on it."""
    pictures = np.empty((len(grounds), SIDE, SIDE, 3), dtype=np.uint8)
    for begin in range(0, len(grounds), _TOGETHER):
        part = slice(begin, begin + _TOGETHER)
        plain = _draw(np.array(grounds[part], dtype=float), figures[part])
        speckle = random.randint(-NOISE, NOISE + 1, size=(len(plain), SIDE, SIDE, 1), dtype=np.int8)
        pictures[part] = np.clip(np.rint(plain + speckle), 0, 255)
    return pictures


def _draw(grounds: Numbers, figures: Sequence[Sequence[Figure]]) -> Numbers:
    """The scenes ``(scenes, 64, 64, 3)`` without noise."""
    pictures = np.empty((len(grounds), CELLS, CELL, CELLS, CELL, 3))
    pictures[:] = grounds.reshape(-1, 1, 1, 1, 1, 1)
    placed = [(scene, figure) for scene, many in enumerate(figures) for figure in many]
    for shape in SHAPES:
        some = [(scene, figure) for scene, figure in placed if figure.shape == shape]
        if not some:
            continue
        scene = np.array([scene for scene, _ in some])
        row, column = np.array([(figure.row, figure.column) for _, figure in some]).T
        cover = _covered(shape, [figure for _, figure in some])[..., None]
        colour = np.array([np.add(COLOURS[figure.colour], figure.tint) for _, figure in some], dtype=float)
        below = grounds[scene].reshape(-1, 1, 1, 1)
        pictures[scene, row, :, column] = cover * colour[:, None, None] + (1 - cover) * below
    return pictures.reshape(-1, SIDE, SIDE, 3)


def _covered(shape: str, figures: Sequence[Figure]) -> Numbers:
    """How much of each pixel ``(figures, 16, 16)`` lies inside the outline."""
    pixel = np.arange(CELL) + 0.5
    middle = np.array([figure.middle for figure in figures])
    radius = np.array([RADIUS[figure.size] for figure in figures])[:, None, None]
    x = pixel[None, None, :] - middle[:, 0, None, None]
    y = pixel[None, :, None] - middle[:, 1, None, None]
    return np.clip(0.5 - _outside(shape, x, y, radius), 0.0, 1.0)


def _outside(shape: str, x: Numbers, y: Numbers, radius: Numbers) -> Numbers:
    """How far (x, y) lies outside a shape about the origin; the y axis points down."""
    if shape == "circle":
        return np.sqrt(x * x + y * y) - radius
    if shape == "square":
        return np.maximum(np.abs(x), np.abs(y)) - radius
    if shape == "triangle":  # the tip at the top, the base as wide as it is high
        side: Numbers = (2 * np.abs(x) - y - radius) / math.sqrt(5.0)
        return np.maximum(side, y - radius)
    arm = 0.32 * radius
    across = np.maximum(np.abs(x) - radius, np.abs(y) - arm)
    upright = np.maximum(np.abs(y) - radius, np.abs(x) - arm)
    return np.minimum(across, upright)


# Questions about a scene that have one word as their only right answer.

NUMBERS = ("none", "one", "two", "three", "four", "five", "six")


def ask(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """One question of each kind that the scene allows, with its answer."""
    one = _any(figures, random)
    asked = [
        *_only(figures, random),
        (f"what size is the {one.colour} {one.shape} ?", one.size),
        _count(figures, random),
        _whether(figures, random),
    ]
    return asked + _lies(figures, random)


def _any(figures: Sequence[Figure], random: Random) -> Figure:
    return figures[random.randrange(len(figures))]


def _only(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """The colour of the only one of its shape, and the shape of the only one of its colour."""
    shapes = Counter(figure.shape for figure in figures)
    colours = Counter(figure.colour for figure in figures)
    asked = []
    if shaped := [figure for figure in figures if shapes[figure.shape] == 1]:
        one = _any(shaped, random)
        asked.append((f"what colour is the {one.shape} ?", one.colour))
    if coloured := [figure for figure in figures if colours[figure.colour] == 1]:
        one = _any(coloured, random)
        asked.append((f"what shape is the {one.colour} thing ?", one.shape))
    return asked


def _count(figures: Sequence[Figure], random: Random) -> tuple[str, str]:
    """How many of a shape that may be missing; half the time one that is there."""
    shape = _any(figures, random).shape if random.randrange(2) else SHAPES[random.randrange(len(SHAPES))]
    count = sum(figure.shape == shape for figure in figures)
    plural = "crosses" if shape == "cross" else f"{shape}s"
    return f"how many {plural} are there ?", NUMBERS[count]


def _whether(figures: Sequence[Figure], random: Random) -> tuple[str, str]:
    """Yes and no as often as each other. What is not there shares colour or shape with something that is."""
    one = _any(figures, random)
    if random.randrange(2):
        return f"is there a {one.colour} {one.shape} ?", "yes"
    there = {(figure.colour, figure.shape) for figure in figures}
    missing = [(colour, one.shape) for colour in COLOURS if (colour, one.shape) not in there]
    missing += [(one.colour, shape) for shape in SHAPES if (one.colour, shape) not in there]
    colour, shape = missing[random.randrange(len(missing))]
    return f"is there a {colour} {shape} ?", "no"


def _lies(figures: Sequence[Figure], random: Random) -> list[tuple[str, str]]:
    """How two objects lie to each other, where their cells leave no doubt: yes and no as often as each other."""
    pairs = [(a, b) for a in figures for b in figures if a is not b]
    asked = []
    for word, differs in (
        ("left of", [(a, b, a.column < b.column) for a, b in pairs if a.column != b.column]),
        ("above", [(a, b, a.row < b.row) for a, b in pairs if a.row != b.row]),
    ):
        if differs:
            a, b, so = differs[random.randrange(len(differs))]
            text = f"is the {a.colour} {a.shape} {word} the {b.colour} {b.shape} ?"
            asked.append((text, "yes" if so else "no"))
    return asked


# Scenes of coloured shapes with captions, questions, and the true place of every object.

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
