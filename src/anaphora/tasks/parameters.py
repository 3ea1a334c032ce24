"""The settings of an estimator, in the manner of scikit-learn."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from anaphora.settings.length import one_length
from anaphora.tasks import signatures
from anaphora.tasks.guarding import ANSWERS, kernels_checked
from anaphora.tasks.learning import sklearn_tags
from anaphora.tasks.own import settled
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve
from anaphora.tasks.task import Task
from anaphora.training.loop import TrainingResult


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
        self._settle(given)

    def _settle(self, given: Mapping[str, Any]) -> None:
        self._given: dict[str, Any]
        self.settings_: Any
        self._given, self.settings_ = settled(self.task(), given)
        self._trained_on: Mapping[str, Any] = {}

    @classmethod
    def again(cls, values: Mapping[str, Any]) -> Self:
        """An estimator with the complete settings of a run, whose epochs have been counted in steps."""
        self = cls.__new__(cls)
        self._settle(values)
        self._given.pop("steps" if values.get("epochs") else "epochs", None)
        return self

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
