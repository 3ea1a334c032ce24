"""What is learned of columns before any model: which are forecast, their scale, where values may be missing."""

from __future__ import annotations

import difflib
import json
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from anaphora.data.series import Floats, SeriesData, unnamed
from anaphora.errors import DataError
from anaphora.files import parse_json
from anaphora.files.schemas import checked

FORMAT = 1
TARGET, TARGET_OF_TABLE = "y", "y(X)"
"""What ``fit(X, y)`` calls the column of y beside the columns of an array, and beside those of a table, which may have a column y."""
Output = Literal["continuous", "count", "binary"]
_LONGEST_PERIOD = 400
_PEAK = 0.3  # autocorrelation below which nothing repeats
_RISE = 0.1
"""How far a peak must rise above what is before it: a walk resembles itself at every small lag, with small peaks by chance."""
_CLEARLY = 0.1
"""How much higher the autocorrelation at a multiple of a season must be for that to be the season."""
_NEAR = 1.25
"""A long season has several small peaks at its top: the highest up to so many times the first lag is taken."""


@dataclass(frozen=True)
class Columns:
    """Names and roles of the columns, and the scale of each in the training data alone.

    ``mean`` and ``scale`` (one per column) standardise: z = (x − mean)/scale. ``gaps`` says of each column whether
    training values were missing: such a column comes with a mask. ``usual`` is the mean of each target. ``period`` is the season in steps, 1 for none.
    ``nonnegative`` says of each target whether forecasts below 0 are raised to 0; empty, as in runs of before, if of none.
    """

    names: tuple[str, ...]
    targets: tuple[str, ...]
    known: tuple[str, ...]
    mean: tuple[float, ...]
    scale: tuple[float, ...]
    gaps: tuple[bool, ...]
    usual: tuple[float, ...]
    period: int
    output: Output
    nonnegative: tuple[bool, ...] = ()

    @classmethod
    def learn(
        cls,
        data: SeriesData,
        *,
        targets: Sequence[str],
        known: Sequence[str],
        output: Output,
        period: int,
        nonnegative: bool = True,
    ) -> Columns:
        """From training data; empty ``targets`` are all columns that are not known, ``period`` 0 is inferred. Continuous targets of which no
        value is below 0 are ``nonnegative``, unless that is False."""
        given = bool(targets or known)
        known = tuple(known if given else data.known)
        targets = tuple(targets if given else data.targets)
        targets = targets or tuple(name for name in data.columns if name not in known)
        _check_names(data, targets, known)
        values = np.concatenate([one.values for one in data.series])
        _check_values(data, values, targets, output)
        mean, scale = np.nanmean(values, axis=0), np.nanstd(values, axis=0)
        for name, one, spread in zip(data.columns, values.T, scale, strict=True):
            if spread == 0 and np.nanmin(one) != np.nanmax(one):  # squares that are no more than 0
                raise DataError(
                    f"{data.place}: the values of column {name[:40]} differ by too little to compute with; use a smaller unit."
                )
        own = [data.columns.index(name) for name in targets]
        usual = tuple(mean[own].tolist())
        never_below = tuple(not bool((values[:, place] < 0).any()) for place in own)
        if output == "binary":  # 0 stays 0; one scale for all, or a rare 1 would drown the rest
            mean[own], scale[own] = 0.0, np.sqrt(np.mean(scale[own] ** 2))
        scale[scale == 0] = 1.0
        if not period:
            period = infer_period([(one.values[:, own] - mean[own]) / scale[own] for one in data.series])
        return cls(
            data.columns,
            targets,
            known,
            tuple(mean.tolist()),
            tuple(scale.tolist()),
            tuple(np.isnan(values).any(axis=0).tolist()),
            usual,
            period,
            output,
            never_below if nonnegative and output == "continuous" else (),
        )

    # ------------------------------------------------------------------ places of columns

    @property
    def others(self) -> tuple[str, ...]:
        """The columns that are read but not forecast."""
        return tuple(name for name in self.names if name not in self.targets)

    @property
    def apart(self) -> bool:
        """Whether these are the columns of ``fit(X, y)`` with one y for each step."""
        return self.targets == (TARGET_OF_TABLE,) or (self.targets == (TARGET,) and unnamed(self.others))

    def places(self, names: Sequence[str]) -> list[int]:
        return [self.names.index(name) for name in names]

    # ------------------------------------------------------------------ scale

    def standardised(self, values: Floats) -> Floats:
        """(time, columns) in units of each column's deviation."""
        standard: Floats = (values - np.array(self.mean)) / np.array(self.scale)
        return standard

    def restored(self, targets: Floats) -> Floats:
        """Standardised targets (…, targets) in their own units."""
        places = self.places(self.targets)
        own: Floats = targets * np.array(self.scale)[places] + np.array(self.mean)[places]
        return own

    def floor(self, values: Floats) -> Floats:
        """The least forecast of each target, (targets,), for a series of ``values`` (time, columns): 0 where the target is nonnegative
        and the series has no value below 0 either, else −∞."""
        below = (values[:, self.places(self.targets)] < 0).any(axis=0)
        raised = np.array(self.nonnegative or [False] * len(self.targets))
        return np.where(raised & ~below, 0.0, -np.inf)

    # ------------------------------------------------------------------ files

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)}, indent=1, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Columns:
        """What `to_json` wrote; a ValueError, KeyError or TypeError where it is something else."""
        document: dict[str, Any] = parse_json(text)
        if document.pop("format") != FORMAT:
            raise ValueError("another format")
        columns = checked(cls, document)
        columns._check()
        return columns

    def _check(self) -> None:
        """A ``ValueError`` where the columns do not fit together."""
        for field in ("mean", "scale", "gaps"):
            if len(getattr(self, field)) != len(self.names):
                raise ValueError(f"{field}: there are {len(self.names)} columns")
        if len(self.usual) != len(self.targets) or not {*self.targets, *self.known} <= {*self.names}:
            raise ValueError("targets: not among the names")
        if len(self.nonnegative) not in (0, len(self.targets)):
            raise ValueError(f"nonnegative: there are {len(self.targets)} targets")
        if (
            self.period < 1
            or not np.isfinite([*self.mean, *self.scale, *self.usual]).all()
            or min(self.scale) <= 0
        ):
            raise ValueError("scale: numbers above 0 are needed")


