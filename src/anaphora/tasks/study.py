"""Which studies there are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.settings.base import suggestion
from anaphora.tasks.studies.budget import budget
from anaphora.tasks.studies.draw import draw
from anaphora.tasks.studies.length import length
from anaphora.tasks.studies.memory import memory
from anaphora.tasks.studies.positions import positions
from anaphora.tasks.studies.recall import recall
from anaphora.tasks.studies.scaling import scaling
from anaphora.tasks.studies.tracking import tracking

STUDIES: dict[str, Callable[..., dict[str, Any]]] = {
    "budget": budget,
    "draw": draw,
    "length": length,
    "memory": memory,
    "positions": positions,
    "recall": recall,
    "scaling": scaling,
    "tracking": tracking,
}


def run(name: str, out: str | Path, **options: Any) -> dict[str, Any]:
    """Run a study by name."""
    if name not in STUDIES:
        raise AnaphoraError(
            f"{name} is not a study ({', '.join(STUDIES)}).{suggestion(name, list(STUDIES), otherwise='')}"
        )
    study = STUDIES[name]
    if "corpus" in options and study in (positions, recall, tracking):
        raise AnaphoraError(f"the study {name} makes its own data; leave --corpus out.")
    return study(out, **options)
