"""``an.fit``: the training loop for any ``nn.Module``, without a task."""

from __future__ import annotations

import contextlib
import json
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anaphora._version import __version__
from anaphora.errors import DataError, RunError, SettingsError
from anaphora.files import parse_json
from anaphora.files.writing import scratch_folder
from anaphora.settings import TrainingSettings, build
from anaphora.settings.length import one_length
from anaphora.settings.own import parts_of
from anaphora.training import distributed
from anaphora.training.epochs import counted
from anaphora.training.film import film_of
from anaphora.training.finalists import choose_finalist
from anaphora.training.loop import Trainer, TrainingResult
from anaphora.training.objective import LossSum
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import derive, seed_everything
from anaphora.training.showing import reporter_for

Loss = nn.Module | Callable[[nn.Module, Any], Any]


def fit(
    module: nn.Module,
    loss: Loss,
    batches: Iterable[Any],
    *,
    steps: int | None = None,
    epochs: float | None = None,
    out: str | Path | None = None,
    valid: Iterable[Any] | None = None,
    evaluate: Callable[[nn.Module], Mapping[str, float]] | None = None,
    metric: str = "-loss",
    resume: bool = False,
    force: bool = False,
    verbose: bool | None = None,
    reporter: Reporter | None = None,
    **settings: Any,
) -> TrainingResult:
    """Train any module: checkpoints, bit-exact resume, precision, torchrun, health and progress, in one call.

        model = nn.GRU(8, 16, batch_first=True)
        an.fit(model, lambda m, x: m(x)[0].square().mean(), batches, steps=1000, out="runs/mine")

    Args:
        module: what is trained; it holds the best weights in the end, and so does ``out/model.safetensors``.
        loss: loss(module, batch), the mean over the batch or one number per row ``(rows,)``; or a torch loss such as
            ``nn.CrossEntropyLoss()``, which gets ``(module(x), y)`` of batches that are pairs.
        batches: a list, a DataLoader or any object whose ``__iter__`` starts again, with tensors ``(rows, …)``. A generator
            is read once, and ``resume`` needs one that gives the same batches from the beginning.
        steps, epochs: how long; 1000 steps if neither is given.
        out: the run folder; None keeps none.
        valid, evaluate: batches whose ``loss`` is measured, and a function evaluate(module) that returns measures by name.
        metric: the measure by which weights are best, with a minus where less is better; without measures the last are kept.
        resume, force: go on with the run that is in ``out``, or replace it.
        verbose, reporter: about progress, as in ``fit`` of an estimator; what gets it instead of the terminal.
        settings: those of training: lr, optimizer, schedule, clip, precision, callbacks …

    Raises a `SettingsError` for a mistaken setting, a `RunError` where ``out`` holds another run, a `DataError` where the
    batches end before ``steps``.

    >>> x = torch.linspace(0, 1, 16)[:, None]
    >>> model = torch.nn.Linear(1, 1)
    >>> done = an.fit(model, torch.nn.MSELoss(), [(x, 2 * x + 1)], steps=300, lr=0.1, schedule="constant", warmup=0)
    >>> bool((model(x) - (2 * x + 1)).abs().max() < 0.1)
    True
    """
    complete = _complete(steps, epochs, settings)
    stream = _Stream(batches, complete.seed)
    complete = counted(complete, stream)
    reporter = reporter or reporter_for(complete, verbose)
    for key, part in parts_of(complete).items():
        part.bring(where=f"{key} = ")
    group = distributed.join(complete.device)
    objective = _Objective(loss, valid, evaluate, metric)
    with _run_folder(out, group) as run:
        with contextlib.ExitStack() as held:
            going_on = resume and run.exists()
            group.on_main(lambda: _prepare(run, held, complete, force=force, going_on=going_on))
            film = film_of(run, complete)
            trainer = Trainer(module, objective, stream, complete, run, reporter, film=film)
            if going_on:
                trainer.resume()
            result = choose_finalist(run, module, trainer, trainer.run())
        group.barrier()
        module.load_state_dict(run.load_model(group.device)[0])
        module.eval()
        return result


@contextlib.contextmanager
def _run_folder(out: str | Path | None, group: distributed.Group) -> Iterator[RunFolder]:
    """The run folder ``out``, the same for all processes; without ``out`` a temporary one, removed in the end."""
    with contextlib.ExitStack() as scratch:
        place = Path(out if out is not None else scratch.enter_context(scratch_folder()) + "/run")
        yield RunFolder(group.share(place if group.main else Path()))


