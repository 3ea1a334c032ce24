"""The same training with several seeds: a folder of runs, and the mean and spread of every measure.

    OUT/seeds.json      which seeds, and how each run ended
    OUT/seed-1, …       a run folder each

The dev data are those of the first run for all of them, so that the measures differ by the seed of training alone.
"""

from __future__ import annotations

import contextlib
import json
import statistics
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from anaphora.errors import AnaphoraError, RunError, SettingsError
from anaphora.files import is_folder, parse_json, read_bytes
from anaphora.files.writing import copy_files, folder_for, remove, remove_file, replace_file, writing
from anaphora.kinds.result import Result
from anaphora.settings.own import parts_of
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.teaching import has_teachers
from anaphora.training import distributed
from anaphora.training.loop import TrainingResult
from anaphora.training.run import RunFolder

if TYPE_CHECKING:
    from anaphora.tasks.estimator import Estimator
    from anaphora.training.progress import Reporter

E = TypeVar("E", bound="Estimator")
FILE = "seeds.json"
FORMAT = 1
MOST = 1000
_LARGEST = 1 << 24  # bytes


class _Written(BaseModel):
    """``seeds.json``."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    task: str
    seeds: list[int]
    labels: str = "str"
    metric: str = ""
    greater: bool = True
    ended: dict[int, dict[str, Any]] = {}


@dataclass(frozen=True)
class Ended:
    """How the run of one seed ended; ``metrics`` are the dev measures of its best weights."""

    seed: int
    run: str
    steps: int
    best: float | None
    best_step: int
    metrics: Mapping[str, float]
    stopped: str
    seconds: float


@dataclass(frozen=True)
class SeedReport(Result):
    """What several seeds came to. ``measures`` has for each dev measure its mean, its standard deviation (n − 1) and its values in the
    order of ``runs``; ``best`` is the seed whose run has the best ``metric``."""

    runs: list[Ended]
    metric: str
    best: int
    measures: Mapping[str, Mapping[str, Any]]
    left: list[int]
    """Seeds that were not trained to their end."""

    @property
    def best_run(self) -> str:
        """The folder of the best run."""
        return next(one.run for one in self.runs if one.seed == self.best)

    def __str__(self) -> str:
        rows = [f"{name} {one['mean']:.4g} ± {one['sd']:.2g}" for name, one in self.measures.items()]
        return f"{len(self.runs)} seed{'s' if len(self.runs) != 1 else ''}: {', '.join(rows)}; best: {self.best_run}"


def seeds_asked(seeds: Any, first: int) -> list[int]:
    """``3`` → first, first + 1, first + 2; a list is taken as it is. Raises a `SettingsError` for anything else."""
    if isinstance(seeds, int) and 0 < seeds <= MOST and first + seeds > 2**32:
        raise SettingsError(
            [f"seeds = {seeds} from seed = {first} on cannot be used: the last seed is {2**32 - 1}."]
        )
    if isinstance(seeds, int) and not isinstance(seeds, bool):
        chosen = list(range(first, first + seeds)) if 0 < seeds <= MOST else []
    elif isinstance(seeds, Sequence) and not isinstance(seeds, str):
        chosen = [s for s in seeds if isinstance(s, int) and not isinstance(s, bool) and 0 <= s < 2**32]
        if len(set(chosen)) != len(seeds):
            chosen = []
    else:
        chosen = []
    if not chosen or chosen[-1] >= 2**32:
        raise SettingsError(
            [
                f"seeds = {seeds!r} cannot be used: it must be a number of seeds from 1 to {MOST}, or a list of different ones."
            ]
        )
    return chosen


def seeds_of(model: Estimator, seeds: Any) -> list[int]:
    """The seeds to train ``model`` with: of a preset that is fitted without chance, which would be the same each time, the first alone,
    with a warning."""
    chosen = seeds_asked(seeds, model.settings_.seed)
    if len(chosen) > 1 and model._direct and not model.task().preset_of(model.settings_).drawn:
        warnings.warn(
            f"{model.settings_.model} is fitted without chance, so that {len(chosen)} seeds would give the same model: it is trained once",
            stacklevel=3,
        )
        return chosen[:1]
    return chosen


def is_folder_of_seeds(path: str | Path) -> bool:
    """Whether ``train --seeds`` wrote this folder."""
    return (Path(path) / FILE).is_file() and not (Path(path) / "config.json").exists()


def read_seeds(path: Path) -> _Written:
    """``seeds.json`` of a folder, or a `RunError` that says why it cannot be read."""
    file = path / FILE
    try:
        found = _Written.model_validate(
            {**(document := parse_json(read_bytes(file, most=_LARGEST, follow=False)))}
            | {"ended": {int(seed): one for seed, one in document.get("ended", {}).items()}}
        )
        if found.format != FORMAT or not found.seeds or len(set(found.seeds)) != len(found.seeds):
            raise ValueError("another format")
        for seed, one in found.ended.items():
            Ended(seed=seed, run="", **one)
    except (OSError, ValueError, TypeError, AttributeError, ValidationError):
        raise RunError(f"{file}: does not hold what `train --seeds` wrote; restore it from a copy.") from None
    return found


def _write(path: Path, written: _Written) -> None:
    with writing(path / FILE):
        replace_file(path / FILE, (json.dumps(written.model_dump(), indent=2) + "\n").encode())


@contextlib.contextmanager
def begun(model: Estimator, path: Path, seeds: list[int], *, force: bool) -> Iterator[None]:
    """A new folder of runs, with nothing of an older one in it; gone again if the block fails before any run is there."""
    _check_free(model, path, force=force)
    with folder_for(path / FILE):
        try:
            _begin(model, path, seeds)
            yield
        except BaseException:
            if not any(path.glob("seed-*")):
                remove_file(path / FILE)
            raise


def _check_free(model: Estimator, path: Path, *, force: bool) -> None:
    """An error where the folder holds anything; with ``force`` anything but an older folder of runs."""
    if distributed.join(model.settings_.device).world > 1:
        raise AnaphoraError(
            "several seeds are trained one after the other in one process; leave torchrun out, or --seeds."
        )
    if path.exists() and not path.is_dir():
        raise RunError(f"{path}: is a file, not a folder; choose another place for the runs.")
    there = path.is_dir() and any(path.iterdir())
    if there and not (force and is_folder_of_seeds(path)):
        remedy = f"continue it with `anaphora resume {path}`, " if is_folder_of_seeds(path) else ""
        over = ", or overwrite it with --force (force=True in Python)" if is_folder_of_seeds(path) else ""
        raise RunError(f"{path}: is not empty; {remedy}choose another folder{over}.")


def _begin(model: Estimator, path: Path, seeds: list[int]) -> None:
    for seed in read_seeds(path).seeds if is_folder_of_seeds(path) else ():
        old = RunFolder(path / f"seed-{seed}")
        if old.path.is_dir():
            RunFolder.create(old.path, force=True)  # refuses while another process trains there
            remove(old.path)
    labels = getattr(model, "_labels", "str")
    _write(path, _Written(format=FORMAT, task=model.command, seeds=seeds, labels=labels))


def train_next(kind: type[E], first: Recipe, path: Path, seed: int, reporter: Reporter | None) -> E:
    """Train with another ``seed`` on the data of the ``first`` run: the same rows, and the same dev data."""
    origin = RunFolder(first_run(path))
    # what it has learned, too: the first run knows how recordings are to be heard
    other = kind.from_recipe(first.with_seed(seed).with_artifacts(origin.path))
    if hasattr(other, "_labels"):
        other._labels = read_seeds(path).labels

    def opened(run: RunFolder) -> tuple[Any, Any]:
        if is_folder(origin.path / "data"):  # rows that were given from Python are kept with the run
            copy_files(origin.path / "data", run.path / "data")
        data, dev = other._reopen(run, first)
        if has_teachers(other):  # their symbols, which may be more than those of the data
            other._take_over()
        else:
            other._learn(data)
        return data, dev

    return other._fit(opened, path / f"seed-{seed}", False, reporter)


def note(path: Path, seed: int, ended: TrainingResult, seconds: float) -> None:
    """Write down how the run of a seed ended."""
    written = read_seeds(path)
    plain = {
        "steps": ended.steps,
        "best": ended.best,
        "best_step": ended.best_step,
        "metrics": {key: value for key, value in ended.metrics.items() if isinstance(value, int | float)},
        "stopped": ended.stopped,
        "seconds": round(seconds, 2),
    }
    chosen = {"metric": ended.metric, "greater": ended.greater_is_better}
    _write(path, written.model_copy(update={**chosen, "ended": {**written.ended, seed: plain}}))


def train_seeds(
    model: Estimator, path: Path, reporter: Reporter | None, first: Any
) -> tuple[Estimator, SeedReport]:
    """Train the seeds of a folder that have not ended yet; the estimator of the best run, and the report.

    ``first()`` trains the first seed. A run that was interrupted is resumed; an interrupt ends the whole.
    """
    written = read_seeds(path)
    lead: Recipe | None = None
    trained: dict[int, Estimator] = {}
    for count, seed in enumerate(written.seeds):
        if seed in written.ended and written.ended[seed]["stopped"] != "interrupted":
            continue
        folder = path / f"seed-{seed}"
        begun = time.monotonic()
        if reporter is not None:
            reporter.say(f"seed {seed}, {count + 1} of {len(written.seeds)}: {folder}")
        if (folder / "config.json").is_file():
            trained[seed] = type(model).resume(
                folder, reporter=reporter, trust=model.recipe_.trusts, **_parts(model)
            )
        elif count == 0:
            trained[seed] = first()
        else:
            if lead is None:
                lead = lead_of(model.command, path, model.recipe_.trusts, _parts(model))
            trained[seed] = train_next(type(model), lead, path, seed, reporter)
        result = trained[seed].result_
        before = written.ended.get(seed, {}).get("seconds", 0.0)
        note(path, seed, result, before + time.monotonic() - begun)
        if result.stopped == "interrupted":
            break
    found = report(path)
    best = trained.get(found.best) or type(model).load(
        found.best_run, trust=model.recipe_.trusts, **_parts(model)
    )
    return best, found


def first_run(path: Path) -> Path:
    """The first run of a folder of seeds; any other folder is itself. A `RunError` where no run had begun."""
    if not is_folder_of_seeds(path):
        return path
    folder = path / f"seed-{read_seeds(path).seeds[0]}"
    if not (folder / "config.json").is_file():
        raise RunError(f"{path}: no run had begun; train again with --force (force=True in Python).")
    return folder


def lead_of(command: str, path: Path, trust: bool, parts: Mapping[str, Any]) -> Recipe:
    """Return the recipe of the first run of a folder; raise a `RunError` where nothing was begun yet."""
    written = read_seeds(path)
    if written.task != command:
        raise RunError(f"{path}: holds runs of `{written.task}`, not of `{command}`.")
    folder = first_run(path)
    return Recipe.read(folder).with_parts(folder, parts, trust=trust, training=True)


def _parts(model: Estimator) -> dict[str, Any]:
    """The own parts of the settings, which a run folder names and does not hold."""
    places = {place.partition(".")[0] for place, part in parts_of(model.settings_).items() if part.known}
    return {key: getattr(model.settings_, key) for key in places}


def report(path: Path) -> SeedReport:
    """The mean and spread of every measure over the runs that ended."""
    written = read_seeds(path)
    runs = [
        Ended(seed=seed, run=str(path / f"seed-{seed}"), **written.ended[seed])
        for seed in written.seeds
        if seed in written.ended
    ]
    whole = [one for one in runs if one.stopped != "interrupted"]
    counted = whole or runs
    names = [name for name in counted[0].metrics if all(name in one.metrics for one in counted)]
    measures = {
        name: {
            "mean": statistics.fmean(values),
            "sd": statistics.stdev(values) if len(values) > 1 else 0.0,
            "values": values,
        }
        for name in names
        for values in [[float(one.metrics[name]) for one in counted]]
    }
    sign = 1 if written.greater else -1
    best = max(counted, key=lambda one: sign * one.best if one.best is not None else float("-inf"))
    ended = {one.seed for one in whole}
    return SeedReport(runs, written.metric, best.seed, measures, [s for s in written.seeds if s not in ended])
