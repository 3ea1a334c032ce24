"""The error browser: where a model is wrong, what it takes for what, and the examples themselves."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.bars import Bars
from anaphora.views.diffs import Diffs, Example
from anaphora.views.heatmap import Heatmap
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line

TITLE = "Errors"
PARTS = {
    "Loss by": "Slices: the mean loss of the dev examples in each (0 is right), with how many there are.",
    "Confusion": "Below: what was wanted (row) and what came out (column).",
    "Words that differ": "Below: which words are replaced, left out and added.",
    "Examples": "Last the examples, the worst first; words that differ are in colour. Click one to explain it.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "Slices with few examples say little. Looking for the worst examples finds wrong labels as well as wrong answers. What is left out "
    "by `words` or `label` changes the picture, not the model."
)
MOST_LABELS, MOST_WORDS, SHOWN = 16, 12, 10
OTHERS = "other labels"


def errors(
    trace: Trace,
    *,
    words: str = "",
    label: str = "",
    by: str = "length",
    count: int = SHOWN,
    right: bool = False,
) -> Panels:
    """Dev examples whose input, reference or output holds one of ``words`` (with | between) and whose reference is ``label``; slices
    ``by`` length of the input or label; the ``count`` worst examples, with ``right`` also those without a mistake."""
    if by not in ("length", "label"):
        raise AnaphoraError(f"by must be length or label, not {by!r}.")
    if not 0 <= count <= 100:
        raise AnaphoraError(f"count must be from 0 to 100, not {count}.")
    every = trace.tables["judged"]
    rows = [row for row in every if _holds(row, words) and (not label or label in _labels(trace, row))]
    if not rows:
        raise AnaphoraError("No dev example is left; ask for other words, or for a label that occurs.")
    charts: list[Any] = [_slices(trace, rows, by)]
    kind = trace.facts.get("kind")
    if kind != "score":
        charts.append(_edits(rows) if kind == "text" else _confusion(trace, rows))

    def is_wrong(row: dict[str, Any]) -> bool:
        return kind == "score" or row["reference"] != row["output"]

    wrong = [row for row in rows if is_wrong(row)]
    # a mistake stands before a right answer that the model was unsure of
    worst = sorted(rows if right else wrong, key=lambda row: (not is_wrong(row), -row["loss"]))[:count]
    examples = [
        Example(row["number"], row["input"], row["reference"], row["output"], row["loss"]) for row in worst
    ]
    of = f"{len(wrong)} with a mistake" if kind != "score" else f"{len(rows)}"
    charts.append(
        Diffs(
            "Examples",
            f"{len(worst)} of {of}, the worst first",
            examples,
            opens=bool(trace.facts.get("paired")),
        )
    )
    measures = ", ".join(f"{name} {value:.4g}" for name, value in trace.facts.get("measures", {}).items())
    chosen = f" · {len(rows)} of {len(every)} chosen" if len(rows) < len(every) else ""
    notes = [f"{len(wrong)} of {len(rows)} examples are not right"] if kind != "score" else []
    if len(every) < trace.facts.get("examples", 0):
        notes.append(f"{len(every)} of {trace.facts['examples']} dev examples, evenly spaced")
    return Panels(TITLE, f"{facts_line(trace)} · {measures}{chosen}", charts, notes, READING, CAUTION)


def _holds(row: dict[str, Any], words: str) -> bool:
    wanted = [word.casefold() for word in words.split("|") if word]
    texts = [str(row[key]).casefold() for key in ("input", "reference", "output")]
    return not wanted or any(word in text for word in wanted for text in texts)


def _labels(trace: Trace, row: dict[str, Any]) -> list[str]:
    reference = str(row["reference"])
    return reference.split() if trace.facts.get("kind") == "labels" else [reference]


def _slices(trace: Trace, rows: list[dict[str, Any]], by: str) -> Bars:
    if by == "label" and trace.facts.get("kind") not in ("label", "labels"):
        raise AnaphoraError("The outputs have no labels; slice by length.")
    losses: dict[str, list[float]] = {}
    if by == "label":
        for row in rows:
            for one in set(_labels(trace, row)):
                losses.setdefault(one, []).append(row["loss"])
        losses = dict(sorted(losses.items(), key=lambda item: -len(item[1]))[:MOST_LABELS])
    else:
        sizes = np.array([max(len(str(row["input"]).split()), 1) for row in rows])
        edges = np.unique(np.quantile(sizes, np.linspace(0, 1, 6)).round().astype(int))
        for low, high in zip(edges, [*edges[1:], None], strict=True):
            if high is None and len(edges) > 1:
                break
            last = high is None or high == edges[-1]
            inside = [
                row["loss"]
                for row, size in zip(rows, sizes, strict=True)
                if size >= low and (high is None or size < high or (last and size <= high))
            ]
            top = low if high is None else high if last else high - 1
            name = f"{low} words" if top == low else f"{low} to {top} words"
            if inside:
                losses[name] = inside
    return Bars(
        f"Loss by {by}",
        f"mean loss of {len(rows)} dev examples",
        [f"{name} ({len(values)})" for name, values in losses.items()],
        {"loss": [float(np.mean(values)) for values in losses.values()]},
    )


def confusion(trace: Trace, rows: list[dict[str, Any]]) -> tuple[list[str], Any]:
    """Labels, the commonest first and further ones as one, and how often each (row) came out as each (column)."""
    pairs: Counter[tuple[str, str]] = Counter()
    for row in rows:
        if trace.facts.get("kind") == "labels":
            wanted, given = str(row["reference"]).split(), str(row["output"]).split()
            if len(wanted) == len(given):
                pairs.update(zip(wanted, given, strict=True))
        else:
            pairs[str(row["reference"]), str(row["output"])] += 1
    sizes: Counter[str] = Counter()
    for (wanted, given), n in pairs.items():  # type: ignore[assignment]
        sizes[wanted] += n  # type: ignore[index]
        sizes[given] += 0 if given == wanted else n  # type: ignore[index]
    names = [name for name, _ in sizes.most_common(MOST_LABELS)]
    names = [*names, OTHERS] if len(sizes) > len(names) else names
    place = {name: i for i, name in enumerate(names)}
    counts = np.zeros((len(names), len(names)), int)
    for (wanted, given), n in pairs.items():  # type: ignore[assignment]
        counts[place.get(wanted, len(names) - 1), place.get(given, len(names) - 1)] += n  # type: ignore[call-overload]
    return names, counts


def _confusion(trace: Trace, rows: list[dict[str, Any]]) -> Heatmap:
    names, counts = confusion(trace, rows)
    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    return Heatmap(
        title="Confusion matrix",
        subtitle="row: what was wanted; column: what came out; the number is how often",
        values=np.asarray(shares, np.float32),
        rows=[f"{name} ({int(n)})" for name, n in zip(names, counts.sum(1), strict=True)],
        columns=names,
        row_title="wanted",
        column_title="given",
        value_title="share of the row",
        words=[[str(n) if n else "" for n in row] for row in counts.tolist()],
    )


def edits(rows: list[dict[str, Any]]) -> tuple[Counter[str], Counter[str], int]:
    """Kinds of edits of words from references to outputs along a shortest alignment, the words themselves, and how many words
    the references have."""
    kinds: Counter[str] = Counter()
    found: Counter[str] = Counter()
    total = 0
    for row in rows:
        wanted, given = str(row["reference"]).split(), str(row["output"]).split()
        total += len(wanted)
        for a, b in aligned(wanted[:400], given[:400]):
            if a == b:
                continue
            kind = "left out" if b is None else "added" if a is None else "replaced"
            kinds[kind] += 1
            found[f"{a or '∅'} → {b or '∅'}"] += 1
    return kinds, found, total


def aligned(wanted: list[str], given: list[str]) -> list[tuple[str | None, str | None]]:
    """Pairs of words along a shortest sequence of edits (Levenshtein); None where one side has nothing."""
    cost = np.zeros((len(wanted) + 1, len(given) + 1), int)
    cost[:, 0], cost[0] = np.arange(len(wanted) + 1), np.arange(len(given) + 1)
    for i, a in enumerate(wanted, start=1):
        for j, b in enumerate(given, start=1):
            cost[i, j] = min(cost[i - 1, j - 1] + (a != b), cost[i - 1, j] + 1, cost[i, j - 1] + 1)
    pairs: list[tuple[str | None, str | None]] = []
    i, j = len(wanted), len(given)
    while i or j:
        if i and j and cost[i, j] == cost[i - 1, j - 1] + (wanted[i - 1] != given[j - 1]):
            pairs.append((wanted[i - 1], given[j - 1]))
            i, j = i - 1, j - 1
        elif i and cost[i, j] == cost[i - 1, j] + 1:
            pairs.append((wanted[i - 1], None))
            i -= 1
        else:
            pairs.append((None, given[j - 1]))
            j -= 1
    return pairs[::-1]


def _edits(rows: list[dict[str, Any]]) -> Bars:
    sample = rows[:: max(1, len(rows) // 500)]
    kinds, found, total = edits(sample)
    rate = sum(kinds.values()) / max(total, 1)
    named = ", ".join(f"{kind} {n}" for kind, n in kinds.most_common())
    return Bars(
        "Words that differ",
        f"{100 * rate:.1f} edits for each 100 words wanted · {named or 'no differences'} · {len(sample)} examples",
        [name for name, _ in found.most_common(MOST_WORDS)],
        {"times": [float(n) for _, n in found.most_common(MOST_WORDS)]},
    )
