"""What travels between a client and a run: inputs as JSON or files, options, and answers as JSON.

`anaphora.kinds` and `inputs` read one input of each kind, `options` checks what a request asks for. A session answers, or `answers`
calls ``predict`` of a task and makes plain values of the results. `Exchange` holds these for one run.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.inference.session import Session
from anaphora.kinds.doors import Doors
from anaphora.serving.exchange.answers import ANSWERS
from anaphora.serving.exchange.inputs import bounds_of, doors_of, lengths_of, longest_of
from anaphora.serving.exchange.options import checked_options, options_of
from anaphora.serving.exchange.together import Sharing, apart, device_of, sharing_of
from anaphora.serving.exchange.types import OUTPUTS
from anaphora.serving.limits import Limits
from anaphora.serving.refusals import unusable


class Exchange:
    """How one run reads its inputs and gives its answers."""

    def __init__(self, estimator: Any, limits: Limits):
        self.estimator, self.limits = estimator, limits
        self.task = estimator.task()
        self.session: Session | None = getattr(estimator, "session", None)
        self.doors: Doors = doors_of(estimator)
        self.most = longest_of(estimator)
        self.bounds = bounds_of(estimator, limits)
        self._length = lengths_of(self.doors)
        self._device = device_of(estimator)
        self.sharing = sharing_of(
            estimator,
            lambda draw, length: self.doors.example(draw, length, self.most),
            lambda xs: self._answer(xs, {"details": True}),
        )

    def read(self, given: Any) -> list[Any]:
        """The inputs of a request, a list of JSON values. Raises a `Refusal` or an `AnaphoraError` with the number of the
        first that cannot be used."""
        if not isinstance(given, list):
            raise unusable("inputs must be a list: write [input] for a single one.")
        if len(given) > self.limits.inputs:
            self.gathered(given)
        self.spelled(characters_in(given))
        read = self.doors.from_json
        return self.gathered([read(one, f"input {i}", self.bounds) for i, one in enumerate(given, start=1)])

    def spelled(self, characters: int) -> None:
        """Raise a `Refusal` where the texts of a request have too many characters together to be cut into symbols."""
        if characters > self.limits.characters:
            raise unusable(
                f"the texts have {characters:,} characters, and a request may have {self.limits.characters:,}; split it."
            )

    def gathered(self, inputs: list[Any]) -> list[Any]:
        """The inputs of a request. Raises a `Refusal` where there is none, or too many, or one is too long."""
        if not 1 <= len(inputs) <= self.limits.inputs:
            raise unusable(f"a request has 1 to {self.limits.inputs} inputs, not {len(inputs)}; split it.")
        return [self.checked(x, number) for number, x in enumerate(inputs, start=1)]

    def checked(self, x: Any, number: int) -> Any:
        """The input, where it is not too long for the server or for the model, which would cut it."""
        length, most = self.length(x), min(self.limits.length, self.most)
        if length > most:
            raise unusable(
                f"input {number} has {length:,} {self.doors.unit}, and at most {most:,} are read; make it shorter."
            )
        return x

    @property
    def schema(self) -> Any:
        """The type of one answer as JSON."""
        return OUTPUTS[self.task.command] if self.session is None else self.session.kinds.output.schema

    def length(self, x: Any) -> int:
        """Symbols, words or steps of an input, at least 1: what it costs."""
        return max(1, self._length(x))

    def options(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a request, checked: those of ``predict``, and ``details``."""
        return checked_options(self.task, given, self.limits)

    def option_names(self) -> list[str]:
        """The names of the options that ``predict`` takes here."""
        return list(options_of(self.task))

    def grouped(self, inputs: list[Any], options: Mapping[str, Any]) -> list[list[int]]:
        """The places of inputs that share a call of ``predict``; one group where those of a request stay together."""
        if not self.together(options) or self.sharing is Sharing.ANY:
            return [list(range(len(inputs)))]
        places: dict[int, list[int]] = {}
        for place, x in enumerate(inputs):
            places.setdefault(self.length(x), []).append(place)
        return list(places.values())

    def together(self, options: Mapping[str, Any]) -> bool:
        """Whether inputs of several requests may share one call of ``predict`` without changing a bit of any answer."""
        one_by_one = options.get("sample") or options.get(
            "int8"
        )  # draws follow one another; steps of eight bits are coarse
        return self.sharing is not Sharing.NONE and not one_by_one

    def answer(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        """The answer to each input as a JSON value."""
        found: list[Any] = [None] * len(inputs)
        with apart(self._device, self.sharing):
            for places in self.grouped(inputs, options):
                for place, one in zip(
                    places, self._answer([inputs[i] for i in places], options), strict=True
                ):
                    found[place] = one
        return found

    def whole(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        """The same in one call, whose errors name the number of an input."""
        with apart(self._device, self.sharing):
            return self._answer(inputs, options)

    def _answer(self, inputs: list[Any], options: Mapping[str, Any]) -> list[Any]:
        if self.session is None:
            return ANSWERS[self.task.command](self.estimator, inputs, dict(options))
        output = self.session.kinds.output
        found = self.session.answer(inputs, {**options, "details": True})
        return [output.answer(one, options) for one in found]


def characters_in(given: Any) -> int:
    """How many characters the texts of a request have: its inputs, their words, or their questions and choices."""
    if isinstance(given, str):
        return len(given)
    if isinstance(given, list) and given and isinstance(given[0], str | list | dict):
        return sum(map(characters_in, given))
    if isinstance(given, dict):
        return sum(characters_in(given.get(name)) for name in ("question", "choices"))
    return 0


def exchange_for(estimator: Any, limits: Limits) -> Exchange:
    """The exchange of a loaded run."""
    return Exchange(estimator, limits)
