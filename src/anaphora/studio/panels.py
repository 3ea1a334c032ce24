"""What the page shows that is more than a picture: each panel answers a question about one run, by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from anaphora.errors import AnaphoraError, DataError
from anaphora.studio.explaining import count_of, example_text
from anaphora.studio.pictures import LONGEST_TEXT, Pictures, check_cost
from anaphora.studio.runs import Run


@dataclass(frozen=True)
class Panel:
    """A part of the page with its own drawing; ``answer`` gives the JSON it draws."""

    name: str
    title: str
    question: str
    reading: str
    answer: Callable[[Pictures, Run, Mapping[str, str]], dict[str, Any]]
    why_not: Callable[[Any], str | None]
    """Why a model has no such panel; None where it has."""

    def listed(self) -> dict[str, Any]:
        """How the page lists it among the views."""
        words = {"name": self.name, "title": self.title, "question": self.question, "reading": self.reading}
        return {**words, "of": "panel", "caution": "", "options": [], "typed": True}


def panels() -> dict[str, Panel]:
    """All panels by name."""
    from anaphora.studio import intervening, playing, steering

    return {panel.name: panel for panel in (intervening.PANEL, steering.PANEL, playing.PANEL)}


def answered(pictures: Pictures, run: Run, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer of the panel that ``query`` names."""
    found = panels().get(query.get("panel", ""))
    if found is None:
        raise AnaphoraError(f"there is no such panel; there are {', '.join(panels())}.")
    return found.answer(pictures, run, query)


def reasons(pictures: Pictures, run: Run) -> dict[str, str | None]:
    """For each panel None if this run has it, else the reason."""
    try:
        model = pictures.model_of(run)[0].model
    except AnaphoraError as error:
        return dict.fromkeys(panels(), str(error))
    return {name: panel.why_not(model) for name, panel in panels().items()}


@dataclass(frozen=True)
class Input:
    """What is looked at: as it stands in the page's box, and as ``probe`` takes it."""

    text: str
    x: Any
    reference: str
    facts: dict[str, Any]


def input_of(
    pictures: Pictures, run: Run, query: Mapping[str, str], *, beam: int | None = None, times: int = 1
) -> Input:
    """The input a page asks about: ``text``, or where there is none dev example ``example``; with what every panel shows
    of it. ``beam`` and ``times`` are those of `check_cost`."""
    asked, _ = pictures.model_of(run)
    text, example, reference = query.get("text", ""), None, ""
    if len(text) > LONGEST_TEXT:
        raise DataError(f"the text is longer than {LONGEST_TEXT:,} characters; use a shorter one.")
    check_cost(asked.model, (text, query.get("target", "")), beam, times=times)
    if not text.strip():
        text, example, known = example_text(asked, query.get("example", "1"))
        reference = str(known.get("reference", ""))
    x, facts = asked.find(text)
    wanted = facts.get("reference", reference)
    reference = wanted if isinstance(wanted, str) else " ".join(map(str, wanted))
    shown = {
        "run": run.shown,
        "text": text,
        "kind": asked.model._inputs(),
        "example": example,
        "examples": count_of(asked),
    }
    return Input(text, x, reference, shown)