def _complete(steps: int | None, epochs: float | None, settings: Mapping[str, Any]) -> TrainingSettings:
    """All settings of a training, checked one by one and beside each other."""
    one_length({"steps": steps, "epochs": epochs})
    length = {"steps": 1000 if steps is None else steps, "epochs": epochs or 0}
    implied = TrainingSettings.implied(settings)
    complete = build(TrainingSettings, {**length, **implied, **settings}, owner="fit")
    if useless := [
        f"{name} has no effect on fit: {_USELESS[name]}." for name in settings if name in _USELESS
    ]:
        raise SettingsError(useless)
    if problem := TrainingSettings.problem(complete):
        raise SettingsError([f"{problem}."])
    return complete


_USELESS = {
    "metrics": "they compare answers with the truth, which it does not see; return your measures from evaluate(module)",
    "batch_tokens": "batches are as large as those that you give",
    "batch_invariant": "it is about the answers of an estimator",
}
"""Settings of training that mean something to the tasks alone, and what to do instead."""


def _prepare(
    run: RunFolder, held: contextlib.ExitStack, settings: TrainingSettings, *, force: bool, going_on: bool
) -> None:
    if not going_on and run.exists() and not force:
        raise RunError(
            f"{run.path}: already holds a run; go on with it (resume=True) or replace it (force=True)."
        )
    held.enter_context(run.lock() if going_on else run.begun(force=force))
    document = {
        "format": 1,
        "anaphora": __version__,
        "task": "fit",
        "settings": settings.model_dump(mode="json"),
        "parts": {key: part.sha256 for key, part in parts_of(settings).items()},
    }
    if going_on:
        _check_parts(run, document["parts"], force=force)
    run.write("config.json", json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def _check_parts(run: RunFolder, parts: Any, *, force: bool) -> None:
    try:
        before = parse_json(run.read_text("config.json")).get("parts", {})
    except (ValueError, AttributeError) as error:
        raise RunError(f"{run.config} cannot be read ({error}); restore it from a copy of the run.") from None
    changed = [key for key, now in parts.items() if now and before.get(key) and now != before[key]]
    if changed and not force:
        raise RunError(
            f"{run.path}: the source of {', '.join(changed)} has changed since training; put it back, or pass force=True."
        )


@dataclass(frozen=True)
class _Rows:
    """A batch of any nesting of tensors, by rows."""

    value: Any
    rows: int

    def __len__(self) -> int:
        return self.rows

    @property
    def symbols(self) -> int:
        return self.rows

    def shard(self, index: int, of: int) -> _Rows:
        if of == 1:
            return self
        part = _each(self.value, lambda tensor: tensor[index::of])
        return _Rows(part, len(range(index, self.rows, of)))


def _each(value: Any, change: Callable[[Tensor], Tensor]) -> Any:
    """``value`` with every tensor in it changed."""
    if isinstance(value, Tensor):
        return change(value)
    if isinstance(value, dict):
        return {key: _each(one, change) for key, one in value.items()}
    if isinstance(value, tuple | list):
        changed = [_each(one, change) for one in value]
        return type(value)(*changed) if hasattr(value, "_fields") else type(value)(changed)
    return value


def _tensors(value: Any) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, dict | tuple | list):
        for one in value.values() if isinstance(value, dict) else value:
            yield from _tensors(one)


def _as_rows(value: Any) -> _Rows:
    tensors = [tensor for tensor in _tensors(value) if tensor.dim()]
    if not tensors:
        raise DataError(
            f"batches: a batch is a {type(value).__name__} without tensors; give tensors (rows, …)."
        )
    return _Rows(value, len(tensors[0]))


