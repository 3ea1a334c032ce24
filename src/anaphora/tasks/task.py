"""What a task says of itself, from which `Estimator` makes training, resuming, saving and loading; and its settings, in the
manner of scikit-learn."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from torch import Tensor, nn

from anaphora.errors import DataError
from anaphora.kinds.measures.judged import Judged
from anaphora.settings.length import one_length
from anaphora.tasks import signatures
from anaphora.tasks.artifacts import ARTIFACTS
from anaphora.tasks.guarding import ANSWERS, kernels_checked
from anaphora.tasks.learning import sklearn_tags
from anaphora.tasks.own import settled
from anaphora.tasks.recipe import Recipe
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve
from anaphora.training.loop import TrainingResult
from anaphora.training.objective import Batches, Objective
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder


class Task(ABC):
    """How data are opened, what is learned besides weights (a tokenizer, say), which model the settings name, what is
    minimised, and how inputs are looked at."""

    command: ClassVar[str]
    embeds_inputs: ClassVar[bool] = False
    """Whether ``probe_embeddings`` takes inputs: the view embeddings then shows the run's dev inputs, not symbols."""
    separate: ClassVar[bool] = True
    """Whether the answer to an input depends on that input alone, so that many can be answered some at a time."""
    begun_parts: ClassVar[tuple[str, ...]] = ("encoder.",)
    """What the names of the weights begin with that ``init`` gives; the rest of the model is new."""
    settings_: Any
    model_: Any
    recipe_: Recipe
    """What the model was made by; of an estimator without one, the settings alone."""

    @abstractmethod
    def _open(
        self, data: Any, valid: Any | None, *, spill: Path | None, **fields: str | None
    ) -> tuple[Any, Any]:
        """The training and dev data that were named; each can ``describe`` itself as JSON."""

    @abstractmethod
    def _learn(self, data: Any) -> None:
        """Learn from the training data what the model is built on: a tokenizer, labels, a scale."""

    @abstractmethod
    def _vocabulary(self) -> dict[str, int]:
        """Sizes of what was learned, by name: vocabularies, labels, columns."""

    @abstractmethod
    def _reopen(self, run: RunFolder, recipe: Recipe) -> tuple[Any, Any]:
        """The training and dev data of a run again, or a sentence saying what has changed."""

    @abstractmethod
    def _symbols(self, data: Any) -> float:
        """About how many symbols of ``batch_tokens`` all of ``data`` make, for the plan."""

    @abstractmethod
    def _fresh_model(self) -> nn.Module:
        """The model the settings name, with weights that follow from the seed."""

    @abstractmethod
    def _objective_and_batches(self, data: Any, dev: Any) -> tuple[Objective, Batches]:
        """What is minimised, and the batches it is minimised on."""

    @abstractmethod
    def _open_test(self, data: Any, bad_rows: str | None, **fields: Any) -> Any:
        """The data that ``score`` and ``compare`` measure on, of the same type as the dev data of a run."""

    @abstractmethod
    def _judge(self, data: Any, options: Mapping[str, Any]) -> Judged:
        """What the model does with each example of ``data`` (see `_open_test`); ``options`` are those of ``score``."""

    def _inherited(self) -> dict[str, Tensor]:
        """Weights the model begins with instead of fresh ones, by name: those of a model trained before."""
        return {}

    def _inputs(self) -> Literal["text", "numbers", "series", "file"]:
        """How a person gives one input to look at: typed ``text``; typed ``numbers``, or ``#3`` for the third dev
        example; a ``series``, typed as numbers or a table, or ``#3``; or a ``file`` (a sound, a picture), or ``#3``."""
        return "text"

    def _dev(self, run: RunFolder, recipe: Recipe) -> Any:
        """The dev data of a run; a task whose training data are slow to open opens them alone."""
        return self._reopen(run, recipe)[1]

    def _count(self, dev: Any) -> int:
        """How many examples `_example` finds in the dev data."""
        return len(dev)

    def _example(self, dev: Any, number: int) -> tuple[Any, str]:
        """Example ``number`` (from 0) of the dev data as ``probe`` takes it, and its target."""
        ((x, *reference),) = dev.read([number])
        return x, reference[0] if reference else ""

    def _some(self, dev: Any, numbers: Sequence[int]) -> list[tuple[Any, str]]:
        """Several examples at once, by their numbers in rising order."""
        return [self._example(dev, number) for number in numbers]

    def _with_words(self, x: Any, words: str) -> Any:
        """What ``probe`` takes for ``x`` (a file's name, or an example) and words typed beside it: a question, say."""
        raise DataError(f"a {type(self).__name__} takes no words beside its input; leave {words[:40]!r} out.")

    def _solve(self, data: Any, dev: Any, reporter: Reporter | None) -> dict[str, float]:
        """Fit a direct preset: make ``model_`` and return the dev measures."""
        raise AssertionError(f"{self.settings_.model} is trained by gradient steps")

    def _metric(self) -> str:
        """The name of the dev measure that decides which weights are best."""
        return str(getattr(self.settings_, "metric", ""))

    def _check_labels(self, data: Any, *names: str) -> None:  # noqa: B027
        """Refuse data that say nothing about what was learned, such as those of other labels; by default nothing. ``names`` are what
        these data are called in the sentence, and what has the labels that they should have."""

    def _advice(self, run: Path) -> str:
        """What the user should know of the run that has just ended, in a sentence without its full stop; often nothing."""
        return ""


