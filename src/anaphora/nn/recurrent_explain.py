"""What ``Recurrent.explain`` returns: which backend runs each layer, why, and why not the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from anaphora.engine.dispatch import Decision


@dataclass(frozen=True)
class Choice:
    """The backend of one layer in one direction."""

    layer: int  # from 1
    direction: str  # forward or backward
    backend: str
    why: str
    others: Mapping[str, str]  # every other backend: why it does not run
    stand_in: str | None  # runs shapes that are not captured yet; None where there is no such thing
    states: tuple[str, ...] = ()  # which states are a map, scan, walk or loop over time, and why not a scan

    @classmethod
    def of(cls, layer: int, direction: str, decision: Decision, names: Sequence[str] = ()) -> Choice:
        others: dict[str, str] = {name: reason for name, reason in decision.others.items()}  # noqa: C416
        states = tuple(ring.describe(names) for ring in decision.rings)
        return cls(layer, direction, decision.backend, decision.why, others, decision.stand_in, states)

    @property
    def _reasons(self) -> tuple[Any, ...]:
        return self.backend, self.why, self.others, self.stand_in, self.states

    def __str__(self) -> str:
        meanwhile = f"; {self.stand_in} until a shape is captured" if self.stand_in else ""
        width = max(map(len, self.others))
        lines = [f"{self.backend} ({self.why}{meanwhile})"]
        lines += [f"  {text}" for text in self.states]
        lines += [f"  not {name:{width}}  {reason}" for name, reason in self.others.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Explanation:
    """The backends of all layers and directions, the lowest layer first. ``str`` gives a readable text."""

    choices: tuple[Choice, ...]

    @property
    def backends(self) -> tuple[str, ...]:
        """Their names alone."""
        return tuple(choice.backend for choice in self.choices)

    def to_dict(self) -> dict[str, Any]:
        """The same in plain dictionaries and lists, as JSON takes them."""
        return {"choices": [asdict(choice) for choice in self.choices]}

    def __str__(self) -> str:
        lines: list[str] = []
        before: Choice | None = None
        for choice in self.choices:
            same = before is not None and before._reasons == choice._reasons
            said = f"{choice.backend}, as above" if same else str(choice)
            lines.append(f"layer {choice.layer}, {choice.direction}: {said}")
            before = choice
        return "\n".join(lines)
