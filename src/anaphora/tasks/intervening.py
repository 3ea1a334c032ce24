"""Change something inside a trained model for a while, and see what that changes in its answer."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from torch import nn

from anaphora.errors import AnaphoraError
from anaphora.nn import inside
from anaphora.probe.answers import answer_of, in_words
from anaphora.probe.changing import Changer, applied, captured_state
from anaphora.probe.interventions import Intervention, Patch
from anaphora.probe.trace import Trace

COMMANDS = ("classify", "tag", "language", "answer")
"""Tasks whose loss is one of the answer itself; others have that of a text that they write, or none."""


@dataclass(frozen=True)
class Effect:
    """What interventions changed: traces of the model ``before`` and ``after``, and the mean loss, −log p a symbol, of the answer
    ``wanted`` in both; None where the task has no such loss."""

    before: Trace
    after: Trace
    wanted: Any
    loss_before: float | None
    loss_after: float | None

    @property
    def delta(self) -> float | None:
        """The loss after minus the loss before: above 0 where what was changed spoke for the answer."""
        if self.loss_before is None or self.loss_after is None:
            return None
        return self.loss_after - self.loss_before

    def __repr__(self) -> str:
        change = "" if self.delta is None else f", Δ loss {self.delta:+.4g}"
        return f"Effect({in_words(self.before)!r} → {in_words(self.after)!r}{change})"


class Intervening:
    """An estimator that can be run with something inside it changed."""

    model_: Any
    command: ClassVar[str]

    @contextlib.contextmanager
    def intervene(self, *changes: Intervention) -> Iterator[Self]:
        """Inside the ``with`` block the model runs with ``changes``, in ``predict`` as in ``probe``; then all is as before.

            with m.intervene(an.Silence(layer=1, head=3), an.Clamp(unit=17, value=0.0)):
                m.predict(["two dogs run"])

        There are `Silence`, `Clamp`, `Noise`, `Attend` and `Patch`. Raises an `AnaphoraError` where the model has no such place,
        and for models that are no networks.
        """
        self._check_trained()  # type: ignore[attr-defined]
        if not isinstance(self.model_, nn.Module):
            raise AnaphoraError("this model is no network, so there is nothing inside it to change.")
        for one in changes:
            if not isinstance(one, Intervention):
                raise AnaphoraError(f"intervene takes an.Silence, an.Clamp and the like, not {one!r}.")
        patches = [self._captured(one) for one in changes if isinstance(one, Patch)]
        with applied(self.model_, changes, patches):
            yield self

    def effect(
        self, x: Any, changes: Sequence[Intervention], target: Any = None, *, beam: int | None = None
    ) -> Effect:
        """What ``changes`` do to the answer to ``x``, and to the loss of ``target``, or of the answer the model gives without them.

            found = m.effect("two dogs run", [an.Silence(layer=1, head=3)])
            found.delta                  # how much less the answer is believed in
            found.after.view("alignment")

        Raises what `intervene` and ``probe`` raise.
        """
        given = {} if beam is None else {"beam": beam}
        probe = self.probe  # type: ignore[attr-defined]
        before = probe(x, **given)
        wanted = _wanted(self.command, before) if target is None else target
        forced = before if wanted is None else probe(x, wanted)
        with self.intervene(*changes):
            after = probe(x, **given)
            forced_after = after if wanted is None else probe(x, wanted)
        return Effect(before, after, wanted, _loss(self, forced), _loss(self, forced_after))

    def _captured(self, one: Patch) -> Any:
        if one.source is None:
            raise AnaphoraError(f"{one.code()}: name the other input: an.Patch(at=3, source=…).")
        changer = Changer(self.model_, ())
        changer.captured = {}
        with changer.watching(), inside.changing(changer):
            self.probe(one.source)  # type: ignore[attr-defined]
        return captured_state(changer.captured, one)


def _wanted(command: str, trace: Trace) -> Any:
    """The model's own answer, as ``probe`` takes it as a target; None where it takes none."""
    answer = answer_of(trace)
    if command in ("classify", "answer") and answer["kind"] == "classes":
        return answer["names"][0]
    if command == "tag":
        return trace.facts.get("tags")
    if command in ("translate", "caption") and answer["kind"] == "text":
        return answer["text"]
    if command == "transcribe" and "log_probs" in trace.arrays:
        return answer["text"] or None
    return None


def _loss(m: Any, trace: Trace) -> float | None:
    if "log_probs" in trace.arrays:
        return -float(np.mean(trace.array("log_probs")))
    numbers = getattr(getattr(m, "targets_", None), "kind", "") == "number"
    return trace.facts.get("loss") if m.command in COMMANDS and not numbers else None
