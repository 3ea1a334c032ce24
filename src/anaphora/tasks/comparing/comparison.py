"""``an.compare``: runs of one task, measured on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from anaphora.errors import DataError, SettingsError
from anaphora.kinds.measures.judged import Judged, Measure
from anaphora.kinds.result import Result
from anaphora.tasks.comparing.contestants import Contestant, gather, opened
from anaphora.tasks.comparing.resampling import bootstrap, grouped, interval, p_value
from anaphora.tasks.comparing.table import written
from anaphora.tasks.registry import meaningful, resolve

FEW = 20
"""Fewer independent examples than this give rough intervals."""


@dataclass(frozen=True)
class Compared(Result):
    """One run: its size, its training, and how fast it predicted here."""

    name: str
    settings: dict[str, Any]
    facts: dict[str, Any]
    seconds: float
    examples_per_second: float


@dataclass(frozen=True)
class Estimate(Result):
    """A measure and the interval in which it lies for other examples of the kind."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Difference(Result):
    """A run's measure minus the first run's, its interval, and the p-value of a paired test."""

    value: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class MeasureRow(Result):
    """One measure of all runs; ``differences`` are None for the first run, and where runs count different things."""

    name: str
    more_is_better: bool
    estimates: list[Estimate]
    differences: list[Difference | None]


@dataclass(frozen=True)
class Disagreement(Result):
    """An example with the outputs of all runs; ``number`` counts from 1."""

    number: int
    input: str
    reference: str
    outputs: list[str]
    losses: list[float]


@dataclass(frozen=True)
class Comparison(Result):
    """Runs side by side. ``str(comparison)`` is the table, ``to_dict()`` the same for machines."""

    task: str
    data: str
    examples: int
    level: float
    samples: int
    runs: list[Compared]
    settings: dict[str, list[Any]]
    measures: list[MeasureRow]
    disagreements: list[Disagreement]
    notes: list[str]

    def __str__(self) -> str:
        return written(self)


def compare(
    *runs: Any,
    data: Any | None = None,
    examples: int = 5,
    samples: int = 2000,
    level: float = 0.95,
    seed: int = 1,
    device: str = "auto",
    trust: bool = False,
    bad_rows: str | None = None,
    source_field: str | None = None,
    target_field: str | None = None,
    time_field: str | None = None,
    id_field: str | None = None,
    decimal: str | None = None,
    **options: Any,
) -> Comparison:
    """Measure ``runs`` (folders, or trained estimators of one task) on the same examples.

    Every run is compared with the first: the difference, its interval from the same bootstrap samples, and a two-sided
    p-value by approximate randomisation of the paired outputs.

    Args:
        runs: two or more.
        data: what ``score`` takes; without it the dev data, where all runs have the same.
        examples: how many of the examples on which the runs disagree most are kept.
        samples: how many bootstrap samples are drawn.
        level: each measure comes with the middle ``level`` of the samples.
        seed: of the samples.
        device: where the models run, ``"auto"``, ``"cpu"`` or ``"cuda"``.
        trust: import own parts that the folders name; see `load`.
        bad_rows: ``"skip"`` leaves out rows of ``data`` that cannot be read, ``"strict"`` stops at the first.
        source_field, target_field, time_field, id_field: columns of ``data``, where it is a table; decimal: its decimal mark.
        options: those of ``score``, such as ``beam``.

    Returns a `Comparison`: ``print`` shows it as a table, ``to_dict()`` gives the numbers.
    Raises a `RunError` for runs of different tasks, a `DataError` where the runs do not read the same examples, and a
    `SettingsError` for ``examples``, ``samples`` or ``level`` out of bounds.

    >>> rows = [("good film", "yes"), ("bad film", "no")] * 6
    >>> a, b = an.Classifier("ngrams").fit(rows), an.Classifier("ngrams", word_ngrams=1).fit(rows)
    >>> found = an.compare(a, b, data=rows, samples=100)
    >>> found.measures[0].name, found.measures[0].estimates[0].value
    ('accuracy', 100.0)
    """
    _check(examples, samples, level)
    contestants = gather(runs, device, trust)
    task = contestants[0].model.task()
    fields = {"source_field": source_field, "target_field": target_field, "time_field": time_field}
    fields |= {"id_field": id_field, "decimal": decimal}
    fields = {key: value for key, value in fields.items() if key in task.fields or value is not None}
    contestants[0].model._check_fields(fields)
    sets = opened(contestants, data, bad_rows, fields)
    judged = [one.model._judge(part, options) for one, part in zip(contestants, sets, strict=True)]
    rates = [len(one.inputs) / max(one.seconds, 1e-9) for one in judged]
    judged, notes = _on_common(contestants, judged)
    measures, more = _measured(contestants, judged, samples=samples, level=level, seed=seed)
    return Comparison(
        task.command,
        "the dev data of the runs" if data is None else _name(data),
        len(judged[0].inputs),
        level,
        samples,
        [
            Compared(one.name, one.settings, one.facts(), found.seconds, rate)
            for one, found, rate in zip(contestants, judged, rates, strict=True)
        ],
        _differing(contestants),
        measures,
        _disagreements(judged, examples),
        notes + _own_notes(contestants, judged) + more,
    )


def _own_notes(contestants: Sequence[Contestant], judged: Sequence[Judged]) -> list[str]:
    return [
        f"{one.name} {note}" for one, found in zip(contestants, judged, strict=True) for note in found.notes
    ]


