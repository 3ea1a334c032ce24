"""What a check of the contract is made of: a `Subject`, the decorator `check`, and how answers and runs are compared."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from cases import Case
from doors import Served
from kept import plain

from trained_runs import Trained


@dataclass
class Subject:
    """What is checked: a trained run of a case, read only, and an empty folder. ``serve`` gives a server that has the run
    under the name of the case."""

    name: str
    trained: Trained
    folder: Path
    serve: Callable[[], Served]

    @property
    def case(self) -> Case:
        return self.trained.case

    @functools.cached_property
    def model(self) -> Any:
        return self.trained.load()

    @functools.cached_property
    def inputs(self) -> list[Any]:
        """Inputs in their JSON form."""
        return self.case.inputs()

    @functools.cached_property
    def answers(self) -> list[Any]:
        """What Python's ``predict`` says to them."""
        return said(self.case, self.model, self.inputs)

    @functools.cached_property
    def details(self) -> list[Any]:
        """The same with every number that belongs to it."""
        return said(self.case, self.model, self.inputs, details=True)

    @property
    def dev(self) -> Path:
        assert self.trained.dev is not None
        return self.trained.folder / self.trained.dev


Share = Literal["all", "kinds", "tasks"]
"""Which cases show a promise in ``make test``: all of them, one for each task and kind of input, or one for each task."""


@dataclass(frozen=True)
class Check:
    """``run`` fails if the promise is broken. It is asked only of cases it ``applies`` to, which have what it needs."""

    name: str
    run: Callable[[Subject], None]
    needs: frozenset[str]
    share: Share
    _applies: Callable[[Case], bool]

    def applies(self, case: Case) -> bool:
        return not self.needs & set(case.lacks) and self._applies(case)


CHECKS: dict[str, Check] = {}


def check(
    name: str, *needs: str, share: Share = "all", applies: Callable[[Case], bool] = lambda _: True
) -> Callable[[Callable[[Subject], None]], Callable[[Subject], None]]:
    """Make a check of a function. ``needs`` are words that a case may lack."""

    def add(function: Callable[[Subject], None]) -> Callable[[Subject], None]:
        assert name not in CHECKS
        CHECKS[name] = Check(name, function, frozenset(needs), share, applies)
        return function

    return add


# ---------------------------------------------------------------------- what is compared
def said(case: Case, model: Any, inputs: list[Any], **options: Any) -> list[Any]:
    """What ``predict`` says to inputs in their JSON form, as JSON."""
    given = case.given(inputs)
    if "many" in case.lacks:
        return [plain(model.predict(x)) for x in given]
    found: list[Any] = plain(model.predict(given, **{**case.options, **options}))
    return found


def predicting(subject: Subject, asked: str, *more: str) -> list[Any]:
    """The words of ``predict`` for a file of inputs."""
    options = [word for key, value in subject.case.options.items() for word in ("--set", f"{key}={value}")]
    return ["predict", subject.trained.run, asked, *options, *more]


def close(found: Any, wanted: Any, place: str = "answer", *, digits: float = 1e-5) -> None:
    """The same, but for the last digits of numbers that were added up in another order. There may be more fields."""
    if isinstance(wanted, dict):
        assert isinstance(found, dict), place
        assert found.keys() >= wanted.keys(), place
        for key in wanted:
            close(found[key], wanted[key], f"{place}.{key}", digits=digits)
    elif isinstance(wanted, list):
        assert isinstance(found, list), place
        assert len(found) == len(wanted), place
        for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
            close(one, other, f"{place}[{number}]", digits=digits)
    elif isinstance(wanted, float):
        assert np.isclose(found, wanted, rtol=digits, atol=digits, equal_nan=True), (
            f"{place}: {found} {wanted}"
        )
    else:
        assert found == wanted, f"{place}: {found} {wanted}"


def held(run: Path) -> dict[str, bytes]:
    """The files of a run that say what was trained: all but checkpoints and what the seconds were."""
    files = (path for path in run.rglob("*") if path.is_file() and "checkpoints" not in path.parts)
    return {str(path.relative_to(run)): path.read_bytes() for path in files if path.name != "timings.jsonl"}


def same_run(found: Path, wanted: Path) -> None:
    """Both have the same weights, metrics and artifacts, byte by byte."""
    mine, other = held(found), held(wanted)
    assert mine.keys() == other.keys()
    assert [name for name in mine if mine[name] != other[name]] == []


def curve(run: Path) -> list[tuple[int, float]]:
    """The loss of every step, and every dev loss."""
    lines = list(map(json.loads, (run / "metrics.jsonl").read_text().splitlines()))
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    return losses + [(line["step"], line["dev"]["loss"]) for line in lines if "dev" in line]
