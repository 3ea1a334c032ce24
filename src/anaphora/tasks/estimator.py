"""What all estimators share: settings as keywords, in the manner of scikit-learn."""

from __future__ import annotations

from typing import Any, ClassVar

from anaphora.settings.base import Settings
from anaphora.tasks.registry import TASKS, TaskInfo, meaningful, resolve


class Estimator:
    """Settings are keyword arguments; unknown ones are refused with a suggestion.

    After ``fit`` or ``load`` the estimator holds ``model_`` (a plain ``nn.Module``) and ``settings_``.
    """

    command: ClassVar[str]

    def __init__(self, model: str | None = None, **settings: Any):
        self._given: dict[str, Any] = dict(settings) if model is None else {"model": model, **settings}
        self.settings_: Settings = resolve(self.task(), self._given)

    @classmethod
    def task(cls) -> TaskInfo:
        return TASKS[cls.command]

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Every setting that means something to the preset, with its value, as scikit-learn's tools expect."""
        return meaningful(self.task(), self.settings_)

    def set_params(self, **settings: Any) -> Estimator:
        """Change settings; the preset's defaults apply anew where nothing was given."""
        given = {**self._given, **settings}
        self.settings_ = resolve(self.task(), given)
        self._given = given
        return self

    def __repr__(self) -> str:
        given = ", ".join(f"{key}={value!r}" for key, value in self._given.items())
        return f"{type(self).__name__}({given})"
