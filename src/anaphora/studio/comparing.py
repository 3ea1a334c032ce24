"""Runs side by side on the page: what ``anaphora compare`` prints, with names in place of paths."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath
from typing import Any

from anaphora.errors import AnaphoraError, DataError
from anaphora.studio.pictures import MOST_RUNS, option_values
from anaphora.studio.runs import Run

VIEW: dict[str, Any] = {
    "name": "compare",
    "title": "Runs on the same examples",
    "of": "compare",
    "reading": "Each measure of each run with its bootstrap interval; the difference is from the first run, with the p-value of a "
    "paired test. Below are the examples on which the runs disagree most.",
    "caution": "Intervals and tests say what other examples could change, not what another seed of training could; p-values are not "
    "corrected for several comparisons.",
    "options": [
        {"name": "examples", "kind": "int", "default": 5},
        {"name": "samples", "kind": "int", "default": 2000},
        {"name": "level", "kind": "float", "default": 0.95},
        {"name": "seed", "kind": "int", "default": 1},
    ],
    "typed": True,
    "question": "compare",
}
"""How the page lists it among the views; it is drawn as a table."""
LONGEST_WORK = 600.0
"""Seconds that a comparison may take: every run answers all dev examples."""
MOST_SAMPLES, MOST_EXAMPLES = 20_000, 100
KEPT = 8


class Comparisons:
    """Comparisons, kept until a run writes other weights. Called from one worker thread at a time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Any, dict[str, Any]] = OrderedDict()

    def of(self, runs: Sequence[Run], query: Mapping[str, str]) -> dict[str, Any]:
        """The comparison as JSON for the page; an `AnaphoraError` that names runs as the page does where there is none."""
        if not 2 <= len(runs) <= MOST_RUNS:
            raise DataError(f"choose from 2 to {MOST_RUNS} runs to compare, not {len(runs)}.")
        if any(run.frame is not None for run in runs):
            raise DataError("runs are compared on examples with the weights they keep; leave the film first.")
        options = option_values(query, "o.", [option["name"] for option in VIEW["options"]])
        for name, most in (("samples", MOST_SAMPLES), ("examples", MOST_EXAMPLES)):
            value = dict(options).get(name, 0)
            if not isinstance(value, int) or value > most:
                raise DataError(f"{name} must be a whole number of at most {most:,} here.")
        key = tuple((run.id, _stamp(run)) for run in runs), options
        if key not in self._kept:
            self._kept[key] = _compared(runs, dict(options))
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return {"view": "compare", "pictures": [], "missing": {}, "comparison": self._kept[key]}


def _stamp(run: Run) -> int:
    try:
        return (run.path / "model.safetensors").stat().st_mtime_ns
    except OSError:
        raise AnaphoraError(
            f"{run.name} has not written its weights yet; wait for its first checkpoint."
        ) from None


def _compared(runs: Sequence[Run], options: dict[str, Any]) -> dict[str, Any]:
    from anaphora.tasks.comparing.comparison import compare
    from anaphora.tasks.comparing.table import heading, table_rows

    def named(text: str) -> str:
        for run in sorted(runs, key=lambda one: -len(str(one.path))):
            text = text.replace(str(run.path), run.name)
        return text

    try:
        found = compare(*(str(run.path) for run in runs), device="cpu", **options)
    except (TypeError, ValueError) as error:
        raise DataError(f"these options cannot be used: {error}.") from None
    except AnaphoraError as error:
        raise AnaphoraError(named(str(error))) from None
    shown = [
        replace(one, name=run.name, facts=_without_folders(one.facts))
        for one, run in zip(found.runs, runs, strict=True)
    ]
    found = replace(found, runs=shown, notes=list(map(named, found.notes)))
    whole = found.to_dict()
    return {
        "heading": heading(found),
        "names": [run.name for run in runs],
        "rows": [list(row) for row in table_rows(found)],
        **{key: whole[key] for key in ("examples", "measures", "disagreements", "notes")},
    }


def _without_folders(facts: Mapping[str, Any]) -> dict[str, Any]:
    """``facts`` with the names of data files alone: a page never names a path."""
    train = facts.get("train")
    if not isinstance(train, dict):
        return dict(facts)
    inner = train.get("of")
    kept = {key: _name(value) for key, value in train.items()}
    if isinstance(inner, dict):
        kept["of"] = {key: _name(value) for key, value in inner.items()}
    return {**facts, "train": kept}


def _name(value: Any) -> Any:
    if isinstance(value, list):
        return [_name(one) for one in value]
    return PurePath(value).name if isinstance(value, str) and value.startswith("/") else value
