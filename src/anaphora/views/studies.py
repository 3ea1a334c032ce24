"""The picture of what a study found, by the study's name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.views import abilities, budget, drawing, length, memory, positions, scaling
from anaphora.views.picture import Picture

_PICTURES: Mapping[str, Any] = {
    "budget": budget.picture,
    "draw": drawing.picture,
    "length": lambda found: length.picture(found["models"]),
    "memory": memory.picture,
    "positions": positions.picture,
    "recall": abilities.picture,
    "scaling": scaling.picture,
    "tracking": abilities.picture,
}


def study_picture(name: str, found: Mapping[str, Any]) -> Picture:
    """What `anaphora.tasks.study.run` found, drawn."""
    made: Picture = _PICTURES[name](found)
    return made
