"""How good captions are, by several references each, and whether attention lay where the words point."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from anaphora.tasks.caption.cider import cider

Box = tuple[float, float, float, float]
"""Left, top, right and bottom, in pixels."""


def exact_match(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    """Share of outputs that equal one of their references, in percent."""
    if not outputs:
        return 0.0
    return 100.0 * sum(o in r for o, r in zip(outputs, references, strict=True)) / len(outputs)


def caption_scores(
    outputs: Sequence[str], references: Sequence[Sequence[str]], *, tokenize: str
) -> dict[str, Any]:
    """BLEU by sacrebleu with its signature, and exact match, in percent; CIDEr-D from 0 to 10."""
    from sacrebleu.metrics.bleu import BLEU

    bleu = BLEU(tokenize=tokenize, force=True)  # force only silences a warning about tokenized text
    most = max(map(len, references), default=0)
    # sacrebleu wants first references, second references, …; None where a picture has fewer.
    streams = [[wanted[i] if i < len(wanted) else None for wanted in references] for i in range(most)]
    return {
        "bleu": bleu.corpus_score(list(outputs), streams).score,  # type: ignore[arg-type]
        "cider": cider(outputs, references),
        "exact_match": exact_match(outputs, references),
        "examples": len(outputs),
        "bleu_signature": str(bleu.get_signature()),
    }


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
