"""Precision, recall and F1 of spans, and accuracy of tags, in percent.

Spans are counted as conlleval and seqeval (in its default mode) count them: a span is right when its kind, its first
and its last word are; tags that break their scheme are read kindly (an I without a B begins a span).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.data.labelled_targets import NONE, SEPARATOR, Targets, split
from anaphora.data.tag_schemes import split_tag
from anaphora.kinds.measures.classes import number_scores, several_scores
from anaphora.kinds.measures.judged import Judged, Measure, columns, f1, share, timed
from anaphora.tasks.tag.objective import outline, spelled
from anaphora.training.own import own_measures

if TYPE_CHECKING:
    from anaphora.tasks.tag.estimator import Tagger

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


def tag_scores(
    predicted: Sequence[Sequence[str]], gold: Sequence[Sequence[str]], *, spans: bool
) -> dict[str, Any]:
    """``accuracy`` of all words, and ``precision``, ``recall``, ``f1`` of all spans where tags mark ``spans``.

    ``by_type`` holds the same for each kind of span (or for each tag), with how many there are in ``gold``.
    """
    pairs = list(zip(predicted, gold, strict=True))
    words = [(p, g) for tags, truth in pairs for p, g in zip(tags, truth, strict=True)]
    scores: dict[str, Any] = {"accuracy": _percent(sum(p == g for p, g in words), len(words))}
    right: Counter[str] = Counter()
    given: Counter[str] = Counter()
    wanted: Counter[str] = Counter()
    for tags, truth in pairs:
        found, true = (_items(side, spans) for side in (tags, truth))
        given.update(kind for kind, *_ in found)
        wanted.update(kind for kind, *_ in true)
        right.update(kind for kind, *_ in found & true)
    if spans:
        scores |= _measures(right.total(), given.total(), wanted.total())
    kinds = sorted(given.keys() | wanted.keys())
    scores["by_type"] = {
        kind: {**_measures(right[kind], given[kind], wanted[kind]), "support": wanted[kind]} for kind in kinds
    }
    return scores


def frame_scores(
    targets: Targets, found: Sequence[Sequence[Any]], gold: Sequence[Sequence[str]]
) -> dict[str, Any]:
    """How good the labels of frames are, all sequences together: of one class as `tag_scores`, with the mean F1 of the
    classes; of several see `several_scores`; of numbers mean squared and absolute error and R²."""
    answers, truth = ([label for row in rows for label in row] for rows in (found, gold))
    if targets.kind == "number":
        scores = number_scores(np.array(list(map(float, truth))), np.array(answers, dtype=float), 1.0)
        return {key: scores[key] for key in ("mse", "mae", "r2")}
    if targets.kind == "classes":
        written = [SEPARATOR.join(map(str, labels)) or NONE for labels in answers]
        wanted, names = targets.judged(truth)
        return several_scores(wanted, targets.encode(written), names)
    scores = tag_scores([list(map(str, answers))], [truth], spans=False)
    f1 = [measures["f1"] for measures in scores["by_type"].values()]
    return {"accuracy": scores["accuracy"], "f1": sum(f1) / len(f1), "by_type": scores["by_type"]}


def _items(tags: Iterable[str], spans: bool) -> set[Span]:
    if spans:
        return set(find_spans(list(tags)))
    return {(tag, place, place) for place, tag in enumerate(tags)}


def _measures(right: int, given: int, wanted: int) -> dict[str, float]:
    """P = right / given, R = right / wanted, F1 = 2PR / (P + R); 0 where there is nothing to divide by."""
    return {
        "precision": _percent(right, given),
        "recall": _percent(right, wanted),
        "f1": _percent(2 * right, given + wanted),
    }


def _percent(part: int, whole: int) -> float:
    return 100.0 * part / whole if whole else 0.0


def numbers_judged(
    shown: Sequence[str], gold: Sequence[Sequence[str]], found: Sequence[Sequence[float]], seconds: float
) -> Judged:
    """The mean squared error of all frames, by sums of each sequence."""
    wrong = [
        sum((float(y) - z) ** 2 for y, z in zip(*both, strict=True)) for both in zip(gold, found, strict=True)
    ]
    frames = np.array([len(row) for row in gold])

    def mean(sums: Any) -> Any:
        return sums[..., 0] / np.maximum(sums[..., 1], 1)

    measure = Measure("mse", columns(wrong, frames), mean, more_is_better=False)
    given = [" ".join(f"{value:.6g}" for value in row) for row in found]
    wanted = [" ".join(row) for row in gold]
    return Judged(shown, wanted, given, np.array(wrong) / np.maximum(frames, 1), [measure], seconds)


def tags_judged(
    shown: Sequence[str],
    gold: Sequence[Sequence[str]],
    predicted: Sequence[Sequence[str]],
    seconds: float,
    *,
    spans: bool,
) -> Judged:
    """Accuracy of words, and precision, recall and F1 of spans, by counts of each sentence."""
    right = [sum(p == g for p, g in zip(*both, strict=True)) for both in zip(predicted, gold, strict=True)]
    words = np.array([len(tags) for tags in gold])
    measures = [Measure("accuracy", columns(right, words), share)]
    if spans:
        found = [set(find_spans(tags)) for tags in predicted]
        true = [set(find_spans(tags)) for tags in gold]
        hits = [len(f & t) for f, t in zip(found, true, strict=True)]
        given, wanted = list(map(len, found)), list(map(len, true))
        measures = [
            Measure("f1", columns(hits, given, wanted), f1),
            Measure("precision", columns(hits, given), share),
            Measure("recall", columns(hits, wanted), share),
            *measures,
        ]
    return Judged(
        shown,
        [" ".join(one) for one in gold],
        [" ".join(one) for one in predicted],
        1.0 - np.array(right) / np.maximum(words, 1),
        measures,
        seconds,
    )


def measured(m: Tagger, found: list[list[Any]], gold: list[list[str]]) -> dict[str, Any]:
    """How good the labels ``found`` are, by our measures and the user's, which see all of them one after the other."""
    spans, kind = m.learnt_.spans, m.targets_.kind
    if m.framewise and not spans:
        scores = frame_scores(m.targets_, found, gold)
    else:
        scores = tag_scores([list(map(str, row)) for row in found], gold, spans=spans)
    truth: list[Any] = [float(y) if kind == "number" else y for row in gold for y in row]
    answers = [y if kind == "number" else spelled(y) for row in found for y in row]
    return scores | own_measures(m.settings_, truth, answers, scores)


def judged(m: Tagger, inputs: list[Any], gold: list[list[str]]) -> Judged:
    """What the labels of ``inputs`` are worth, sequence by sequence."""
    (found, _), seconds = timed(m._answer, inputs)
    shown = [outline(x) if m.framewise else " ".join(x) for x in inputs]
    if m.targets_.kind == "number":
        return numbers_judged(shown, gold, found, seconds)
    if m.targets_.kind == "classes":
        gold = [[spelled(sorted(split(label))) for label in row] for row in gold]
        found = [[spelled(sorted(map(str, labels))) for labels in row] for row in found]
    predicted = [list(map(str, row)) for row in found]
    return tags_judged(shown, gold, predicted, seconds, spans=m.learnt_.spans)
