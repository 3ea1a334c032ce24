"""Data and symbols: how long the examples are, what padding costs, how symbols are spread, what the tokenizer does."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.bars import Bars
from anaphora.views.highlight import Highlight
from anaphora.views.lines import Line, Lines
from anaphora.views.panels import Panels
from anaphora.views.states import facts_line

TITLE = "Data and symbols"
PARTS = {
    "Length": "Lengths: how many dev examples have so many symbols.",
    "Padding": "Padding: the share of a batch's places that hold nothing, when batches take examples as they come and when they take those of about the same length.",
    "Symbols by rank": "Symbols by rank: a straight line in both logarithms is Zipf's law.",
    "Pieces": "Pieces: examples as the model reads them, alternately shaded; dark ones are unknown to it.",
}
READING = " ".join(PARTS.values())
CAUTION = (
    "All is counted on dev examples; training data may be longer or rarer. Padding is computed for batches of these examples, not "
    "measured while training."
)
BINS = 12


def data(trace: Trace, *, batch: int | None = None) -> Panels:
    """Lengths, padding in batches of ``batch`` symbols (by default as trained), frequencies and pieces."""
    rows = trace.tables["data"]
    sizes = {side: [int(r[side]) for r in rows if r[side] is not None] for side in ("input", "output")}
    batch = int(trace.facts.get("batch_tokens") or 4096) if batch is None else batch
    if not 1 <= batch <= 10_000_000:
        raise AnaphoraError(f"batch must be from 1 to 10,000,000 symbols, not {batch}.")
    charts: list[Any] = [_lengths(side, values) for side, values in sizes.items() if values]
    if sizes["input"]:
        charts.append(_padding(np.array(sizes["input"]), batch))
    if "counts" in trace.arrays:
        charts.append(_zipf(trace))
    charts += [_pieces(row) for row in trace.tables.get("pieces", [])]
    total = sum(sum(values) for values in sizes.values())
    unknown = sum(int(r["unknown"]) for r in rows)
    words = [f"{name} {size:,}" for name, size in dict(trace.facts.get("vocabulary", {})).items()]
    notes = [f"{len(rows)} of {trace.facts['examples']} dev examples"]
    if "counts" in trace.arrays:
        share = 100 * unknown / max(total, 1)
        notes.append(f"{unknown:,} of {total:,} symbols are unknown to the model ({share:.2g} %)")
    return Panels(TITLE, " · ".join([facts_line(trace), *words]), charts, notes, READING, CAUTION)


def _lengths(side: str, values: list[int]) -> Bars:
    edges = np.unique(np.linspace(min(values), max(values) + 1, BINS + 1).round().astype(int))
    counts, _ = np.histogram(values, edges)
    names = [f"{a}" if b - a == 1 else f"{a} to {b - 1}" for a, b in itertools.pairwise(edges)]
    middle = float(np.median(values))
    subtitle = f"symbols; median {middle:g}, mean {np.mean(values):.1f}, longest {max(values)}"
    return Bars(f"Length of the {side}", subtitle, names, {"examples": [float(n) for n in counts]})


def padding_waste(lengths: NDArray[Any], batch: int) -> float:
    """The share of places that hold nothing when ``lengths`` are cut in their order into batches of at most ``batch`` places."""
    places, start, longest = 0, 0, 0
    for i, length in enumerate(lengths.tolist()):
        if i > start and max(longest, length) * (i + 1 - start) > batch:
            places += longest * (i - start)
            start, longest = i, 0
        longest = max(longest, length)
    places += longest * (len(lengths) - start)
    return 1 - float(lengths.sum()) / places if places else 0.0


def _padding(lengths: NDArray[Any], batch: int) -> Bars:
    shuffled = np.random.default_rng(1).permutation(lengths)
    return Bars(
        "Padding",
        f"share of the places of batches of {batch:,} symbols that hold nothing",
        ["as they come", "of about the same length"],
        {"share": [padding_waste(shuffled, batch), padding_waste(np.sort(lengths), batch)]},
        percent=True,
    )


def _zipf(trace: Trace) -> Lines:
    counts = np.sort(np.asarray(trace.array("counts", "symbol"), float))[::-1]
    ranks = np.log10(np.arange(1, len(counts) + 1))
    kept = np.unique(
        np.concatenate([np.arange(min(30, len(counts))), np.geomspace(1, len(counts), 120).astype(int) - 1])
    )
    line = Line("symbols", ranks[kept].tolist(), counts[kept].tolist())
    once = int((counts == 1).sum())
    best = ", ".join(trace.tokens["symbol"][:8])
    return Lines(
        "Symbols by rank",
        f"{len(counts):,} kinds, {once:,} occur once · commonest: {best}",
        "log₁₀ of the rank",
        "times",
        [line],
        log=True,
    )


def _pieces(row: dict[str, Any]) -> Highlight:
    ids, pieces = list(row["ids"]), [str(piece) for piece in row["pieces"]]
    shades = [1.0 if symbol == 1 else 0.12 if i % 2 else 0.22 for i, symbol in enumerate(ids)]
    said = [f"{piece}: symbol {symbol}" for piece, symbol in zip(pieces, ids, strict=True)]
    return Highlight(f"Pieces of example {row['number']}", f"{len(ids)} symbols", pieces, shades, said=said)
