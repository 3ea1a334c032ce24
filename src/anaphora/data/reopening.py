"""The data of a run once more: where they lie now, whether they are the same, and a sentence where they are not."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

from anaphora.errors import DataError


class Described(Protocol):
    """Data that say as JSON what they are, with a fingerprint."""

    def describe(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Described)


@contextmanager
def as_described() -> Iterator[None]:
    """A description that lacks something becomes a `DataError`."""
    try:
        yield
    except KeyError:
        raise DataError(
            "the run's config.json does not say what its data was; restore it from a copy of the run."
        ) from None


def reopen_both(
    descriptions: Mapping[str, Any],
    reopen: Callable[[dict[str, Any]], T],
    hold_out: Callable[[T, dict[str, Any]], tuple[T, T]],
) -> tuple[T, T]:
    """``(train, dev)`` of a run again, as its config describes them: both opened, or held out of one as ``train`` says."""
    with as_described():
        train = descriptions["train"]
        if train["kind"] == "held-out":
            return hold_out(reopen(train["of"]), train)
        return reopen(train), reopen(descriptions["valid"])


def found_again(path: str | Path, spill: Path | None) -> Path:
    """The file, or the one of its name in ``spill``: what a run keeps moves with its folder."""
    here = Path(path)
    if not here.exists() and spill is not None and (moved := spill / here.name).exists():
        return moved
    return here


def check_kept(kind: str, what: str) -> None:
    """A `DataError` where ``what`` was only ever in memory."""
    if kind == "memory":
        raise DataError(
            f"The {what} were given from Python and not kept; give them again and start a new run."
        )


def check_same(opened: Described, description: Mapping[str, Any], place: str) -> None:
    """A `DataError` where what was opened is not what was described."""
    if opened.describe()["sha256"] != description["sha256"]:
        raise DataError(
            f"{place} has changed since the run began (or this version reads it differently); put the old data "
            "back, or start a new run."
        )
