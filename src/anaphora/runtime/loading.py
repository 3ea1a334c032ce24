"""``load``: the right class for an export folder."""

from __future__ import annotations

from pathlib import Path

from anaphora.errors import RunError
from anaphora.runtime.classifier import Classifier
from anaphora.runtime.folder import read_folder
from anaphora.runtime.tagger import Tagger

TASKS: dict[str, type[Classifier] | type[Tagger]] = {"classify": Classifier, "tag": Tagger}


def load(folder: str | Path, *, threads: int = 0) -> Classifier | Tagger:
    """The model that ``anaphora export RUN --to onnx`` wrote to ``folder``; ``threads`` 0 uses every core.

    Raises a `RunError` where the folder holds no export, a damaged one, or one of a task that this version cannot run.
    """
    exported = read_folder(folder)
    if exported.task not in TASKS:
        raise RunError(
            f"{folder} holds the task {exported.task!r}, which this version cannot run; upgrade Anaphora."
        )
    return TASKS[exported.task](exported, threads=threads)
