"""The one mechanism for looking inside: blocks note their internals, and `record` collects them.

    with inside.record() as notes:
        model(x)
    notes[0].module, notes[0].name, notes[0].value

A block calls :func:`note` wherever it has something to show. Without a recorder this is one look at a
context variable, and blocks with a fast path that hides their internals ask :func:`recording` and take
the explicit path only then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from anaphora.nn.exporting import scanning


@dataclass(frozen=True)
class Note:
    """One internal value: the block it comes from, its name there, and the tensor itself."""

    module: nn.Module
    name: str
    value: Tensor


_notes: ContextVar[list[Note] | None] = ContextVar("anaphora_notes", default=None)


@contextmanager
def record() -> Iterator[list[Note]]:
    """Collect every note made inside the ``with`` block, in the order it was made.

    Blocks nested in one another may record too: a note goes to the innermost recorder only.
    """
    notes: list[Note] = []
    token = _notes.set(notes)
    try:
        yield notes
    finally:
        _notes.reset(token)


def _compiled() -> bool:
    return torch.compiler.is_compiling() and not scanning()


def recording() -> bool:
    """Whether a recorder is on in this context. Inside code that torch compiles there is none; a graph that is exported may
    give what was noted as an output."""
    return not _compiled() and _notes.get() is not None


def note(module: nn.Module, name: str, value: Tensor) -> None:
    """Hand ``value`` to the recorder, if there is one."""
    if _compiled():
        return
    notes = _notes.get()
    if notes is not None:
        notes.append(Note(module, name, value))
