"""Dev data for those who have none: one rule for every task, the same rows every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Protocol, Self, TypeVar

import numpy as np

from anaphora.data.reopening import Described, reopen_both
from anaphora.data.sources.met import report_met
from anaphora.data.sources.opening import open_source, reopen_source
from anaphora.data.sources.report import report_held
from anaphora.data.sources.roles import TEXT_PAIR
from anaphora.data.sources.source import Source
from anaphora.errors import DataError

SHARE = 0.05
MOST = 1000
_DEV = ("validation", "valid", "dev", "val", "test")
"""Names that the dev data have in a set of splits, the best one first."""


class Parted(Described, Protocol):
    """Data of which some examples can be had on their own."""

    def __len__(self) -> int: ...

    def part(self, chosen: Any, facts: dict[str, Any]) -> Self:
        """The examples at ``chosen``; ``facts`` say which they are."""


P = TypeVar("P", bound=Parted)
D = TypeVar("D", bound=Described)


def held_count(holdout: float, rows: int, *, what: str = "rows") -> int:
    """How many of ``rows`` examples are held out: ``holdout`` is a share below 1, a count from 1 on, or 0 for a twentieth,
    at most 1000. A `DataError` where nothing would be left."""
    if rows < 2:
        raise DataError(
            "one example is too little to hold dev data out of; give more, or dev data of your own."
        )
    if not holdout:
        return min(MOST, max(1, int(rows * SHARE)))
    count = max(1, round(rows * holdout)) if holdout < 1 else int(holdout)
    if count >= rows:
        raise DataError(f"{count} of {rows} {what} cannot be held out as dev data; hold out fewer.")
    return count


def hold_out(whole: P, *, seed: int, holdout: float = 0) -> tuple[P, P]:
    """``(train, dev)``: as many examples as `held_count` says, chosen by ``seed``, become dev data."""
    held = held_count(holdout, len(whole))
    order = np.random.RandomState(seed).permutation(len(whole))
    facts = {"kind": "held-out", "seed": seed, "count": holdout}
    return (
        whole.part(np.sort(order[held:]), {**facts, "part": "train"}),
        whole.part(np.sort(order[:held]), {**facts, "part": "dev"}),
    )


def open_both(
    data: Any,
    valid: Any | None,
    open_: Callable[..., D],
    apart: Callable[[D], tuple[D, D]],
) -> tuple[D, D]:
    """``(train, dev)``, each opened by ``open_(data, role=…)``: dev data are those given, those of a set of splits (a
    Hugging Face ``DatasetDict``), an embedded corpus's own, or what ``apart`` holds out."""
    data, valid = splits_of(data, valid)
    train = open_(data, role="train")
    facts = train.describe()
    if valid is None and "corpus" in (facts["kind"], facts.get("form")):
        valid = data
    if valid is None:
        return apart(train)
    return train, open_(valid, role="dev")


def splits_of(data: Any, valid: Any | None) -> tuple[Any, Any]:
    """The training and dev data of a mapping of splits; anything else as it is."""
    if not isinstance(data, Mapping) or "train" not in data or isinstance(data["train"], list | str | tuple):
        return data, valid
    dev = next((name for name in _DEV if name in data), None)
    return data["train"], valid if valid is not None or dev is None else data[dev]


def open_parts(
    data: Any, valid: Any | None, open_: Callable[..., P], *, seed: int, holdout: float = 0
) -> tuple[P, P]:
    """`open_both` for data of which examples are held out by `hold_out`."""

    def apart(whole: P) -> tuple[P, P]:
        train, dev = hold_out(whole, seed=seed, holdout=holdout)
        report_held(len(dev), len(whole))
        return train, dev

    train, dev = open_both(data, valid, open_, apart)
    report_met(train, dev)
    return train, dev


def reopen_parts(descriptions: Mapping[str, Any], reopen: Callable[[Mapping[str, Any]], P]) -> tuple[P, P]:
    """``(train, dev)`` of a run again, as its config describes them; ``reopen`` opens one description."""
    return reopen_both(
        descriptions,
        reopen,
        lambda whole, held: hold_out(whole, seed=held["seed"], holdout=held.get("count", 0)),
    )


def open_training(
    data: Any, valid: Any | None, *, seed: int, holdout: float = 0, **read: Any
) -> tuple[Source, Source]:
    """``(train, dev)`` of rows; for ``read`` see `open_source`."""
    return open_parts(data, valid, partial(open_source, **read), seed=seed, holdout=holdout)


def reopen_training(
    descriptions: Mapping[str, Any], *, roles: Any = TEXT_PAIR, spill: Path | None = None
) -> tuple[Source, Source]:
    """``(train, dev)`` of a run again, as its config describes them; for ``spill`` see `reopen_source`."""
    return reopen_parts(descriptions, partial(reopen_source, roles=roles, spill=spill))
