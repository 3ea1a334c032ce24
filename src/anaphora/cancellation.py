"""Stop work whose answer is no longer wanted: the caller says when, and every loop asks before its next step.

    with stopped_by(client_has_left):
        model.predict(texts)  # raises Stopped before the next step once client_has_left() is true

Searches, batches and the drivers of compiled loops call `check_stopped`, which costs a look at a context variable where there is
nothing to ask. ``stop`` may take its time: a server lets short requests in between two steps of a long one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TypeVar

Stop = Callable[[], object]
"""Whether to stop; called before each step."""
Item = TypeVar("Item")
_asked: ContextVar[Stop | None] = ContextVar("anaphora_stop", default=None)


class Stopped(BaseException):
    """The work was stopped. Not an `Exception`, so that nothing takes it for a fault of the model."""


@contextmanager
def stopped_by(stop: Stop) -> Iterator[None]:
    """Within, work ends with `Stopped` before the next step for which ``stop()`` is true, or that of a context around this one."""
    outer = _asked.get()

    def either() -> object:
        return (outer is not None and outer()) or stop()

    held = _asked.set(either)
    try:
        yield
    finally:
        _asked.reset(held)


def check_stopped() -> None:
    """Raise `Stopped` where the work is to stop. Call it before each step, with no lock held."""
    stop = _asked.get()
    if stop is not None and stop():
        raise Stopped


def each_step(items: Iterable[Item]) -> Iterator[Item]:
    """The items, with `check_stopped` before each: ``for length in each_step(range(limit))``."""
    for item in items:
        check_stopped()
        yield item
