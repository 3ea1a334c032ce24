"""One road from what a user names to training and dev data, and back to the very same data in a later process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from anaphora.data import corpora
from anaphora.data.series import SeriesData
from anaphora.data.sources.report import report_held
from anaphora.data.split import Split, sizes, split
from anaphora.data.twins import report_met
from anaphora.errors import DataError

Facts = Mapping[str, Any]
"""What ``describe`` says of data; see `anaphora.data.facts.DataFacts`."""
_DEV = ("validation", "valid", "dev", "val")
"""Names that the dev data have in a set of splits, the best one first; a split called ``test`` is none."""


class Described(Protocol):
    """Data that say as JSON what they are, with a fingerprint."""

    @property
    def facts(self) -> dict[str, Any]: ...

    def describe(self) -> dict[str, Any]: ...


D = TypeVar("D", bound=Described)


@dataclass(frozen=True)
class Reader(Generic[D]):
    """How one form of data is opened: ``open(data, role=…, spill=…, facts=…, **options)``.

    ``facts`` are those of these very data in an earlier process: they are then read as they were then.
    """

    open: Callable[..., D]
    kept: tuple[str, ...] = ("bad_rows", "source_field", "target_field")
    """Facts that are options of ``open``."""
    what: Callable[[Facts], str] = lambda facts: "examples"
    """What to call the data in a sentence."""
    like: Callable[[D], dict[str, Any]] = lambda train: {}
    """Options of dev data that the training data settle."""
    splits: bool = True
    """Whether a mapping with ``train`` holds splits; that of series holds columns."""

    def training(
        self, data: Any, valid: Any | None, rule: Split | Callable[[D, bool], Split], **options: Any
    ) -> tuple[D, D]:
        """Return ``(train, dev)``: dev data are those given, those of a set of splits (a Hugging Face ``DatasetDict``), an
        embedded corpus's own, or what ``rule`` holds out. A function makes the rule of the opened data and of whether
        dev data are held out of them."""
        if self.splits:
            data, valid = _splits_of(data, valid)
        train = self.open(data, role="train", **options)
        if valid is None and _has_dev(train.facts):
            valid = data
        chosen = rule if isinstance(rule, Split) else rule(train, valid is None)
        if valid is not None:
            dev = self.open(valid, role="dev", **{**options, **self.like(train)})
        else:
            whole = train
            train, dev = split(whole, chosen)
            last = chosen.way in ("stream end", "end", "last series")
            report_held(*sizes(whole, train, dev, chosen.way), last=last)
        report_met(train, dev)
        return train, dev

    def reopen(
        self, described: Mapping[str, Facts], spill: Path | None = None, **options: Any
    ) -> tuple[D, D]:
        """Return ``(train, dev)`` of a run again, as its config describes them, or raise a `DataError` that says what changed."""
        with _as_described():
            train = described["train"]
            if train["kind"] != "held-out":
                return self._whole(train, spill, options), self.reopen_one(
                    described["valid"], spill, **options
                )
            parts = split(self._whole(train, spill, options), Split.of(train))
            for part, facts in zip(parts, (train, described["valid"]), strict=True):
                _check_part(part, facts, spill)
        return parts

    def reopen_dev(self, described: Mapping[str, Facts], spill: Path | None = None, **options: Any) -> D:
        """Return the dev data alone: where they are data of their own, the training data need not be read again."""
        if described.get("valid", {}).get("kind") in (None, "held-out"):
            return self.reopen(described, spill, **options)[1]
        return self.reopen_one(described["valid"], spill, **options)

    def reopen_one(self, facts: Facts, spill: Path | None = None, **options: Any) -> D:
        """Return the very data, or the very part of data, that ``facts`` describe.

        A file that is no longer in its old place is looked for in ``spill``: a run's folder may have been moved.
        """
        with _as_described():
            if facts["kind"] != "held-out":
                return self._whole(facts, spill, options)
            part = split(self._whole(facts, spill, options), Split.of(facts))[facts["part"] != "train"]
            _check_part(part, facts, spill)
        return part

    def _whole(self, facts: Facts, spill: Path | None, options: dict[str, Any]) -> D:
        """Return what ``facts`` describe, and of a part the whole."""
        whole = facts
        if facts["kind"] == "held-out":  # of series the whole is described by where it comes from alone
            whole = {**facts, **facts["of"]} if "sha256" in facts else facts["of"]
        own: Facts = whole.get("pairs", whole)  # sentences are made of pairs of texts
        form = own.get("form", own["kind"])
        if form == "memory":
            raise DataError(
                f"The {self.what(whole)} were given from Python and not kept; give them again and start a new run."
            )
        kept = {name: own[name] for name in self.kept if name in own}
        role = own.get("split") or own.get("role", "train")
        where = _where(own, form, spill)
        found = self.open(where, role=role, spill=spill, facts=whole, **{**options, **kept})
        if "of" not in whole:
            _check_same(found, whole, spill)
        return found


def _splits_of(data: Any, valid: Any | None) -> tuple[Any, Any]:
    """Return the training and dev data of a mapping of splits, and anything else as it is."""
    if not isinstance(data, Mapping) or "train" not in data or isinstance(data["train"], list | str | tuple):
        return data, valid
    dev = next((name for name in _DEV if name in data), None)
    return data["train"], valid if valid is not None or dev is None else data[dev]


def _has_dev(facts: Facts) -> bool:
    """Return whether the data come with a dev split of their own."""
    return "corpus" in (facts["kind"], facts.get("form")) or "dev" in facts.get("splits", ())


def _where(facts: Facts, form: str, spill: Path | None) -> Any:
    """Return what to open: the name of a corpus, a path, or several."""
    if form == "corpus":
        name, variant = facts["name"], facts["variant"]
        corpora.find(name, variant)
        return f"{name}:{variant}"
    if "paths" in facts:
        return tuple(found_again(path, spill) for path in facts["paths"])
    path = found_again(facts["path"], spill)
    return (path, facts["labels"]) if form == "arrays" and facts.get("labels") else path


def found_again(path: str | Path, spill: Path | None) -> Path:
    """Return the path of the file, or of the one of its name in ``spill``: what a run keeps moves with its folder."""
    here = Path(path)
    if not here.exists() and spill is not None and (moved := spill / here.name).exists():
        return moved
    return here


@contextmanager
def _as_described() -> Iterator[None]:
    """Turn a description that lacks something into a `DataError`."""
    try:
        yield
    except KeyError:
        raise DataError(
            "the run's config.json does not say what its data was; restore it from a copy of the run."
        ) from None


def _check_part(part: Described, facts: Facts, spill: Path | None) -> None:
    """Raise a `DataError` where a part with a fingerprint of its own (of series) is not what was described."""
    if "sha256" in facts:
        _check_same(part, facts, spill)


def _check_same(opened: Described, facts: Facts, spill: Path | None) -> None:
    """Raise a `DataError` where what was opened is not what was described."""
    found, own = opened.describe(), facts.get("pairs", facts)
    if found.get("pairs", found)["sha256"] != own["sha256"]:
        place = opened.place if isinstance(opened, SeriesData) else _place(own, spill)
        raise DataError(
            f"{place} has changed since the run began (or this version reads it differently); put the old data "
            "back, or start a new run."
        )


def _place(facts: Facts, spill: Path | None) -> str:
    if "corpus" in (facts["kind"], facts.get("form")):
        return f"The corpus {facts['name']}"
    paths = facts.get("paths") or [facts["path"]]
    place = " or ".join(str(found_again(path, spill)) for path in paths[:3])
    return f"{place} or one of its pictures" if "pictures" in facts else place
