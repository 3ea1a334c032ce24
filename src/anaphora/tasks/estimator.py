"""What all estimators share: settings in the manner of scikit-learn, and the life of a run.

What differs from task to task is said by each (see `Task`); training, resuming, saving and loading are written here,
once.
"""

from __future__ import annotations

import contextlib
import inspect
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, cast

import torch
from torch import Tensor, nn

from anaphora.errors import AnaphoraError, DataError, RunError, SettingsError
from anaphora.kernels.invariant import batch_invariant
from anaphora.kernels.toolchain.driver import check_kernels
from anaphora.settings.own import Part
from anaphora.tasks import signatures
from anaphora.tasks.card import model_card
from anaphora.tasks.config import RunConfig, read_config
from anaphora.tasks.direct import learn_directly
from anaphora.tasks.given import NotFiniteError
from anaphora.tasks.learning import paired, sklearn_tags
from anaphora.tasks.own import brought_back, settled
from anaphora.tasks.plan import plan_training
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve
from anaphora.tasks.result import html_table
from anaphora.tasks.skipped import warn_of_skipped
from anaphora.tasks.task import Task
from anaphora.training import distributed
from anaphora.training.launch import recall, remember
from anaphora.training.loop import Trainer, TrainingResult
from anaphora.training.precision import choose_device
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.saving import checkpoint_path, weights_of
from anaphora.training.weights import first_not_finite, mismatch, save_weights, snapshot

Method = TypeVar("Method", bound=Callable[..., Any])


def whatever_the_batch(method: Method) -> Method:
    """A method of an estimator whose outputs do not depend on the batch, on a GPU either: the setting ``batch_invariant``.

    Not for generators: what their caller does in between would run in the same mode.
    """

    @wraps(method)
    def wrapped(self: Any, *args: Any, **kwargs: Any) -> Any:
        model = getattr(self, "model_", None)
        weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
        if weight is None:
            return method(self, *args, **kwargs)
        with batch_invariant(weight.device, self.settings_.batch_invariant):
            return method(self, *args, **kwargs)

    return cast("Method", wrapped)


ANSWERS = {
    "predict",
    "predict_proba",
    "probe",
    "rank",
    "read",
    "respond",
    "sample",
    "score",
    "search",
    "tag",
    "transcribe",
}


