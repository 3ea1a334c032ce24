"""Tagging."""

from __future__ import annotations

from typing import Any

from anaphora.learn.exercise import close

_ROWS: dict[str, list[tuple[str, int, int]]] = {
    "O B-PER I-PER O": [("PER", 1, 3)],
    "B-LOC B-LOC O": [("LOC", 0, 1), ("LOC", 1, 2)],
    "O O": [],
    "B-ORG I-ORG I-ORG": [("ORG", 0, 3)],
    "B-PER I-PER B-ORG O B-PER": [("PER", 0, 2), ("ORG", 2, 3), ("PER", 4, 5)],
}


def sequences(answer: Any) -> str | None:
    if close(answer, 9**20, 0):
        return None
    return "Nine tags for the first word; with each of them nine for the second, and so on for twenty words."


def allowed(answer: Any) -> str | None:
    tags = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG"]
    for before in tags:
        for tag in tags:
            right = not tag.startswith("I-") or before in (f"B-{tag[2:]}", f"I-{tag[2:]}")
            if bool(answer(before, tag)) is not right:
                return f"May {tag} follow {before}? {'Yes' if right else 'No'}; yours says {'no' if right else 'yes'}."
    return None


def spans(answer: Any) -> str | None:
    for row, right in _ROWS.items():
        found = [tuple(span) for span in answer(row.split())]
        if found != right:
            return f"{row!r} has {len(right)} span(s); yours gives {found}. A span begins at B and ends before the next tag that is not its I."
    return None


CHECKS = (sequences, allowed, spans)
