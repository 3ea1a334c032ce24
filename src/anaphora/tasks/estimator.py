"""What all estimators share: settings, files, predictions in bulk, and here training and resuming.

What differs from task to task is said by each (see `Task`).
"""

from __future__ import annotations

import contextlib
import warnings
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from anaphora.data.facts import same_data
from anaphora.data.sources.report import reported, say
from anaphora.errors import RunError, SettingsError
from anaphora.files.writing import scratch_folder
from anaphora.settings.length import one_length
from anaphora.settings.own import Part
from anaphora.tasks.bulk.predicting import Predicting
from anaphora.tasks.direct import learn_directly
from anaphora.tasks.guarding import whatever_the_batch
from anaphora.tasks.intervening import Intervening
from anaphora.tasks.learning import paired
from anaphora.tasks.plan import plan_training
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.seeds import SeedReport, is_folder_of_seeds, lead_of, seeds_of, train_seeds
from anaphora.tasks.seeds import begun as begun_seeds
from anaphora.tasks.skipped import warn_of_skipped
from anaphora.tasks.stored import as_told
from anaphora.tasks.suiting.budget import suit_corpus
from anaphora.tasks.teaching import has_teachers, taken_over, taught
from anaphora.tasks.tuning import begin_weights, tuning_of
from anaphora.training import distributed
from anaphora.training.epochs import EVALUATIONS, counted
from anaphora.training.film import film_of
from anaphora.training.finalists import choose_finalist
from anaphora.training.launch import recall, remember
from anaphora.training.loop import Trainer, TrainingResult
from anaphora.training.precision import choose_device
from anaphora.training.progress import Reporter, measured
from anaphora.training.run import RunFolder
from anaphora.training.saving import checkpoint_path
from anaphora.training.showing import reporter_for

__all__ = ["Estimator", "whatever_the_batch"]