def _check(examples: int, samples: int, level: float) -> None:
    if not 0 <= examples <= 10_000:
        raise SettingsError([f"examples = {examples!r} cannot be used: it must be from 0 to 10000."])
    if not 100 <= samples <= 1_000_000:
        raise SettingsError([f"samples = {samples!r} cannot be used: it must be from 100 to 1000000."])
    if not 0 < level < 1:
        raise SettingsError([f"level = {level!r} cannot be used: it must be between 0 and 1, such as 0.95."])


def _name(data: Any) -> str:
    if isinstance(data, tuple) and all(isinstance(part, str) for part in data):
        return " and ".join(data)
    return str(data) if isinstance(data, str) or hasattr(data, "__fspath__") else "data from Python"


def _on_common(contestants: Sequence[Contestant], judged: Sequence[Judged]) -> tuple[list[Judged], list[str]]:
    """All of them on the same examples in the same order: forecasters with different windows forecast from different
    places, and those that all have are compared; any other difference is an error."""
    first = judged[0]
    if all(list(one.inputs) == list(first.inputs) for one in judged):
        return list(judged), []
    common = set(first.inputs).intersection(*(one.inputs for one in judged[1:]))
    named = contestants[0].model.command == "forecast"
    if not named or not common:
        counts = ", ".join(
            f"{one.name} {len(found.inputs)}" for one, found in zip(contestants, judged, strict=True)
        )
        raise DataError(
            f"the runs read different examples out of the data ({counts}); compare runs that read them alike."
        )
    found = [_only(one, [i for i, x in enumerate(one.inputs) if x in common]) for one in judged]
    note = (
        f"the runs begin at different places; measured are the {len(common)} that all of them forecast from"
    )
    return found, [note]


def _only(judged: Judged, chosen: list[int]) -> Judged:
    return replace(
        judged,
        inputs=[judged.inputs[i] for i in chosen],
        references=[judged.references[i] for i in chosen],
        outputs=[judged.outputs[i] for i in chosen],
        losses=judged.losses[chosen],
        measures=[one.only(chosen) for one in judged.measures],
        groups=None if judged.groups is None else judged.groups[chosen],
    )


def _measured(
    contestants: Sequence[Contestant], judged: Sequence[Judged], *, samples: int, level: float, seed: int
) -> tuple[list[MeasureRow], list[str]]:
    groups, notes, rows = judged[0].groups, [], []
    independent = len(judged[0].inputs) if groups is None else len(np.unique(groups))
    if independent < FEW:
        notes.append(f"there are only {independent} independent examples, so the intervals are rough")
    shared = [one for one in judged[0].measures if all(_named(other, one.name) for other in judged)]
    for measure in shared:
        found = [_named(one, measure.name) for one in judged]
        statistics = [grouped(one.statistics, groups) for one in found if one is not None]
        alike = all(one is not None and one.basis == measure.basis for one in found)
        values = [one.of_all() for one in found if one is not None]
        # runs that count in different units have statistics of different widths, and no common samples
        drawn = [
            bootstrap([one], measure_of.value, samples=samples, seed=seed)[0]  # type: ignore[union-attr]
            for one, measure_of in zip(statistics, found, strict=True)
        ]
        estimates = [Estimate(value, *interval(row, level)) for value, row in zip(values, drawn, strict=True)]
        differences: list[Difference | None] = [None]
        for place in range(1, len(judged)):
            if not alike:
                differences.append(None)
                continue
            p = p_value(statistics[0], statistics[place], measure.value, samples=samples, seed=seed)
            low, high = interval(drawn[place] - drawn[0], level)
            differences.append(Difference(values[place] - values[0], low, high, p))
        if not alike:
            notes.append(
                f"{measure.name} is not compared: the runs do not count the same symbols, labels or units"
            )
        rows.append(MeasureRow(measure.name, measure.more_is_better, estimates, differences))
    if not rows:
        names = " and ".join(one.name for one in contestants)
        raise DataError(f"{names} have no measure in common; compare runs with the same kind of target.")
    return rows, notes


def _named(judged: Judged, name: str) -> Measure | None:
    return next((one for one in judged.measures if one.name == name), None)


def _differing(contestants: Sequence[Contestant]) -> dict[str, list[Any]]:
    """The settings in which the runs differ. One that means nothing to some run's preset (None) is left out unless a run
    changed it from its preset's own value."""
    settings, changed = [one.settings for one in contestants], {"model"}
    for one, given in zip(contestants, settings, strict=True):
        task = one.model.task()
        usual = meaningful(task, resolve(task, {"model": given["model"]}))
        changed |= {key for key, value in given.items() if usual.get(key) != value}
    keys = dict.fromkeys(["model", *(key for one in settings for key in one)])
    table = {key: [one.get(key) for one in settings] for key in keys}
    return {
        key: row
        for key, row in table.items()
        if any(value != row[0] for value in row) and (key in changed or all(key in one for one in settings))
    }


def _disagreements(judged: Sequence[Judged], most: int) -> list[Disagreement]:
    """The examples with different outputs first, then by how far the losses are apart."""
    losses = np.stack([one.losses for one in judged])  # (runs, examples)
    outputs = list(zip(*(one.outputs for one in judged), strict=True))
    apart = np.array([len(set(row)) > 1 for row in outputs])
    spread = losses.max(0) - losses.min(0)
    order = np.lexsort((np.arange(len(spread)), -spread, ~apart))
    return [
        Disagreement(
            int(i) + 1, judged[0].inputs[i], judged[0].references[i], list(outputs[i]), losses[:, i].tolist()
        )
        for i in order[:most]
        if apart[i]
    ]
