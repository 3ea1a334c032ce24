"""The one mechanism for looking inside: blocks note their internals, and `record` collects them.

    with inside.record() as notes:
        model(x)
    notes[0].module, notes[0].name, notes[0].value

A block calls :func:`note` wherever it has something to show. Without a recorder this is one look at a
context variable, and blocks with a fast path that hides their internals ask :func:`recording` and take
the explicit path only then.

What a block then goes on with it takes from :func:`changed`, so that an intervention can put another value in its place:

    with inside.changing(lambda module, name, value, place: 0 * value if name == "states" else value):
        model(x)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anaphora.nn.exporting import scanning

__all__ = ["Note", "changed", "changing", "note", "record"]
"""What a block and a user need; the rest is for blocks with a fast path and for probes."""


@dataclass(frozen=True)
class Note:
    """One internal value: the block it comes from, its name there, and the tensor itself.

    ``module``, ``name`` and ``value``, in this order.

    >>> with an.nn.inside.record() as notes:
    ...     out = an.nn.attention.Dot()(torch.zeros(1, 2, 3), torch.zeros(1, 4, 3))
    >>> notes[1].name, notes[1].value.shape
    ('weights', torch.Size([1, 2, 4]))
    """

    module: nn.Module
    name: str
    value: Tensor


Place = int | Tensor | None
"""Which step of a sequence a value of one step is, one for all rows or one for each ``(batch,)``; None: of all steps, or of the
next one where a model is stepped through."""
Change = Callable[[nn.Module, str, Tensor, Place], Tensor]
"""From a block, the name of a value, the value and its place to what the block goes on with."""

_notes: ContextVar[list[Note] | None] = ContextVar("anaphora_notes", default=None)
_watched: ContextVar[list[Note] | None] = ContextVar("anaphora_watched", default=None)
_change: ContextVar[Change | None] = ContextVar("anaphora_change", default=None)


@contextmanager
def record() -> Iterator[list[Note]]:
    """Collect every note made inside the ``with`` block, in the order it was made.

    Blocks nested in one another may record too: a note goes to the innermost recorder only.

    >>> with an.nn.inside.record() as notes:
    ...     out = an.nn.attention.Dot()(torch.zeros(1, 2, 3), torch.zeros(1, 4, 3))
    >>> [note.name for note in notes]
    ['scores', 'weights']
    """
    notes: list[Note] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


@contextmanager
def watching() -> Iterator[list[Note]]:
    """Collect the notes of all recorders inside the ``with`` block as well, whichever of them a note goes to: what a layer
    notes of its steps comes step by step, and then joined over time. Without a recorder nothing is noted."""
    seen: list[Note] = []
    token = _watched.set(seen)
    try:
        yield seen
    finally:
        _watched.reset(token)


def watched() -> bool:
    """Whether notes are watched and recorded."""
    return not _compiled() and _watched.get() is not None and _notes.get() is not None


@contextmanager
def changing(change: Change) -> Iterator[None]:
    """Inside the ``with`` block blocks go on with what ``change`` makes of their values. The innermost one counts.

    ``change(module, name, value, place)`` gets every value that can be changed and returns what to go on with.

    >>> def first_only(module, name, value, place):                     # attention to the first key alone
    ...     return torch.eye(value.shape[-1])[:1].expand(value.shape) if name == "weights" else value
    >>> with an.nn.inside.changing(first_only):
    ...     context, weights = an.nn.attention.Dot()(torch.zeros(1, 1, 2), torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]))
    >>> context.tolist()
    [[[1.0, 2.0]]]
    """
    token = _change.set(change)
    try:
        yield
    finally:
        _change.reset(token)


def _compiled() -> bool:
    return torch.compiler.is_compiling() and not scanning()


def recording() -> bool:
    """Whether values are recorded or changed in this context, so that a block must have them. Inside code that torch compiles
    they are not; a graph that is exported may give what was noted as an output."""
    return not _compiled() and (_notes.get() is not None or _change.get() is not None)


def intervened() -> bool:
    """Whether values are changed in this context."""
    return not _compiled() and _change.get() is not None


def changed(module: nn.Module, name: str, value: Tensor, place: Place = None) -> Tensor:
    """What the block goes on with: ``value``, or what an intervention puts in its place.

    ``module``, ``name`` and ``value``: as of `note`; ``place``: which step it is, where a block computes one step at a time.

    >>> class Half(torch.nn.Module):
    ...     def forward(self, x):
    ...         return an.nn.inside.changed(self, "half", x / 2)
    >>> with an.nn.inside.changing(lambda module, name, value, place: 10 * value):
    ...     out = Half()(torch.ones(1))
    >>> out
    tensor([5.])
    """
    if _compiled():
        return value
    change = _change.get()
    return value if change is None else change(module, name, value, place)


def note(module: nn.Module, name: str, value: Tensor) -> None:
    """Hand ``value`` to the recorder, if there is one.

    ``module``: the block that notes it; ``name``: what it is called there.

    >>> class Half(torch.nn.Module):
    ...     def forward(self, x):
    ...         an.nn.inside.note(self, "half", x / 2)
    ...         return x
    >>> with an.nn.inside.record() as notes:
    ...     out = Half()(torch.ones(1))
    >>> notes[0].value
    tensor([0.5000])
    """
    if _compiled():
        return
    notes = _notes.get()
    if notes is not None:
        notes.append(Note(module, name, value))
        seen = _watched.get()
        if seen is not None:
            seen.append(notes[-1])
