"""A comparison as text: one column for each run, and below it the examples on which the runs disagree most."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anaphora.tasks.comparing.comparison import Comparison, Difference, Estimate

LONGEST = 100
"""Characters of an example that are shown."""


def heading(comparison: Comparison) -> str:
    """What was measured, and what the intervals and the differences are."""
    return (
        f"{comparison.examples} examples of {comparison.data}; intervals hold {100 * comparison.level:g} % of "
        f"{comparison.samples} bootstrap samples; differences are from the first run, with a paired test"
    )


def table_rows(comparison: Comparison) -> list[list[str]]:
    """The table: names of the runs first, then settings in which they differ, sizes, speeds and measures."""
    runs = comparison.runs
    rows = [["", *(run.name for run in runs)]]
    rows += [[key, *map(_value, values)] for key, values in comparison.settings.items()]
    rows += [["training data", *(_data(run.facts.get("train")) for run in runs)]]
    rows += [["parameters", *(f"{run.facts['parameters']:,}".replace(",", " ") for run in runs)]]
    rows += [["weights", *(_bytes(run.facts.get("bytes")) for run in runs)]]
    rows += [["training", *(_training(run.facts) for run in runs)]]
    rows += [["predicting", *(f"{run.examples_per_second:.3g} examples/s" for run in runs)]]
    for measure in comparison.measures:
        better = "↑" if measure.more_is_better else "↓"
        rows.append([f"{measure.name} {better}", *map(_estimate, measure.estimates)])
        if any(measure.differences):
            rows.append(["  difference", *map(_difference, measure.differences)])
    return rows


def written(comparison: Comparison) -> str:
    """The table, the notes and the examples."""
    runs = comparison.runs
    parts = [heading(comparison), _aligned(table_rows(comparison))]
    parts += [f"note: {note}." for note in comparison.notes]
    if comparison.disagreements:
        parts.append("The runs disagree most on:")
        names = _aligned([[run.name] for run in runs]).split("\n")
        for one in comparison.disagreements:
            wanted = f"  (wanted: {_short(one.reference)})" if one.reference else ""
            parts.append(f"  {one.number}: {_short(one.input)}{wanted}")
            parts += [
                f"    {name}  {_short(output)}" for name, output in zip(names, one.outputs, strict=True)
            ]
    return "\n".join(parts)


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join(lines if len(rows[0]) == 1 else (line.rstrip() for line in lines))


def _number(value: float) -> str:
    return f"{value:.2f}" if abs(value) >= 1 or not value else f"{value:.3g}"


def _estimate(one: Estimate) -> str:
    return f"{_number(one.value)} [{_number(one.low)}, {_number(one.high)}]"


def _difference(one: Difference | None) -> str:
    if one is None:
        return ""
    sign = "+" if one.value > 0 else ""
    return f"{sign}{_number(one.value)} [{_number(one.low)}, {_number(one.high)}], p = {one.p:.2g}"


def _value(value: Any) -> str:
    if value is None or value == "":
        return "–"
    return str(value).lower() if isinstance(value, bool) else _short(str(value))


def _data(facts: Any) -> str:
    """Where the training data came from, and how many they were."""
    if not facts:
        return "–"
    whole = facts.get("of", facts)
    name = whole.get("path") or whole.get("name") or whole.get("kind") or "–"
    shown = " and ".join(_near(str(one)) for one in (name if isinstance(name, list) else [name]))
    count = next(
        (facts[key] for key in ("rows", "examples", "series") if isinstance(facts.get(key), int)), None
    )
    return f"{_short(shown)}" + (f", {count} rows" if count is not None else "")


def _near(name: str) -> str:
    """A path from here, where that is shorter."""
    near = os.path.relpath(name) if os.path.isabs(name) else name
    return near if len(near) < len(name) else name


def _bytes(count: int | None) -> str:
    if count is None:
        return "–"
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def _training(facts: dict[str, Any]) -> str:
    parts = []
    if "steps" in facts:
        parts.append(f"{facts['steps']} steps, {facts['training_seconds']:.3g} s")
    if "training_symbols_per_second" in facts:
        parts.append(f"{facts['training_symbols_per_second']:.3g} symbols/s")
    return ", ".join(parts) or "–"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
