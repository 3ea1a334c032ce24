"""How good captions are, by several references each (CIDEr-D among them), and whether attention lay where the words point."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from anaphora.data.corpora import find
from anaphora.data.corpora.shapes import SIDE, SceneCorpus
from anaphora.kinds.measures.judged import (
    Judged,
    Measured,
    columns,
    counted,
    digest,
    mean,
    percent,
    share_right,
    values,
)
from anaphora.kinds.measures.texts import bleu, bleu_defined

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


def caption_measures(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str
) -> Measured:
    """BLEU with sacrebleu's signature, and exact match with any reference, in percent; CIDEr-D from 0 to 10. No BLEU where
    no reference has four words (`bleu_defined`)."""
    basis = digest(tokenize, [list(wanted) for wanted in references])
    each = cider_of_each(outputs, references)
    sums = np.array([sum(each), len(each)], dtype=np.float64)
    right = [o in r for o, r in zip(outputs, references, strict=True)]
    measures = [
        counted("cider", columns(each, np.ones(len(each))), mean, basis=basis, sums=sums),
        share_right("exact_match", right, basis, percent),
    ]
    signature = {}
    if bleu_defined(chain.from_iterable(references), tokenize):
        measure, name = bleu(outputs, references, tokenize=tokenize, basis=basis)
        measures, signature = [measure, *measures], {"bleu_signature": name}
    return Measured(measures, {**values(measures), "examples": len(outputs), **signature})


def on_object(place: int, box: Box, *, grid: tuple[int, int], size: tuple[int, int]) -> bool:
    """Whether place number ``place`` of the grid, as a rectangle of a picture of this size, overlaps the box."""
    row, column = divmod(place, grid[1])
    tall, wide = size[0] / grid[0], size[1] / grid[1]
    left, top, right, bottom = box
    across = column * wide < right and (column + 1) * wide > left
    return across and row * tall < bottom and (row + 1) * tall > top


def share_on_objects(
    looked: Iterable[tuple[np.ndarray[Any, Any], Sequence[tuple[range, Box]]]],
    *,
    grid: tuple[int, int],
    size: tuple[int, int],
) -> dict[str, float]:
    """In percent of the words that name an object: how often the strongest place lay on that object, and how often a
    place chosen by chance would have (the share of places that do). For every caption: weights ``(words, places)``, and
    per object the words that name it and its box."""
    words = hits = 0
    chance = 0.0
    for weights, named in looked:
        for span, box in named:
            places = [on_object(place, box, grid=grid, size=size) for place in range(weights.shape[1])]
            words += len(span)
            hits += sum(places[int(weights[word].argmax())] for word in span)
            chance += len(span) * sum(places) / len(places)
    if not words:
        return {}
    return {
        "attention_on_object": 100.0 * hits / words,
        "attention_by_chance": 100.0 * chance / words,
        "object_words": words,
    }


LONGEST = 4
SIGMA = 6.0

Vector = dict[tuple[str, ...], float]


def cider_of_each(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    """Return the CIDEr-D of every picture, from 0 to 10; ``references[i]`` are those of picture i."""
    if not outputs:
        return []
    weights = [_rarity(references, n) for n in range(1, LONGEST + 1)]
    return [_one(output, wanted, weights) for output, wanted in zip(outputs, references, strict=True)]


def _one(output: str, references: Sequence[str], weights: Sequence[Vector]) -> float:
    total = 0.0
    for n, weight in enumerate(weights, start=1):
        mine = _weighed(output, n, weight)
        for reference in references:
            gap = len(output.split()) - len(reference.split())
            closeness = math.exp(-(gap**2) / (2 * SIGMA**2))
            total += closeness * _likeness(mine, _weighed(reference, n, weight))
    return 10 * total / (len(references) * len(weights))


def _likeness(mine: Vector, theirs: Vector) -> float:
    norm = math.sqrt(sum(v * v for v in mine.values()) * sum(v * v for v in theirs.values()))
    if norm == 0:
        return 0.0
    return sum(min(mine[gram], value) * value for gram, value in theirs.items() if gram in mine) / norm


def _weighed(text: str, n: int, weight: Vector) -> Vector:
    # What no reference has weighs as much as what a single picture has.
    rarest = weight[()]
    return {gram: count * weight.get(gram, rarest) for gram, count in _grams(text, n).items()}


def _rarity(references: Sequence[Sequence[str]], n: int) -> Vector:
    """ln(|I| / df) of every n-gram of the references; under () that of one which none has."""
    among: Counter[tuple[str, ...]] = Counter()
    for wanted in references:
        among.update({gram for reference in wanted for gram in _grams(reference, n)})
    pictures = len(references)
    return {(): math.log(pictures), **{gram: math.log(pictures / count) for gram, count in among.items()}}


def _grams(text: str, n: int) -> Counter[tuple[str, ...]]:
    words = text.split()
    return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))


def named_objects(
    facts: Mapping[str, Any],
    outputs: Sequence[str],
    references: Sequence[Sequence[str]],
    size: tuple[int, int],
) -> dict[int, list[tuple[range, Box]]]:
    """For every caption that equals a reference: each object's words, and its box in a picture of ``size``.

    ``facts`` say what the data are; other data than scenes know no places, and nothing is returned.
    """
    if facts.get("kind") != "corpus":
        return {}
    corpus, variant = find(facts["name"], facts["variant"])
    if not isinstance(corpus, SceneCorpus):
        return {}
    tall, wide = size[0] / SIDE, size[1] / SIDE
    found: dict[int, list[tuple[range, Box]]] = {}
    for i, scene in enumerate(corpus.generate(variant, facts["split"], facts["scenes"])):
        if outputs[i] in references[i]:
            which = references[i].index(outputs[i])
            found[i] = [(range(*item.spans[which]), _scaled(item.box, wide, tall)) for item in scene.objects]
    return found


def _scaled(box: Box, wide: float, tall: float) -> Box:
    left, top, right, bottom = box
    return left * wide, top * tall, right * wide, bottom * tall


def captions_judged(
    names: Sequence[str],
    references: Sequence[Sequence[str]],
    outputs: Sequence[str],
    measured: Measured,
    seconds: float,
) -> Judged:
    """Each picture with its caption, which is as wrong as its CIDEr-D is below 10."""
    each = next(one for one in measured.measures if one.name == "cider").statistics[:, 0]
    right = np.array([o in r for o, r in zip(outputs, references, strict=True)])
    wanted = [" | ".join(some) for some in references]
    return Judged(names, wanted, outputs, np.where(right, 0.0, 1.0 - each / 10.0), measured.measures, seconds)