def infer_period(series: Sequence[Floats], *, longer: bool = False) -> int:
    """The lag at which standardised series (time, targets) resemble themselves most, 1 where none stands out.

    The mean autocorrelation without its linear trend is looked at, up to a third of a series; of its peaks the first within a tenth of the
    highest is taken, so that a day is preferred to two days. With ``longer``, a multiple of it is taken at which they resemble themselves
    clearly more, such as a week of days that are not all alike.
    """
    total, weight = np.zeros(_LONGEST_PERIOD + 2), 0.0
    for values in series:
        most = min(_LONGEST_PERIOD, len(values) // 3) + 1  # a peak has a neighbour on either side
        if most < 5:
            continue
        t = np.linspace(-1.0, 1.0, len(values))
        for column in values.T:
            real = np.flatnonzero(~np.isnan(column))
            # a line through a gap: the mean would make a season of gaps that come regularly
            filled = (
                np.interp(np.arange(len(column)), real, column[real]) if len(real) else np.zeros(len(column))
            )
            rest = filled - filled.mean() - t * (t @ filled) / (t @ t)
            power = np.abs(np.fft.rfft(rest, 2 * len(rest))) ** 2
            correlation = np.fft.irfft(power)[: most + 1]
            if correlation[0] > 0:
                total[: most + 1] += correlation / correlation[0] * len(values)
                weight += len(values)
    if not weight:
        return 1
    found = total / weight
    peaks = [
        lag
        for lag in range(2, len(found) - 1)
        if found[lag - 1] < found[lag] >= found[lag + 1] and found[lag] - found[:lag].min() >= _RISE
    ]
    highest = max((found[lag] for lag in peaks), default=0.0)
    if highest <= _PEAK:
        return 1
    first = next(lag for lag in peaks if found[lag] >= 0.9 * highest)
    period = first + int(np.argmax(found[first : int(_NEAR * first) + 1]))
    if not longer:
        return period
    steps = max(len(values) for values in series)
    even = found * steps / np.maximum(steps - np.arange(len(found)), 1)  # a sum at a long lag has fewer terms
    multiples = range(period, len(found) - 1, period)
    highest = max(even[lag] for lag in multiples)
    if highest < even[period] + _CLEARLY:
        return period
    return next(lag for lag in multiples if even[lag] >= highest - _CLEARLY / 2)


def _check_names(data: SeriesData, targets: Sequence[str], known: Sequence[str]) -> None:
    for role, names in (("targets", targets), ("known", known)):
        for name in names:
            if name not in data.columns:
                near = difflib.get_close_matches(name, data.columns, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(data.columns[:20])}."
                raise DataError(f"{data.place}: has no column {name}, which {role} names; {hint}")
    both = [name for name in targets if name in known]
    if both:
        raise DataError(
            f"{both[0]} is among targets and known: what is known in advance need not be forecast."
        )
    if not targets:
        raise DataError(f"{data.place}: every column is known in advance, so none is left to forecast.")


def _check_values(data: SeriesData, values: Floats, targets: Sequence[str], output: Output) -> None:
    if not len(values):
        raise DataError(
            f"{data.place}: is too short to hold dev data out of; give longer series or dev data."
        )
    if output == "continuous" and _zeros_and_ones(values, [data.columns.index(name) for name in targets]):
        warnings.warn(
            f'{data.place}: all targets are 0 or 1; output="binary" forecasts their probabilities, and takes columns that never '
            "change",
            stacklevel=2,
        )
    for place, name in enumerate(data.columns):
        present = values[:, place][~np.isnan(values[:, place])]
        if not len(present):
            raise DataError(f"{data.place}: column {name} has no value at all; leave it out.")
        if output == "continuous" and (present == present[0]).all():
            raise DataError(f"{data.place}: column {name} never changes in the training data; leave it out.")
        if name not in targets:
            continue
        if output == "binary" and not np.isin(present, (0.0, 1.0)).all():
            raise DataError(
                f'{data.place}: column {name} holds other values than 0 and 1; output="binary" needs those.'
            )
        if output == "count" and ((present < 0) | (present != np.round(present))).any():
            raise DataError(
                f'{data.place}: column {name} holds values that are no counts; output="count" needs 0, 1, 2, …'
            )


def _zeros_and_ones(values: Floats, places: Sequence[int]) -> bool:
    present = values[:, places]
    present = present[~np.isnan(present)]
    return bool(len(present)) and bool(np.isin(present, (0.0, 1.0)).all())