class _Stream:
    """The batches again and again, with a place that can be found again: the epoch, and how many of it were served.

    A fingerprint of the last batch tells whether a source that was started again gives the same batches.
    """

    def __init__(self, source: Iterable[Any], seed: int):
        self._source, self._seed = source, seed
        self.epoch, self._served, self._mark = 0, 0, 0
        self._once = isinstance(source, Iterator)
        self._now: Iterator[Any] | None = None
        if self._once:
            warnings.warn(
                "batches is a generator, which nothing can start again: it is gone through once, and resume needs one "
                "that gives the same batches again",
                stacklevel=3,
            )

    def __next__(self) -> _Rows:
        batch = self._next()
        self._mark = _fingerprint(batch.value)
        return batch

    def _next(self) -> _Rows:
        if self._now is None:
            self._now = self._begin()
        # whatever is drawn at random on the way follows from the place, not from what was computed before
        seed_everything(self._seed, "batches", self.epoch, self._served)
        try:
            value = next(self._now)
        except StopIteration:
            if self._once:
                raise DataError(
                    f"batches ended after {self._served} steps; give more, or fewer steps."
                ) from None
            if not self._served:
                raise DataError("batches is empty; give at least one batch.") from None
            self.epoch, self._served = self.epoch + 1, 0
            self._now = self._begin()
            return self._next()
        self._served += 1
        return _as_rows(value)

    def _begin(self) -> Iterator[Any]:
        """An epoch's batches, shuffled as the seed and the epoch say."""
        seed_everything(self._seed, "batches", self.epoch)
        generator = getattr(self._source, "generator", None)
        if isinstance(generator, torch.Generator):
            generator.manual_seed(derive(self._seed, "batches", self.epoch))
        sampler = getattr(self._source, "sampler", None)
        if callable(getattr(sampler, "set_epoch", None)):
            sampler.set_epoch(self.epoch)  # type: ignore[union-attr]
        return iter(self._source)

    def per_epoch(self) -> int:
        """How many batches there are, as ``len`` says."""
        try:
            return len(self._source)  # type: ignore[arg-type]
        except TypeError:
            raise SettingsError(
                [
                    "epochs cannot be counted: batches does not say how many there are (len); give steps instead."
                ]
            ) from None

    def state(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "served": self._served, "mark": self._mark}

    def restore(self, state: dict[str, Any]) -> None:
        if self._now is not None and self._once:
            raise RunError("batches is a generator that was begun already; give a fresh one.")
        self.epoch, self._served, self._now = int(state["epoch"]), 0, None
        last: _Rows | None = None
        for _ in range(int(state["served"])):
            last = self._next()
        if last is not None and _fingerprint(last.value) != state["mark"]:
            raise RunError(
                "batches gives other batches than before, so the run would not go on as it began; give the same, in the "
                "same order, or train again."
            )
        self._mark = int(state["mark"])


def _fingerprint(value: Any) -> int:
    """A number that differs for other batches: of the bytes of the first and last rows of every tensor."""
    mark = 0
    for tensor in _tensors(value):
        ends = tensor.detach()[[0, -1]] if tensor.dim() and len(tensor) else tensor.detach()
        mark = zlib.crc32(ends.cpu().contiguous().view(-1).view(torch.uint8).numpy().tobytes(), mark)
        mark = zlib.crc32(str(tuple(tensor.shape)).encode(), mark)
    return mark


class _Objective:
    """The user's loss and evaluation, as the loop asks for them."""

    chance = None

    def __init__(
        self,
        loss: Loss,
        valid: Iterable[Any] | None,
        evaluate: Callable[[nn.Module], Mapping[str, float]] | None,
        metric: str,
    ):
        self._loss, self._valid, self._evaluate = loss, valid, evaluate
        if isinstance(valid, Iterator):
            raise DataError("valid is a generator, but it is read at every evaluation; give a list.")
        self.metric, self.greater_is_better = metric.removeprefix("-"), not metric.startswith("-")

    def loss(self, model: nn.Module, batch: _Rows) -> LossSum:
        device = next(model.parameters()).device
        value = _each(batch.value, lambda tensor: tensor.to(device))
        if isinstance(self._loss, nn.Module):
            if not isinstance(value, tuple | list) or len(value) != 2:
                raise DataError(
                    "a torch loss needs batches that are pairs (x, y); else give loss(module, batch)."
                )
            found = self._loss(model(value[0]), value[1])
        else:
            found = self._loss(model, value)
        if not isinstance(found, Tensor) or found.shape not in ((), (batch.rows,)):
            got = tuple(found.shape) if isinstance(found, Tensor) else type(found).__name__
            raise SettingsError(
                [f"loss must give one number, or one per row ({batch.rows},), but gave {got}."]
            )
        return LossSum(found.float().sum() if found.dim() else found.float() * batch.rows, batch.rows)

    @torch.no_grad()
    def evaluate(self, model: nn.Module) -> dict[str, float]:
        found: dict[str, float] = {}
        if self._valid is not None:
            total, count = 0.0, 0
            for value in self._valid:
                part = self.loss(model, _as_rows(value))
                total, count = total + float(part.total), count + int(part.count)
            found["loss"] = total / max(count, 1)
        if self._evaluate is not None:
            found |= {name: float(value) for name, value in self._evaluate(model).items()}
        if found and self.metric not in found:
            raise SettingsError([f"metric = {self.metric!r} is not measured; there are {', '.join(found)}."])
        return found

    def samples(self, model: nn.Module) -> list[dict[str, str]]:
        return []
