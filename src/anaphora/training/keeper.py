"""What a training writes into its run folder while it goes on: exported weights, journals and checkpoints.

With ``save_in_background`` the state is copied at its step and written by another thread. Order and steps of writing are
the same, so a crash at any instant leaves the same: a whole checkpoint, of this step or of one before.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.settings import TrainingSettings
from anaphora.training import saving
from anaphora.training.background import Background
from anaphora.training.distributed import Group
from anaphora.training.journal import Journal
from anaphora.training.resuming import Resumed
from anaphora.training.run import RunFolder
from anaphora.training.state import TrainingState


class Keeper:
    """Rank 0's hand on the run folder. ``journals`` are those that a resumed run rewinds to its checkpoint."""

    def __init__(self, run: RunFolder, journals: Mapping[str, Journal], settings: TrainingSettings):
        self.run, self.journals, self.keep = run, journals, settings.keep
        self._exported: bytes | None = None  # model.safetensors as last written; every checkpoint repeats it
        self._background = Background() if settings.save_in_background else None
        self._abandoned = threading.Event()
        self._saved: deque[tuple[int, Path]] = deque()

    def open(self, resumed: Resumed) -> list[str]:
        """Make the folder what it was at the checkpoint; sentences about what can no longer be had."""
        problems = [journal.open(resumed.marks.get(name)) for name, journal in self.journals.items()]
        if resumed.exported is not None:
            self._exported = saving.put_model_back(self.run, resumed.exported)
        return [problem for problem in problems if problem]

    def export(self, weights: Mapping[str, Tensor], facts: Mapping[str, Any]) -> None:
        """Write ``weights`` as the run's ``model.safetensors``."""

        def write(weights: Mapping[str, Tensor]) -> None:
            self._exported = saving.export(self.run, weights, facts)

        self._do(lambda: copied(weights), lambda: weights, write)

    def save(self, state: Callable[[dict[str, Any]], TrainingState]) -> None:
        """Write a checkpoint of ``state(marks of the journals)`` after what was exported; the journals are synced first."""
        marks = {name: journal.mark() for name, journal in self.journals.items()}

        def write(state: TrainingState) -> None:
            for journal in self.journals.values():
                journal.sync()
            whole = replace(state, exported=self._exported)
            path = saving.save(self.run, whole, keep=self.keep, abandoned=self._abandoned.is_set)
            self._saved.append((state.step, path))

        self._do(lambda: copied_state(state(marks)), lambda: state(marks), write)

    def save_parts(self, group: Group, state: Callable[[dict[str, Any]], TrainingState]) -> None:
        """`save` where the weights are divided among the processes of ``group``: each writes its own files. All must call this."""
        marks = {name: journal.mark() for name, journal in self.journals.items()}
        if group.main:
            for journal in self.journals.values():
                journal.sync()
        whole = replace(state(marks), exported=self._exported)
        path = saving.save_parts(self.run, whole, group, keep=self.keep)
        if group.main:
            self._saved.append((whole.step, path))

    def _do(self, copy: Callable[[], Any], present: Callable[[], Any], write: Callable[[Any], None]) -> None:
        if self._background is None:
            write(present())
            return
        self._background.wait_for_room()  # before memory is taken for another copy
        kept = copy()
        self._background.add(lambda: write(kept))

    def saved(self) -> list[tuple[int, Path]]:
        """(step, folder) of the checkpoints that have become durable since the last call."""
        return [self._saved.popleft() for _ in range(len(self._saved))]

    @property
    def failed(self) -> bool:
        """Whether something could not be written in the background; `check` raises it."""
        return self._background is not None and self._background.failed

    def check(self) -> None:
        """Raise what went wrong in the background."""
        if self._background is not None:
            self._background.check()

    def finish(self) -> None:
        """Wait until all is on the disk; raises what went wrong."""
        if self._background is not None:
            self._background.finish()

    def abandon(self) -> None:
        """Write no more than the file that is being written; the checkpoint before stays the newest."""
        self._abandoned.set()
        if self._background is not None:
            self._background.drop()

    def close(self) -> None:
        """Wait for what is being written, since the folder's lock goes next, and close the journals."""
        if self._background is not None:
            self._background.settle()
        for journal in self.journals.values():
            journal.close()


def copied(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Copies in the host's memory, which later steps do not change; tied tensors stay tied."""
    seen: dict[tuple[Any, ...], Tensor] = {}
    found = {}
    for name, tensor in tensors.items():
        place = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype, str(tensor.device))
        if tensor.numel() == 0 or place not in seen:
            seen[place] = tensor.detach().to("cpu", copy=True, memory_format=torch.contiguous_format)
        found[name] = seen[place]
    return found


def copied_state(state: TrainingState) -> TrainingState:
    """``state`` as it is now, whatever the training does next."""
    values = {
        field.name: deepcopy(getattr(state, field.name)) for field in fields(state) if field.name != "tensors"
    }
    return replace(
        state, **values, tensors={part: copied(tensors) for part, tensors in state.tensors.items()}
    )
