"""Tiny trained runs, one for each case of ``tests/contract/cases.py``: made once in a run of the tests, whichever worker comes
first, and read by all. The fixture ``trained`` gives them: ``trained("classify-text-lstm")``.

A test that would change a run takes a `Trained.copy`.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
import sys
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parent / "contract"))

from cases import CASES, Case

State = dict[str, tuple[int, int]]


@dataclass(frozen=True)
class Trained:
    """A folder with the data of a case, and ``run``, which was trained on them."""

    case: Case
    folder: Path
    train: str
    dev: str | None
    metrics: Mapping[str, float] = field(default_factory=dict)
    """The dev measures of the weights that were kept."""

    @property
    def run(self) -> Path:
        return self.folder / "run"

    def load(self) -> Any:
        """An estimator of one's own."""
        import anaphora

        return anaphora.load(self.run, device="cpu")

    def copy(self, place: Path) -> Path:
        """The run in a folder of one's own, to change; its data stay where they are."""
        return Path(shutil.copytree(self.run, place))

    def fit(self, run: Path, settings: Mapping[str, Any] | None = None, **options: Any) -> Any:
        """Train the case once more, into another folder, with other settings and options of ``fit``."""
        dev = {} if self.dev is None else {"valid": self.folder / self.dev}
        model = self.case.estimator(self.case.model, **{**self.case.settings, **(settings or {})})
        return model.fit(self.folder / self.train, out=run, **dev, **self.case.fields, **options)

    def words(self, run: Path, settings: Mapping[str, Any] | None = None) -> list[str]:
        """What follows ``anaphora`` to train the same."""
        words = ["train", self.case.task, str(self.folder / self.train), "--model", self.case.model]
        words += [] if self.dev is None else ["--valid", str(self.folder / self.dev)]
        for name, value in self.case.fields.items():
            words += [f"--{name.replace('_', '-')}", value]
        return [*words, *setting_words({**self.case.settings, **(settings or {})}), "-o", str(run)]


def setting_words(settings: Mapping[str, Any]) -> list[str]:
    """``--set KEY=VALUE`` for each."""
    values = {key: str(one).lower() if isinstance(one, bool) else one for key, one in settings.items()}
    return [word for key, value in values.items() for word in ("--set", f"{key}={value}")]


@dataclass
class Store:
    """The runs of one run of the tests, in a folder that its workers share."""

    folder: Path
    known: dict[str, tuple[Trained, State]] = field(default_factory=dict)
    asked: set[str] = field(default_factory=set)
    """The cases that the test which runs has asked for."""

    def __call__(self, name: str) -> Trained:
        return self.make(name, CASES[name])

    def make(self, name: str, case: Case) -> Trained:
        if name not in self.known:
            made = _made(case, self.folder / name)
            self.known[name] = made, _state(made.folder)
        self.asked.add(name)
        return self.known[name][0]

    def changed(self, names: Iterable[str]) -> list[str]:
        """Those cases whose folders are not as they were made."""
        return [name for name in names if _state(self.known[name][0].folder) != self.known[name][1]]


def _made(case: Case, folder: Path) -> Trained:
    folder.parent.mkdir(parents=True, exist_ok=True)
    whole = folder.with_suffix(".whole")
    with _alone(folder.with_suffix(".lock")):
        if not whole.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a worker that was ended
            folder.mkdir()
            train, dev = case.write_data(folder)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                model = Trained(case, folder, train, dev).fit(folder / "run")
            whole.write_text(json.dumps([train, dev, model.result_.metrics]))
    return Trained(case, folder, *json.loads(whole.read_text()))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Only one process at a time."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _state(folder: Path) -> State:
    """The sizes and times of all files."""
    found = ((str(path.relative_to(folder)), path.stat()) for path in folder.rglob("*"))
    return {name: (at.st_size, at.st_mtime_ns) for name, at in found}
