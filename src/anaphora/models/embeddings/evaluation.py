"""How good vectors are: similarities beside people's judgements, and analogies."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.lines import lines_of
from anaphora.errors import DataError

Array = np.ndarray[Any, Any]

BATCH = 256
"""Questions answered in one matrix product."""


def ranks(values: Array) -> Array:
    """1 for the smallest … n for the largest of ``values (n,)``; equal ones share the mean of their ranks."""
    _, which, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[which])


def spearman(a: Array, b: Array) -> float:
    """The correlation of the ranks of two lists of numbers ``(n,)``; NaN where one of them does not vary."""
    if len(a) < 2:
        return float("nan")
    x, y = ranks(np.asarray(a)), ranks(np.asarray(b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale else float("nan")


def similarity(units: Array, ids: Mapping[str, int], path: str | Path, *, lowercase: bool) -> dict[str, Any]:
    """See `WordVectors.evaluate_similarity`; ``units (V, d)`` have length 1."""
    rows, judged, pairs = [], [], 0
    for number, line in _lines(path):
        fields = line.lower().split() if lowercase else line.split()
        fields = [f for part in fields for f in part.split(",") if f] if len(fields) < 3 else fields
        try:
            a, b, score = fields[0], fields[1], float(fields[2])
        except (IndexError, ValueError):
            if pairs == 0 and number == 1:
                continue  # a line of headings
            raise DataError(f"{path}:{number}: not two words and a number; correct the line.") from None
        if not np.isfinite(score):
            raise DataError(f"{path}:{number}: {fields[2]} is not a judgement; correct the line.")
        pairs += 1
        if a in ids and b in ids:
            rows.append((ids[a], ids[b]))
            judged.append(score)
    if not pairs:
        raise DataError(f"{path} holds no pair of words; give lines of two words and a number.")
    left, right = np.array(rows, dtype=np.int64).reshape(-1, 2).T
    cosines = (units[left] * units[right]).sum(axis=1)
    found = spearman(cosines, np.array(judged))
    return {"spearman": found, "coverage": len(rows) / pairs, "pairs": pairs, "found": len(rows)}


@dataclass
class _Section:
    questions: int = 0
    rows: list[tuple[int, ...]] = field(default_factory=list)
    """Of a, b, c and d, where all four are known."""
    right: int = 0
    honest: int = 0

    def figures(self) -> dict[str, Any]:
        found = len(self.rows)
        share = (lambda n: n / found) if found else (lambda n: float("nan"))
        return {
            "accuracy": share(self.right),
            "honest": share(self.honest),
            "coverage": found / self.questions if self.questions else 0.0,
            "questions": self.questions,
            "found": found,
        }


def analogies(
    units: Array, ids: Mapping[str, int], path: str | Path, *, lowercase: bool, vocab_size: int | None
) -> dict[str, Any]:
    """See `WordVectors.evaluate_analogies`; ``units (V, d)`` have length 1."""
    units = units[:vocab_size]
    sections: dict[str, _Section] = {}
    name = "all"
    for number, line in _lines(path):
        words = (line.lower() if lowercase else line).split()
        if words[0].startswith(":"):
            name = line.strip().removeprefix(":").strip() or "all"
            continue
        if len(words) != 4:
            raise DataError(f"{path}:{number}: {len(words)} words where a question has 4; correct the line.")
        section = sections.setdefault(name, _Section())
        section.questions += 1
        rows = tuple(ids.get(word, len(units)) for word in words)
        if max(rows) < len(units):
            section.rows.append(rows)
    if not sections:
        raise DataError(f"{path} holds no question; give lines of four words.")
    for section in sections.values():
        for begin in range(0, len(section.rows), BATCH):
            right, honest = _answers(units, np.array(section.rows[begin : begin + BATCH]))
            section.right, section.honest = section.right + right, section.honest + honest
    whole = _Section()
    for section in sections.values():
        whole.questions, whole.right = whole.questions + section.questions, whole.right + section.right
        whole.honest, whole.rows = whole.honest + section.honest, whole.rows + section.rows
    return {**whole.figures(), "sections": {name: one.figures() for name, one in sections.items()}}


def _answers(units: Array, rows: Array) -> tuple[int, int]:
    """How many of the questions ``rows (n, 4)`` are answered rightly, without and with a, b, c as answers."""
    a, b, c, d = rows.T
    scores = (units[b] - units[a] + units[c]) @ units.T
    honest = int((scores.argmax(axis=1) == d).sum())
    for asked in (a, b, c):
        scores[np.arange(len(rows)), asked] = -np.inf
    return int((scores.argmax(axis=1) == d).sum()), honest


def _lines(path: str | Path) -> Iterator[tuple[int, str]]:
    """The lines that are neither blank nor a remark (#)."""
    for number, line in lines_of(path):
        if line.strip() and not re.match(r"\s*#", line):
            yield number, line
