"""Callbacks: what a user does while a model trains, with what it keeps saved in every checkpoint."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from anaphora.errors import RunError, SettingsError
from anaphora.settings.own import Part

HOOKS = ("on_start", "on_step", "on_validation", "on_checkpoint", "on_end")


class Stop(Enum):
    """What a callback returns to end the training."""

    STOP = "stop"


STOP = Stop.STOP


@dataclass(frozen=True)
class Moment:
    """A training as a callback sees it. ``loss``, ``grad_norm`` and ``lr`` are those of the last step, ``metrics`` those
    of the last evaluation, ``best`` whether it was the best so far."""

    step: int
    steps: int
    model: nn.Module
    folder: Path
    loss: float | None = None
    grad_norm: float | None = None
    lr: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    best: bool = False


class Callback:
    """Called while a model trains: override what you need. A method that returns ``an.STOP`` ends the training after
    the step, with a checkpoint.

        class Impatient(an.Callback):
            def on_validation(self, now):
                return an.STOP if now.metrics["accuracy"] > 99 else None

    ``now`` has ``step`` of ``steps``, the ``model``, the run's ``folder``, ``loss``, ``grad_norm`` and ``lr`` of the last step, the
    ``metrics`` of the last evaluation by name, and whether it was the ``best`` so far; what is not known yet is None or empty.

    ``on_checkpoint`` is called just before a checkpoint is written. A callback that counts or collects something must
    have ``state_dict()`` (numbers, texts, lists, dicts of these, and tensors) and ``load_state_dict(state)``: they are
    part of every checkpoint. Under torchrun every process has its own callbacks; one that stops stops all.

    >>> class Losses(an.Callback):
    ...     def __init__(self):
    ...         self.seen = []
    ...
    ...     def on_step(self, now):
    ...         self.seen.append(now.loss)
    ...         return an.STOP if now.step == 2 else None
    >>> losses = Losses()
    >>> model = torch.nn.Linear(2, 1)
    >>> done = an.fit(model, torch.nn.MSELoss(), [(torch.ones(4, 2), torch.ones(4, 1))], steps=5, callbacks=[losses])
    >>> len(losses.seen)
    2
    """

    def on_start(self, now: Moment) -> Stop | None:
        """Before the first step, also of a resumed run."""

    def on_step(self, now: Moment) -> Stop | None:
        """After each step."""

    def on_validation(self, now: Moment) -> Stop | None:
        """After each evaluation on the dev data."""

    def on_checkpoint(self, now: Moment) -> Stop | None:
        """Just before a checkpoint is written."""

    def on_end(self, now: Moment) -> Stop | None:
        """After the last step, or when training was stopped."""


class Callbacks:
    """The callbacks of one training."""

    def __init__(self, parts: Sequence[Any]):
        self._each = [part.made() if isinstance(part, Part) else part for part in parts]
        for one in self._each:
            if not any(callable(getattr(one, hook, None)) for hook in HOOKS):
                raise SettingsError(
                    [f"callbacks: a {type(one).__name__} has none of {', '.join(HOOKS)}; see an.Callback."]
                )
        self.stopped: str | None = None
        """The class of the callback that ended the training."""

    def __len__(self) -> int:
        return len(self._each)

    def call(self, hook: str, now: Moment) -> None:
        for one in self._each:
            method = getattr(one, hook, None)
            if callable(method) and method(now) is STOP and hook != "on_end":
                self.stopped = self.stopped or type(one).__name__

    def state(self) -> list[Any]:
        """What each keeps, as JSON; tensors are left to `tensors`."""
        kept = []
        for number, one in enumerate(self._each):
            noted = {key: value for key, value in _kept(one).items() if not isinstance(value, Tensor)}
            try:
                kept.append(json.loads(json.dumps(noted, allow_nan=False)))
            except (TypeError, ValueError) as error:
                raise SettingsError(
                    [
                        f"callbacks.{number}: what {type(one).__name__}.state_dict() gives cannot be saved ({error}); give "
                        "numbers, texts, lists, dicts or tensors."
                    ]
                ) from None
        return kept

    def tensors(self) -> dict[str, Tensor]:
        return {
            f"{number}/{key}": value.detach().cpu().clone()
            for number, one in enumerate(self._each)
            for key, value in _kept(one).items()
            if isinstance(value, Tensor)
        }

    def restore(self, state: Sequence[Any], tensors: Mapping[str, Tensor]) -> None:
        if not any(state) and not tensors:
            return  # nothing was kept, so other callbacks, or none, may go on
        if len(state) != len(self._each):
            raise RunError(
                f"the run had {len(state)} callbacks and now has {len(self._each)}; give it those it was trained with."
            )
        for number, (one, noted) in enumerate(zip(self._each, state, strict=True)):
            prefix = f"{number}/"
            mine = {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}
            if callable(getattr(one, "load_state_dict", None)):
                one.load_state_dict({**noted, **mine})
            elif noted or mine:
                raise RunError(
                    f"callbacks.{number}: the run saved what it kept, but {type(one).__name__} has no load_state_dict."
                )


def _kept(one: Any) -> dict[str, Any]:
    read = getattr(one, "state_dict", None)
    return dict(read()) if callable(read) else {}
