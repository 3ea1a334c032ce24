"""Precision, recall and F1 of spans, and accuracy of tags, in percent.

Spans are counted as conlleval and seqeval (in its default mode) count them: a span is right when its kind, its first
and its last word are; tags that break their scheme are read kindly (an I without a B begins a span).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from anaphora.data.labelled_targets import NONE, SEPARATOR, Targets
from anaphora.data.tag_schemes import split_tag
from anaphora.kinds.measures.classes import class_measures, number_measures
from anaphora.kinds.measures.judged import (
    Floats,
    Judged,
    Measure,
    Measured,
    columns,
    counted,
    f1,
    percent,
    values,
)

Span = tuple[str, int, int]
_SAME = {"L": "E", "U": "S"}  # BILOU's letters for what BIOES calls E and S


def find_spans(tags: Sequence[str]) -> list[Span]:
    """``(kind, first, last)`` of every span, in order."""
    found: list[Span] = []
    begin = -1  # where the open span began
    before = ("O", "")
    for place, tag in enumerate([*tags, "O"]):
        mark, kind = split_tag(tag)
        now = (_SAME.get(mark, mark), kind)
        goes_on = begin >= 0 and before[0] in ("B", "I") and now[0] in ("I", "E") and now[1] == before[1]
        if begin >= 0 and not goes_on:
            found.append((before[1], begin, place - 1))
            begin = -1
        if begin < 0 and now[0] in ("B", "I", "E", "S"):
            begin = place
        before = now
    return found


def tag_measures(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], *, spans: bool
) -> Measured:
    """``accuracy`` of all words, and ``precision``, ``recall``, ``f1`` of all spans where tags mark ``spans``.

    ``by_type`` holds the same for each kind of span (or for each tag), with how many there are in ``gold``.
    """
    pairs = list(zip(predicted, gold, strict=True))
    matches = [sum(p == g for p, g in zip(tags, truth, strict=True)) for tags, truth in pairs]
    accuracy = counted("accuracy", columns(matches, [len(truth) for _, truth in pairs]), percent)
    right: Counter[str] = Counter()
    given: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    rows = []
    for tags, truth in pairs:
        found, true = (_items(side, spans) for side in (tags, truth))
        rows.append((len(found & true), len(found), len(true)))
        given.update(kind for kind, *_ in found)
        wanted.update(kind for kind, *_ in true)
        right.update(kind for kind, *_ in found & true)
    measures = [accuracy]
    if spans:
        counts = np.array(rows, dtype=np.float64).reshape(-1, 3)
        measures = [
            counted("f1", counts, f1),
            counted("precision", counts[:, [0, 1]], percent),
            counted("recall", counts[:, [0, 2]], percent),
            accuracy,
        ]
    numbers = values(measures)
    report: dict[str, Any] = {
        key: numbers[key] for key in ("accuracy", "precision", "recall", "f1") if key in numbers
    }
    report["by_type"] = {
        kind: {**_of_type(right[kind], given[kind], wanted[kind]), "support": wanted[kind]}
        for kind in sorted(given.keys() | wanted.keys())
    }
    return Measured(measures, report)


def frame_measures(
    targets: Targets, found: Sequence[Sequence[Any]], gold: Sequence[Sequence[str]]
) -> Measured:
    """How good the labels of frames are, all sequences together: of one class as `tag_measures`, with the mean F1 of the
    classes; of several see `several_measures`; of numbers mean squared and absolute error and R²."""
    answers, truth = ([label for row in rows for label in row] for rows in (found, gold))
    lengths = [len(row) for row in gold]
    if targets.kind == "number":
        numbers = number_measures(np.array(list(map(float, truth))), np.array(answers, dtype=float), 1.0)
        squared = next(one for one in numbers.measures if one.name == "mse")
        report = {key: numbers.report[key] for key in ("mse", "mae", "r2")}
        return Measured([_by_sequence(squared, lengths)], report)
    if targets.kind == "classes":
        written = [SEPARATOR.join(map(str, labels)) or NONE for labels in answers]
        several = class_measures(targets, truth, targets.encode(written))
        return Measured([_by_sequence(several.measures[0], lengths)], several.report)
    found_tags = [list(map(str, row)) for row in found]
    measured = tag_measures(found_tags, gold, spans=False)
    by_type = measured.report["by_type"]
    mean = sum(one["f1"] for one in by_type.values()) / len(by_type)
    return replace(measured, report={"accuracy": measured.report["accuracy"], "f1": mean, "by_type": by_type})


def _by_sequence(measure: Measure, lengths: Sequence[int]) -> Measure:
    """Return a measure of frames, of all sequences one after the other, by what is counted in each sequence."""

    def each() -> Floats:
        parts = np.split(measure.statistics, np.cumsum(lengths)[:-1])
        return np.array([part.sum(0) for part in parts])

    return replace(measure, each=cache(each), basis="", sums=measure.total())


def _items(tags: Iterable[str], spans: bool) -> set[Span]:
    if spans:
        return set(find_spans(list(tags)))
    return {(tag, place, place) for place, tag in enumerate(tags)}


def _of_type(right: int, given: int, wanted: int) -> dict[str, float]:
    """P = right / given, R = right / wanted, F1 = 2PR / (P + R), in percent; 0 where there is nothing to divide by."""
    sums = np.array([right, given, wanted], dtype=np.float64)
    return {
        "precision": float(percent(sums[[0, 1]])),
        "recall": float(percent(sums[[0, 2]])),
        "f1": float(f1(sums)),
    }


def tags_judged(
    shown: Sequence[str],
    gold: Sequence[Sequence[str]],
    found: Sequence[Sequence[str]],
    measured: Measured,
    seconds: float,
) -> Judged:
    """Each sentence or sequence with its tags as they are written. It is as wrong as many of them are; of numbers, as its mean
    squared error."""
    first = next(one for one in measured.measures if one.name in ("accuracy", "mse"))
    right, count = first.statistics.T
    mean = right / np.maximum(count, 1)
    losses = mean if first.name == "mse" else 1.0 - mean
    wanted, given = ([" ".join(row) for row in rows] for rows in (gold, found))
    return Judged(shown, wanted, given, losses, measured.measures, seconds)
