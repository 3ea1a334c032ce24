"""The embedding projector: vectors on their main axes, neighbours in full space, analogies counted honestly."""

from __future__ import annotations

import difflib

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.bars import Bars
from anaphora.views.panels import Panels
from anaphora.views.scatter import Point, Scatter

TITLE = "Embeddings"
PARTS = {
    "Projection": "Each dot is a symbol's vector on two principal axes (exact PCA).",
    "Nearest": "Bars: the nearest symbols by cosine in the full space.",
    " − ": "An analogy a − b + c is answered twice: with all symbols allowed, and with the three of the question left out, as is usual.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "Two axes hold only the share of the variance that is named, so dots that touch need not be neighbours: trust the "
    "bars. An analogy that works only when its own words are left out says less than it seems."
)
NAMED, NEIGHBOURS = 40, 8


def embeddings(
    trace: Trace, *, word: str = "", words: str = "", analogy: str = "", x: int = 1, y: int = 2
) -> Panels:
    """All vectors on axes ``x`` and ``y`` (1 to 3); ``word`` has its neighbours shown, ``words`` (separated by commas)
    are named in the picture, ``analogy`` is ``king,man,woman`` for king − man + woman."""
    names = trace.tokens["symbol"]
    if not {x, y} <= {1, 2, 3} or x == y:
        raise AnaphoraError("x and y must be two different axes from 1 to 3.")
    projection = trace.array("projection", "symbol", "rank")
    spread = trace.array("spread", "unit")
    asked = [_find(names, w) for w in (*words.split(","), word, *analogy.split(",")) if w.strip()]
    marked = set(asked) or set(range(min(NAMED, len(names))))
    points = [
        Point(
            float(projection[i, x - 1]), float(projection[i, y - 1]), name, int(i in set(asked)), i in marked
        )
        for i, name in enumerate(names)
    ]
    share = float(spread[x - 1] + spread[y - 1])
    charts: list[object] = [
        Scatter(
            "Projection",
            f"{len(names)} of {trace.facts.get('symbols', len(names))} symbols · these two axes hold "
            f"{100 * share:.1f} % of the variance",
            f"axis {x} ({100 * float(spread[x - 1]):.1f} %)",
            f"axis {y} ({100 * float(spread[y - 1]):.1f} %)",
            sorted(points, key=lambda p: p.group),
            ["others", "chosen"] if asked else ["symbols"],
            width=460.0,
            height=400.0,
        )
    ]
    vectors = unit(np.asarray(trace.array("embeddings", "symbol", "unit"), np.float64))
    if word:
        at = _find(names, word)
        charts.append(_neighbours(f"Nearest to {names[at]}", vectors, names, vectors[at], {at}))
    notes = []
    if analogy:
        chart, note = _analogy(vectors, names, analogy)
        charts.append(chart)
        notes.append(note)
    return Panels(TITLE, str(trace.facts.get("text", "")), charts, notes, READING, CAUTION)


def nearest(
    vectors: NDArray[np.float64], query: NDArray[np.float64], without: set[int], count: int
) -> list[tuple[int, float]]:
    """The rows of unit ``vectors`` with the greatest cosine to ``query``, those of ``without`` left out."""
    cosines = vectors @ (query / max(float(np.linalg.norm(query)), 1e-300))
    order = [int(i) for i in np.argsort(-cosines, kind="stable") if int(i) not in without]
    return [(i, float(cosines[i])) for i in order[:count]]


def _neighbours(
    title: str, vectors: NDArray[np.float64], names: list[str], query: NDArray[np.float64], without: set[int]
) -> Bars:
    found = nearest(vectors, query, without, NEIGHBOURS)
    values = [max(cosine, 0.0) for _, cosine in found]
    return Bars(title, "cosine in the full space", [names[i] for i, _ in found], {"cosine": values})


def _analogy(vectors: NDArray[np.float64], names: list[str], analogy: str) -> tuple[Bars, str]:
    parts = [part for part in analogy.split(",") if part.strip()]
    if len(parts) != 3:
        raise AnaphoraError(f"an analogy has three words, as in king,man,woman, not {analogy!r}.")
    a, b, c = (_find(names, part) for part in parts)
    query = vectors[a] - vectors[b] + vectors[c]
    honest, usual = (nearest(vectors, query, without, NEIGHBOURS) for without in (set(), {a, b, c}))
    title = f"{names[a]} − {names[b]} + {names[c]}"
    bars = Bars(
        title,
        "cosine in the full space, the words of the question allowed",
        [names[i] for i, _ in honest],
        {"cosine": [max(cosine, 0.0) for _, cosine in honest]},
    )
    note = f"{title}: {names[honest[0][0]]} with all words allowed, {names[usual[0][0]]} with the question's own left out"
    return bars, note


def unit(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-300))


def _find(names: list[str], word: str) -> int:
    word = word.strip()
    # a word is rather meant than a piece of one that is spelled alike
    for spelled in (f"▁{word}", f" {word}", f"Ġ{word}", word):
        if spelled in names:
            return names.index(spelled)
    near = difflib.get_close_matches(word, names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    raise AnaphoraError(f"{word!r} is not among the {len(names)} symbols shown{hint}")
