"""How wide a picture may be: as wide as its chart is by itself, or as wide as the page has room."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

LEAST, MOST = 280.0, 1600.0
_room: ContextVar[float | None] = ContextVar("room", default=None)


@contextmanager
def fitted(width: float | None) -> Iterator[None]:
    """Scenes drawn inside the ``with`` block are about ``width`` units wide; None leaves charts as wide as they are."""
    token = _room.set(None if width is None else min(max(width, LEAST), MOST))
    try:
        yield
    finally:
        _room.reset(token)


def room() -> float | None:
    """The width there is, or None where none was given."""
    return _room.get()


def plot_width(usual: float, beside: float, *, least: float = 160.0, most: float = MOST) -> float:
    """The width of a plot that has ``beside`` units of names and margins at its sides: ``usual`` where no width was given."""
    width = room()
    return usual if width is None else min(max(width - beside, least), most)
