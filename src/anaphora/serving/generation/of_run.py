"""The engine of a served run: made at the first request for text, closed with the run."""

from __future__ import annotations

from functools import partial
from threading import Lock

from anaphora.serving.generation.engine import Engine, Room
from anaphora.serving.refusals import unusable
from anaphora.serving.served import Served


class Engines:
    """One engine for each language model that is served."""

    def __init__(self) -> None:
        self._made: dict[Served, Engine] = {}
        self._lock = Lock()

    def of(self, served: Served) -> Engine:
        """The engine of ``served``. Raises a `Refusal` (422) where the run does not continue texts."""
        with self._lock:
            return self._engine(served)

    def _engine(self, served: Served) -> Engine:
        if served not in self._made:
            _check(served)
            model, limits = served.estimator, served.limits
            engine = Engine(
                served.name,
                model.model_,
                model.tokenizer_,
                lines=model.settings_.lines,
                room=Room(limits.slots, None, limits.queue),
                invariant=model.settings_.batch_invariant,
                lock=served.lock,
                observe=partial(_observed, served),
            )
            self._made[served] = engine
            served.on_close.append(lambda: self._end(served))
        return self._made[served]

    def _end(self, served: Served) -> None:
        self._made.pop(served).close()


def _observed(served: Served, texts: int, symbols: int) -> None:
    served.metrics.writing.labels(served.name).set(texts)
    served.metrics.generated.labels(served.name).inc(symbols)


def continues(served: Served) -> bool:
    """Whether the run is a language model that texts can be continued with."""
    if served.task.command != "language":
        return False
    settings = served.estimator.settings_
    return settings.model != "masked" and not settings.backward


def _check(served: Served) -> None:
    if not continues(served):
        kind = (
            f"{served.task.command} run" if served.task.command != "language" else "masked or backward model"
        )
        raise unusable(
            f"{served.name} is a {kind}, which continues no texts; use /runs/{served.name}/predict."
        )