class Estimator(Intervening, Predicting):
    """Settings are keyword arguments; unknown ones are refused with a suggestion.

    After ``fit`` or ``load`` the estimator holds ``model_`` (a plain ``nn.Module``) and ``settings_``.
    """

    seeds_: SeedReport
    """What several seeds came to, after ``fit(…, seeds=3)``."""

    def fit(
        self,
        data: Any,
        y: Any | None = None,
        *,
        valid: Any | None = None,
        out: str | Path | None = None,
        force: bool = False,
        verbose: bool | None = None,
        reporter: Reporter | None = None,
        seeds: int | Sequence[int] = 1,
        **fields: str | None,
    ) -> Self:
        """Train on ``data``, or on inputs ``data`` with their targets ``y``, and keep the weights that were best on ``valid``.

        ``anaphora models`` says what data the task takes. Without ``valid``, an embedded corpus gives its dev
        split, and of other data a part is held out. ``out`` is the run folder; without it the run lives in a
        temporary folder as long as the estimator. Under ``torchrun`` every process calls this; the first one
        prepares the folder. Progress is one line on a terminal or in a notebook; ``verbose=False`` silences it, and
        ``verbose=True`` prints plain lines anywhere else. ``seeds=3`` trains three times, with ``seed`` and the two after it, into the
        runs ``out/seed-1`` …; the estimator then is the best of them, and ``seeds_`` has mean and spread of every measure. ``fields`` are ``source_field`` and ``target_field`` where data have named columns.
        """
        self._check_fields(fields)
        self._check_machine()
        # what this process gave; under torchrun all but the first one read it from the folder
        self.recipe_ = replace(self.recipe_, trusts=True)
        if y is not None:
            data = self._join(data, y)
        self._note(data, fields)
        own = reporter_for(self.settings_, verbose) if reporter is None else None
        reporter = reporter or own

        def opened(run: RunFolder) -> tuple[Any, Any]:
            with reported(str if reporter is None else reporter.tell, unless_heard=True):
                train, dev = self._open(data, valid, spill=run.path / "data", **fields)
                self._learn_or_take_over(train)
            self._check_dev_given(dev)
            return train, dev

        if seeds == 1 and not isinstance(seeds, bool):
            self._fit(opened, out, force, reporter)
            if own is not None and self._direct:  # the command prints them itself
                own.tell(measured(self.result_.metrics))
            return self
        chosen = seeds_of(self, seeds)
        place = self._folder(out)
        self._given["seed"] = chosen[0]
        self.settings_ = self.settings_.model_copy(update={"seed": chosen[0]})
        first = place / f"seed-{chosen[0]}"
        with begun_seeds(self, place, chosen, force=force):
            return self._take_best(place, reporter, lambda: self._fit(opened, first, False, reporter))

    def _take_best(self, place: Path, reporter: Reporter | None, first: Callable[[], Estimator]) -> Self:
        """Train what is left of a folder of seeds and become the best run; ``first()`` trains the first seed."""
        given = self._given
        best, self.seeds_ = train_seeds(self, place, reporter, first)
        vars(self).update({**vars(best), "seeds_": self.seeds_, "_given": given})
        return self

    def _join(self, X: Any, y: Any) -> Any:
        """What ``fit(X, y)`` is trained on."""
        return paired(X, y)

    def _note(self, data: Any, fields: Mapping[str, str | None]) -> None:
        """Look at data from Python before they are opened, which makes text of them."""

    def plan(self, data: Any, valid: Any | None = None, **fields: str | None) -> dict[str, Any]:
        """What ``fit`` would do: rows, vocabulary, parameters, steps, epochs, an estimate of memory. Trains nothing."""
        self._check_fields(fields)
        self._check_machine()
        train, dev = self._open(data, valid, spill=None, **fields)
        self._learn_or_take_over(train)
        self._check_dev_given(dev)
        facts = {"train": train.describe(), "valid": dev.describe(), "vocabulary": self._vocabulary()}
        if self._direct:
            return facts
        return facts | plan_training(self.settings_, self._fresh_model(), self._symbols(train), len(train))

    def _scored(self, data: Any, bad_rows: str | None, **fields: Any) -> Any:
        """The data that ``score`` measures on, with a warning where the model was trained on them."""
        opened = self._open_test(data, bad_rows, **fields)
        if same_data(opened.describe(), self.recipe_.trained_on):
            warnings.warn(
                "the model was trained on these data, so the measures say little about new ones; score it on others",
                stacklevel=4,
            )
        return opened

    def _check_dev_given(self, dev: Any) -> None:
        """`_check_labels` for dev data that were not held out of the training data, in which a label may be the only one of its kind."""
        if dev.describe().get("kind") != "held-out":
            self._check_labels(dev, "dev data")

    def _learn_or_take_over(self, data: Any) -> None:
        """Symbols and labels of the data, or those of the teachers that the settings name."""
        if has_teachers(self):
            self._take_over()
            self._check_labels(data, "training data", "teachers")
            suit_corpus(self, data)
            self._suit_student(data)
        else:
            suit_corpus(self, data)
            self._learn(data)

    def _take_over(self) -> None:
        """Become a student of the teachers that the settings name, before it learns."""
        recipe = taken_over(self)
        self.settings_ = recipe.settings
        self._take(recipe)

    def _suit_student(self, data: Any) -> None:
        """Choose what follows from the data for an estimator that has the symbols and labels of its teachers."""

    def _check_machine(self) -> torch.device:
        """The device of the settings; an error where it is not there, or cannot do what they ask, before anything is written."""
        return choose_device(self.settings_.device)

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
            return self._go_on(run, self._written(run), reporter)  # torchrun has restarted this very job
        with contextlib.ExitStack() as held:
            data, dev = self._ready(run, group, held, opened, force)
            self._train(run, data, dev, reporter, resume=False)
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
            held.enter_context(run.begun(force=force))
            remember("run", str(run.path.resolve()))
            data.extend(self._prepare(run, opened))

        group.on_main(prepare)
        if not group.main:
            recipe = self._written(run).with_artifacts(run.path)
            self.settings_ = recipe.settings
            self._take(recipe)
            data.extend(self._reopen(run, recipe))
        return data[0], data[1]

    def _written(self, run: RunFolder) -> Recipe:
        """Return the recipe that the first process wrote, with the own parts of this one."""
        return replace(Recipe.read(run.path).with_parts_of(self.settings_), trusts=self.recipe_.trusts)

    def _prepare(self, run: RunFolder, opened: Callable[[RunFolder], tuple[Any, Any]]) -> tuple[Any, Any]:
        """Open the data and learn from them; the folder then holds all that ``resume`` needs."""
        data, dev = opened(run)
        described = {"train": data.describe(), "valid": dev.describe()}
        trusts = self.recipe_.trusts
        self.recipe_ = Recipe(self.command, self.settings_, described, self.artifacts(), trusts)
        warn_of_skipped(described)
        self.recipe_.write(run.path)
        return data, dev

    @classmethod
    def resume(
        cls,
        run: str | Path,
        *,
        steps: int | None = None,
        epochs: float | None = None,
        checkpoint: int | None = None,
        verbose: bool | None = None,
        reporter: Reporter | None = None,
        trust: bool = False,
        force: bool = False,
        **parts: Any,
    ) -> Self:
        """Go on with a run that was interrupted; the result is that of a run that never was.

        ``steps`` or ``epochs`` makes a run longer, also one that is finished; ``config.json`` then has that number. ``checkpoint`` goes back
        to the checkpoint of that step; those after it are removed. Own parts of the run are
        given again as ``parts``, or imported by name with ``trust``; one whose source changed since is an error
        unless ``force``.
        """
        if is_folder_of_seeds(run):
            asked = {"steps": steps, "epochs": epochs, "checkpoint": checkpoint}
            return cls._resume_seeds(Path(run), asked, verbose, reporter, trust, parts)
        folder = RunFolder.open(Path(run))
        recipe = Recipe.read(folder.path)
        if not recipe.data:
            raise RunError(f"{run}: a saved model without its data; only a run folder can be resumed.")
        if checkpoint is not None:
            checkpoint_path(folder, checkpoint)  # one that is not there is a mistake already
        one_length({"steps": steps, "epochs": epochs})
        longer: dict[str, Any] = {} if steps is None else {"steps": steps, "epochs": 0.0}
        if epochs is not None:
            longer |= {"epochs": epochs, "min_steps": 0, "max_steps": 0}
        recipe = recipe.with_parts(folder.path, parts, trust=trust, training=True, force=force)
        if longer and recipe.direct:
            model = recipe.values["model"]
            raise SettingsError(
                [f"{run}: {model} is fitted in one go, so it cannot be trained longer; train it again."]
            )
        self = cls.from_recipe(recipe.with_settings(**longer))
        reporter = reporter or reporter_for(self.settings_, verbose)
        return self._go_on(folder, self.recipe_, reporter, checkpoint)

    @classmethod
    def _resume_seeds(
        cls,
        place: Path,
        asked: Mapping[str, Any],
        verbose: bool | None,
        reporter: Reporter | None,
        trust: bool,
        parts: Mapping[str, Any],
    ) -> Self:
        for key, value in asked.items():
            if value is not None:
                raise RunError(f"{place}: holds runs of several seeds; give one of them together with {key}.")
        self = cls.from_recipe(lead_of(cls.command, place, trust, parts))
        reporter = reporter or reporter_for(self.settings_, verbose)

        def first() -> Estimator:
            raise AssertionError("the first run is there")

        return self._take_best(place, reporter, first)

    def _go_on(
        self, folder: RunFolder, recipe: Recipe, reporter: Reporter | None, checkpoint: int | None = None
    ) -> Self:
        folder.check_learnt()
        with as_told(folder.path / folder.learnt_names()[0]):
            self._take(recipe.with_artifacts(folder.path))
        group = distributed.join(self.settings_.device)
        with contextlib.ExitStack() as held:
            group.on_main(lambda: held.enter_context(folder.lock()))
            with as_told(folder.config):
                data, dev = self._reopen(folder, recipe)
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
            run.write("README.md", self._card(Recipe.read(run.path)))
        group.barrier()
        self._take_weights(run, run.load_model()[0], group.device)
        self.recipe_ = replace(self.recipe_, settings=self.settings_, artifacts=self.artifacts())

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
        if resume:
            self._check_sizes(run)
        self.model_ = self._fresh_model()
        begin_weights(self, run, resume=resume)
        objective, batches = self._counted(run, data, dev)
        objective = taught(self, objective)
        tuning = tuning_of(self, run, batches, resume=resume)
        film = film_of(run, self.settings_)
        trainer = Trainer(self.model_, objective, batches, self.settings_, run, reporter, tuning, film)
        if resume:
            reached = trainer.resume(checkpoint)
            trainer.group.on_main(lambda: self._record_length(run, reached))
        return self._after_steps(run, dev, choose_finalist(run, self.model_, trainer, trainer.run()))

    def _after_steps(self, run: RunFolder, dev: Any, result: TrainingResult) -> TrainingResult:
        """What a task does once the weights are chosen, such as setting a threshold by the dev data; by default nothing."""
        return result

    def _counted(self, run: RunFolder, data: Any, dev: Any) -> tuple[Any, Any]:
        """What is minimised and its batches, with settings that say how many steps the epochs are, and what else follows from
        the data."""
        before = self.settings_
        objective, batches = self._objective_and_batches(data, dev)
        often = getattr(objective, "evaluations", EVALUATIONS)
        settings = counted(self.settings_, batches, evaluations=often)
        if settings == before:
            return objective, batches
        if settings.warmup != before.warmup:
            say(f"assumed, for {settings.steps:,} steps: warmup={settings.warmup}")
        self.settings_ = settings
        self.recipe_ = replace(self.recipe_, settings=settings)
        if not run.has_checkpoints():
            distributed.join(settings.device).on_main(lambda: self.recipe_.write_config(run.path))
        return self._objective_and_batches(data, dev)  # an objective may depend on the number of steps

    def _first_weights(self) -> dict[str, Tensor]:
        """What `_inherited` gives; an own model begins as it was made."""
        return {} if isinstance(self.settings_.model, Part) else self._inherited()

    def _record_length(self, run: RunFolder, reached: int) -> None:
        """Write into ``config.json`` that ``resume`` got another number of steps."""
        before, now = Recipe.read(run.path), replace(self.recipe_, settings=self.settings_)
        if now.to_json() == before.to_json():
            return
        if self.settings_.steps <= reached and self.settings_.steps != before.settings.steps:  # type: ignore[attr-defined]
            raise RunError(
                f"{run.path}: has trained for {reached} steps already, so nothing is left to do up to step {self.settings_.steps}; "
                "give a larger number."
            )
        now.write_config(run.path)

    def _folder(self, out: str | Path | None) -> Path:
        if out is not None:
            return Path(out)
        temporary = scratch_folder()
        weakref.finalize(self, temporary.cleanup)
        return Path(temporary.name) / "run"