class Estimator(Task):
    """Settings are keyword arguments; unknown ones are refused with a suggestion.

    After ``fit`` or ``load`` the estimator holds ``model_`` (a plain ``nn.Module``) and ``settings_``.
    """

    __signature__: ClassVar[inspect.Signature]
    result_: TrainingResult
    _trained_with: Any
    _trained_on: Mapping[str, Any]
    """What the training data said of themselves: which column was the input, for one."""

    def __init_subclass__(cls, **options: Any) -> None:
        """No task gives out an answer of a GPU kernel that gave up: each is checked first."""
        super().__init_subclass__(**options)
        for name in ANSWERS & vars(cls).keys():
            setattr(cls, name, _checked(vars(cls)[name]))
        if "command" in vars(cls):  # the help and the signature of a task are those of its settings
            task = TASKS[cls.command]
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{signatures.describe(task)}\n"
            cls.__signature__ = signatures.signature(task)

    def __init__(self, model: Any = None, **settings: Any):
        given = dict(settings) if model is None else {"model": model, **settings}
        self._given: dict[str, Any]
        self.settings_: Any
        self._given, self.settings_ = settled(self.task(), given)
        self._trained_on = {}

    @classmethod
    def task(cls) -> TaskInfo:
        """What the registry knows of the task: its command, settings and presets."""
        return TASKS[cls.command]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting that means something to the preset, with its value, as scikit-learn's tools expect."""
        return meaningful(self.task(), self.settings_)

    def set_params(self, **settings: Any) -> Self:
        """Change settings; the preset's defaults apply anew where nothing was given."""
        self._given, self.settings_ = settled(self.task(), {**self._given, **settings})
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self._given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        return sklearn_tags(self._estimator_type)

    _estimator_type: ClassVar[str] = ""
    """``classifier`` or ``regressor``, as scikit-learn's tools ask."""

    def _repr_html_(self) -> str:
        """A table for a notebook: the settings that were given, and what training came to."""
        facts: dict[str, Any] = {**self._given, "model": self.settings_.model}
        if hasattr(self, "model_"):
            facts |= {"parameters": self._parameters(), **self._vocabulary()}
        if hasattr(self, "result_"):
            facts |= {"steps": self.result_.steps, **{f"dev {k}": v for k, v in self.result_.metrics.items()}}
        return html_table(facts, type(self).__name__)

    def __repr__(self) -> str:
        """The settings that differ from the preset's own, as a call that makes the same estimator."""
        name = self._given.get("model")
        usual = meaningful(self.task(), resolve(self.task(), {} if name is None else {"model": name}))
        changed = {
            key: value
            for key, value in self._given.items()
            if key == "model" or usual.get(key, value) != value
        }
        return f"{type(self).__name__}({', '.join(f'{key}={value!r}' for key, value in changed.items())})"

    def _weights(self) -> dict[str, Tensor]:
        """What ``model.safetensors`` holds."""
        return snapshot(self.model_)

    def _rebuild(self, tensors: dict[str, Tensor], device: torch.device) -> None:
        """Make ``model_`` again of ``_weights``; a RuntimeError where they are another model's."""
        self.model_ = self._fresh_model()
        if odd := mismatch(self.model_.state_dict(), tensors):  # torch would take int8 for floats silently
            raise RuntimeError(odd)
        self.model_.load_state_dict(tensors)
        self.model_.to(device).eval()

    @property
    def _direct(self) -> bool:
        return self.task().preset_of(self.settings_).direct

    # ------------------------------------------------------------------ training

    def fit(
        self,
        data: Any,
        y: Any | None = None,
        *,
        valid: Any | None = None,
        out: str | Path | None = None,
        force: bool = False,
        reporter: Reporter | None = None,
        **fields: str | None,
    ) -> Self:
        """Train on ``data``, or on inputs ``data`` with their targets ``y``, and keep the weights that were best on ``valid``.

        ``anaphora models`` says what data the task takes. Without ``valid``, an embedded corpus gives its dev
        split, and of other data a part is held out. ``out`` is the run folder; without it the run lives in a
        temporary folder as long as the estimator. Under ``torchrun`` every process calls this; the first one
        prepares the folder. ``fields`` are ``source_field`` and ``target_field`` where data have named columns.
        """
        self._check_fields(fields)
        self.trusts = (
            True  # what this process gave; under torchrun all but the first one read it from the folder
        )
        if y is not None:
            data = self._join(data, y)
        self._note(data, fields)

        def opened(run: RunFolder) -> tuple[Any, Any]:
            train, dev = self._open(data, valid, spill=run.path / "data", **fields)
            self._learn(train)
            return train, dev

        return self._fit(opened, out, force, reporter)

    def _join(self, X: Any, y: Any) -> Any:
        """What ``fit(X, y)`` is trained on."""
        return paired(X, y)

    def _note(self, data: Any, fields: Mapping[str, str | None]) -> None:
        """Look at data from Python before they are opened, which makes text of them."""

    def plan(self, data: Any, valid: Any | None = None, **fields: str | None) -> dict[str, Any]:
        """What ``fit`` would do: rows, vocabulary, parameters, steps, epochs, an estimate of memory. Trains nothing."""
        self._check_fields(fields)
        choose_device(self.settings_.device)  # a device that is not there is a mistake already
        train, dev = self._open(data, valid, spill=None, **fields)
        self._learn(train)
        facts = {"train": train.describe(), "valid": dev.describe(), "vocabulary": self._vocabulary()}
        if self._direct:
            return facts
        return facts | plan_training(self.settings_, self._fresh_model(), self._symbols(train), len(train))

    def _check_fields(self, fields: Mapping[str, Any]) -> None:
        task = self.task()
        for key in fields.keys() - set(task.fields):
            takes = f"; it takes {', '.join(task.fields)}" if task.fields else ""
            raise SettingsError([f"{key} is not a field of the data of {task.name}{takes}."])

    def _fit(
        self,
        opened: Callable[[RunFolder], tuple[Any, Any]],
        out: str | Path | None,
        force: bool,
        reporter: Reporter | None,
    ) -> Self:
        """Train on what ``opened(run)`` opens and learns from. Under torchrun rank 0 prepares the folder."""
        group = distributed.join(self.settings_.device)
        run = RunFolder(group.share(self._folder(out) if group.main else Path()))
        if group.share(group.main and run.config.is_file() and recall("run") == str(run.path.resolve())):
            return self._go_on(run, read_config(run.path), reporter)  # torchrun has restarted this very job
        existed = run.path.exists()
        try:
            with contextlib.ExitStack() as held:
                data, dev = self._ready(run, group, held, opened, force)
                self._train(run, data, dev, reporter, resume=False)
        except BaseException:
            if group.main and not existed:
                with contextlib.suppress(OSError):
                    run.path.rmdir()  # succeeds only where nothing was written yet
            raise
        return self

    def _ready(
        self,
        run: RunFolder,
        group: distributed.Group,
        held: contextlib.ExitStack,
        opened: Callable[[RunFolder], tuple[Any, Any]],
        force: bool,
    ) -> tuple[Any, Any]:
        """The data, in every process; the folder, locked and filled by the first one."""
        data: list[Any] = []

        def prepare() -> None:
            RunFolder.create(run.path, force=force)
            remember("run", str(run.path.resolve()))
            held.enter_context(run.lock())
            data.extend(self._prepare(run, opened))

        group.on_main(prepare)
        if not group.main:
            self._read_learnt(run)
            data.extend(self._reopen(run, read_config(run.path)))
        return data[0], data[1]

    def _prepare(self, run: RunFolder, opened: Callable[[RunFolder], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Open the data and learn from them; the folder then holds all that ``resume`` needs."""
        try:
            data, dev = opened(run)
        except BaseException:
            shutil.rmtree(run.path / "data", ignore_errors=True)  # so that the next try finds an empty folder
            raise
        self._write_learnt(run)
        config = RunConfig(self.task(), self.settings_, {"train": data.describe(), "valid": dev.describe()})
        self._trained_on = config.data["train"]
        warn_of_skipped(config.data)
        run.write_text("config.json", config.to_json())
        return data, dev

    @classmethod
    def resume(
        cls,
        run: str | Path,
        *,
        steps: int | None = None,
        checkpoint: int | None = None,
        reporter: Reporter | None = None,
        trust: bool = False,
        force: bool = False,
        **parts: Any,
    ) -> Self:
        """Go on with a run that was interrupted; the result is that of a run that never was.

        ``steps`` makes a run longer, also one that is finished; ``config.json`` then has that number. ``checkpoint`` goes back
        to the checkpoint of that step; those after it are removed. Own parts of the run are
        given again as ``parts``, or imported by name with ``trust``; one whose source changed since is an error
        unless ``force``.
        """
        folder = RunFolder.open(Path(run))
        config = read_config(folder.path)
        if not config.data:
            raise RunError(f"{run}: a saved model without its data; only a run folder can be resumed.")
        if checkpoint is not None:
            checkpoint_path(folder, checkpoint)  # one that is not there is a mistake already
        longer = {} if steps is None else {"steps": steps}
        back = brought_back(config, folder.path, parts, trust=trust, training=True, force=force)
        self = cls(**{**back, **longer})
        self.trusts = trust
        return self._go_on(folder, config, reporter, checkpoint)

    def _go_on(
        self, folder: RunFolder, config: RunConfig, reporter: Reporter | None, checkpoint: int | None = None
    ) -> Self:
        folder.check_learnt()
        with _as_told(folder.path / folder.learnt_names()[0]):
            self._read_learnt(folder)
        group = distributed.join(self.settings_.device)
        with contextlib.ExitStack() as held:
            group.on_main(lambda: held.enter_context(folder.lock()))
            with _as_told(folder.config):
                data, dev = self._reopen(folder, config)
            self._train(folder, data, dev, reporter, resume=True, checkpoint=checkpoint)
        return self

    def _train(
        self,
        run: RunFolder,
        data: Any,
        dev: Any,
        reporter: Reporter | None,
        *,
        resume: bool,
        checkpoint: int | None = None,
    ) -> None:
        group = distributed.join(self.settings_.device)
        if self._direct:
            self.result_ = group.on_main(lambda: learn_directly(self, run, data, dev, reporter))
        else:
            self.result_ = self._train_by_steps(
                run, data, dev, reporter, resume=resume, checkpoint=checkpoint
            )
        if group.main:
            run.write_text("README.md", self._card(read_config(run.path)))
        group.barrier()
        self._take_weights(run, run.load_model()[0], group.device)
        self._trained_with = self.settings_

    def _train_by_steps(
        self,
        run: RunFolder,
        data: Any,
        dev: Any,
        reporter: Reporter | None,
        *,
        resume: bool,
        checkpoint: int | None,
    ) -> TrainingResult:
        self.model_ = self._fresh_model()
        if not (resume and run.has_checkpoints()):
            self.model_.load_state_dict({**snapshot(self.model_), **self._first_weights()})
        objective, batches = self._lesson(data, dev)
        trainer = Trainer(self.model_, objective, batches, self.settings_, run, reporter)
        if resume:
            reached = trainer.resume(checkpoint)
            trainer.group.on_main(lambda: self._record_length(run, reached))
        return trainer.run()

    def _first_weights(self) -> dict[str, Tensor]:
        """What `_inherited` gives; an own model begins as it was made."""
        return {} if isinstance(self.settings_.model, Part) else self._inherited()

    def _record_length(self, run: RunFolder, reached: int) -> None:
        """Write into ``config.json`` that ``resume`` was asked for another number of steps."""
        config = read_config(run.path)
        now = RunConfig(config.task, self.settings_, config.data)
        if now == config and now.parts == config.parts:
            return
        if self.settings_.steps <= reached and self.settings_.steps != config.settings.steps:  # type: ignore[attr-defined]
            raise RunError(f"{run.path}: has trained for {reached} steps already; ask for more than that.")
        run.write_text("config.json", now.to_json())

    def _folder(self, out: str | Path | None) -> Path:
        if out is not None:
            return Path(out)
        temporary = tempfile.mkdtemp(prefix="anaphora-")
        weakref.finalize(self, shutil.rmtree, temporary, ignore_errors=True)
        return Path(temporary) / "run"

    # ------------------------------------------------------------------ files

    def save(self, folder: str | Path, *, force: bool = False) -> None:
        """Write the model alone (no data, no checkpoints) to a folder that ``an.load`` reads."""
        self._check_trained()
        run = RunFolder.create(Path(folder), force=force)
        self._write_learnt(run)
        searched = [key for key in self.task().predicting.model_fields if hasattr(self.settings_, key)]
        searching = {key: getattr(self.settings_, key) for key in searched}
        # set_params may have changed the others since, which says nothing about these weights
        config = RunConfig(self.task(), self._trained_with.model_copy(update=searching))
        run.write_text("config.json", config.to_json())
        step = self.result_.best_step if hasattr(self, "result_") else None
        facts = {"step": step, "chosen": "saved", "files": run.fingerprints()}
        save_weights(run.model, self._weights(), facts=facts)
        run.write_text("README.md", self._card(config))

    @classmethod
    def load(
        cls,
        folder: str | Path,
        *,
        device: str = "auto",
        checkpoint: int | None = None,
        trust: bool = False,
        **parts: Any,
    ) -> Self:
        """The trained estimator of this task in ``folder``; ``an.load`` finds the task by itself.

            m = an.Classifier.load("runs/reviews")

        ``trust`` and ``parts`` are about own parts, as in `an.load`. Raises a `RunError` where the folder holds no run,
        a damaged one, or one of another task.
        """
        path = Path(folder)
        config = read_config(path)
        if config.task.command != cls.command:
            raise RunError(
                f"{folder}: holds a {config.task.name}, not a {cls.__name__}; use an.load, or an.{config.task.name}.load."
            )
        return cls.from_folder(path, config, device=device, checkpoint=checkpoint, trust=trust, parts=parts)

    @classmethod
    def from_folder(
        cls,
        folder: Path,
        config: RunConfig,
        *,
        device: str = "auto",
        checkpoint: int | None = None,
        trust: bool = False,
        parts: Mapping[str, Any] | None = None,
    ) -> Self:
        """The trained estimator in a run folder; ``an.load`` calls this."""
        self = cls(**brought_back(config, folder, parts or {}, trust=trust, training=False))
        self.trusts = trust
        run = RunFolder(folder)
        # first the weights: that verifies the files the rest is built from
        tensors = run.load_model()[0] if checkpoint is None else weights_of(run, checkpoint)
        with _as_told(run.path / run.learnt_names()[0]):
            self._read_learnt(run)
        self._take_weights(run, tensors, choose_device(device))
        self._trained_with, self._trained_on = self.settings_, config.data.get("train", {})
        return self

    def _take_weights(self, run: RunFolder, tensors: dict[str, Tensor], device: torch.device) -> None:
        broken = first_not_finite(tensors)
        if broken is not None:
            raise RunError(f"{run.model}: the weights {broken} are not finite numbers; use another copy.")
        try:
            self._rebuild(tensors, device)
        except (RuntimeError, LookupError, TypeError, ValueError, AttributeError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0][:200]
            raise RunError(
                f"{run.model}: holds the weights of another model ({reason}); restore the whole folder."
            ) from None

    def _check_trained(self) -> None:
        if not hasattr(self, "model_"):
            name = type(self).__name__
            raise AnaphoraError(f"this {name} has not been trained: call fit(…) first, or an.load(RUN).")

    def _card(self, config: RunConfig) -> str:
        return model_card(
            config,
            parameters=self._parameters(),
            vocabulary=self._vocabulary(),
            result=getattr(self, "result_", None),
        )

    def _parameters(self) -> int:
        """How many numbers were learnt."""
        if isinstance(self.model_, nn.Module):
            return sum(weight.numel() for weight in self.model_.parameters())
        return sum(weight.numel() for weight in self._weights().values())


def _checked(method: Callable[..., Any]) -> Callable[..., Any]:
    """``method``, with `check_kernels` before its result, or each item of an iterator, is returned."""

    def one_by_one(items: Iterator[Any]) -> Iterator[Any]:
        done = 0
        try:
            for item in items:
                check_kernels()
                yield item
                done += 1
        except NotFiniteError as error:  # it counts within a batch
            if not done:
                raise
            raise DataError(f"after line {done}: {error}") from None

    @wraps(method)
    def checked(*given: Any, **options: Any) -> Any:
        result = method(*given, **options)
        if isinstance(result, Iterator):
            return one_by_one(result)
        check_kernels()
        return result

    return checked


@contextlib.contextmanager
def _as_told(file: Path) -> Iterator[None]:
    """While a run is made again from what ``file`` says, nonsense in it is a damaged file and no fault of ours."""
    try:
        yield
    except (TypeError, ValueError, LookupError, AttributeError) as error:
        raise RunError(
            f"{file}: does not hold what a run wrote; restore it from a copy of the run."
        ) from error