class Parameters(Task):
    """Settings are keyword arguments; unknown ones are refused with a suggestion."""

    __signature__: ClassVar[inspect.Signature]
    result_: TrainingResult

    def __init_subclass__(cls, **options: Any) -> None:
        """No task gives out an answer of a GPU kernel that timed out: each is checked first."""
        super().__init_subclass__(**options)
        for name in ANSWERS & vars(cls).keys():
            setattr(cls, name, kernels_checked(vars(cls)[name]))
        if "command" in vars(cls):  # the help and the signature of a task are those of its settings
            task = TASKS[cls.command]
            cls.__doc__ = f"{inspect.cleandoc(cls.__doc__ or '')}\n\n{signatures.describe(task)}\n"
            cls.__signature__ = signatures.signature(task)

    def __init__(self, model: Any = None, **settings: Any):
        given = dict(settings) if model is None else {"model": model, **settings}
        one_length(given)
        self._given: dict[str, Any]
        self.settings_: Any
        self._given, self.settings_ = settled(self.task(), given)
        self.recipe_ = Recipe(self.command, self.settings_)

    @classmethod
    def from_recipe(cls, recipe: Recipe, given: Mapping[str, Any] | None = None) -> Self:
        """Return an estimator with the settings of a recipe, whose epochs have been counted in steps, and what was learned.

        ``given``: the settings that count as those of the user; by default all.
        """
        self = cls.__new__(cls)
        self._given, self.settings_ = dict(recipe.values if given is None else given), recipe.settings
        self._given.pop("steps" if self._given.get("epochs") else "epochs", None)
        self._take(recipe)
        return self

    def _take(self, recipe: Recipe) -> None:
        """Take over what was learned besides weights."""
        self.recipe_ = recipe
        vars(self).update(recipe.artifacts)

    def artifacts(self) -> dict[str, Any]:
        """Return what was learned besides weights, by attribute, as `Recipe` keeps it."""
        return {name: getattr(self, name) for name in ARTIFACTS[self.command].names if hasattr(self, name)}

    @classmethod
    def task(cls) -> TaskInfo:
        """What the registry knows of the task: its command, settings and presets."""
        return TASKS[cls.command]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting that means something to the preset, with its value, as scikit-learn's tools expect.

        Where ``epochs`` say how long to train, ``steps`` are left out: they are counted from the data.
        """
        values = meaningful(self.task(), self.settings_)
        return {key: value for key, value in values.items() if key != "steps" or not values.get("epochs")}

    def set_params(self, **settings: Any) -> Self:
        """Change settings; the preset's defaults apply again where nothing was given."""
        given = {**self._given, **settings}
        one_length(given)
        self._given, self.settings_ = settled(self.task(), given)
        return self

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self._given)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "model_")

    def __sklearn_tags__(self) -> Any:
        return sklearn_tags(self._estimator_type)

    _estimator_type: ClassVar[str] = ""
    """``classifier`` or ``regressor``, as scikit-learn's tools ask."""

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

    @property
    def _direct(self) -> bool:
        return self.task().preset_of(self.settings_).direct
