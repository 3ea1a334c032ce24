"""What a model does step by step, as the page's player shows it: the answer of `anaphora.play`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.errors import DataError
from anaphora.studio.panels import Input, Panel, input_of
from anaphora.studio.pictures import Pictures
from anaphora.studio.runs import Run
from anaphora.views.code import opened


def played(pictures: Pictures, run: Run, query: Mapping[str, str]) -> dict[str, Any]:
    """``s.part``: the number of the part that is played; ``s.from``: the first step of a window of a long sequence."""
    from anaphora.tasks.playing import chosen_part, playable

    model = pictures.model_of(run)[0].model
    given = input_of(pictures, run, query)
    parts = playable(model, given.x)
    names = list(parts)
    number = min(_whole(query, "s.part", 1), len(names))
    name = chosen_part(names, number)
    reel = parts[name]().window(_whole(query, "s.from", 1) - 1)
    return {
        **given.facts,
        "parts": names,
        "part": number,
        "reel": reel.json(),
        "code": _code(run, given, name),
    }


def _whole(query: Mapping[str, str], name: str, usual: int) -> int:
    text = query.get(name, "")
    if not text:
        return usual
    if not (text.isascii() and text.isdigit() and 0 < len(text) < 8) or int(text) < 1:
        raise DataError(f"{name.removeprefix('s.')} must be a whole number from 1 on, not {text[:20]!r}.")
    return int(text)


def _code(run: Run, given: Input, name: str) -> str:
    """The lines of Python that do the same."""
    lines = ["import anaphora as an", "", f"m = {opened(run.name, run.frame)}"]
    if given.text.strip().startswith("#") and given.facts["kind"] != "text":
        lines[1:1] = ["from anaphora.tasks.looking import Asked"]
        lines += [f"x, _ = Asked(m, {run.name!r}).find({given.text!r})", f"reel = an.play(m, x, {name!r})"]
    else:
        lines += [f"reel = an.play(m, {given.text!r}, {name!r})"]
    return "\n".join([*lines, "print(reel)"])


def _why_not(model: Any) -> str | None:
    from anaphora.tasks.playing import why_not

    return why_not(model)


PANEL = Panel(
    name="play",
    title="Play step by step",
    question="memory",
    reading="The equations of one step, with the numbers of the step and the unit that are chosen. A recurrent cell's are found by "
    "watching it, so that your own cell has them as well.",
    answer=played,
    why_not=_why_not,
)
