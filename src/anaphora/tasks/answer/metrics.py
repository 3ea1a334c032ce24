"""How good answers are, by the kind of the question."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import numpy as np

KINDS = 20
"""Most kinds of questions that are kept apart."""


def by_kind(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> dict[str, dict[str, float]]:
    """Accuracy in percent and number of questions for each kind: the third text of a row where it has one, else the
    question's first two words; the commonest kinds, the others together."""
    kinds = [row[2] if len(row) > 2 and row[2].strip() else " ".join(row[0].split()[:2]) for row in rows]
    common = [kind for kind, _ in Counter(kinds).most_common(KINDS)]
    named = [kind if kind in common else "other" for kind in kinds]
    return {
        kind: {
            "accuracy": 100.0
            * float(np.mean([so for name, so in zip(named, right, strict=True) if name == kind])),
            "questions": named.count(kind),
        }
        for kind in dict.fromkeys([*common, *named])
    }
