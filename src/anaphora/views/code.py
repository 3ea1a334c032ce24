"""The Python that makes a picture again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from anaphora.views.view import View


def code_for(
    view: View,
    options: Mapping[str, Any],
    *,
    runs: Sequence[str] = ("RUN",),
    text: str | None = None,
    given: Mapping[str, Any] | None = None,
    frame: int | None = None,
) -> str:
    """Lines that draw ``view`` of the first of ``runs`` (of all of them where it shows their course) with ``text`` as the input,
    and with what ``probe`` was ``given`` besides it. Names of runs count from the folder the code is run in."""
    words = "".join(f", {key}={value!r}" for key, value in options.items())
    drawn = f'trace.view("{view.name}"{words}).save("{view.name}.html")'
    return "\n".join(
        ["import anaphora as an", *_trace(view, runs, text, given or {}, opened(runs[0], frame)), drawn]
    )


def opened(run: str, frame: int | None = None) -> str:
    """The Python that loads a run, or what it was at a step of its film."""
    return f"an.load({run!r}{'' if frame is None else f', frame={frame}'})"


def code_together(
    view: View,
    options: Mapping[str, Any],
    runs: Sequence[tuple[str, str]],
    text: str,
    given: Sequence[Mapping[str, Any]],
) -> str:
    """Lines that draw ``view`` of several runs in one picture: pairs of a name and what loads it, and what each ``probe`` is given."""
    lines = ["import anaphora as an", "from anaphora.views.registry import picture_together"]
    example = re.match(r"\s*#[0-9]", text)
    lines += ["from anaphora.tasks.looking import Asked"] if example else []
    lines += ["", "traces = {}"]
    for (name, model), taken in zip(runs, given, strict=True):
        asked = dict(taken) | ({"what": view.what} if view.what else {})
        more = "".join(f", {key}={value!r}" for key, value in asked.items())
        x = repr(text)
        if example:  # a dev example of the run
            lines.append(f"m = {model}")
            folder = model.removeprefix("an.load(").removesuffix(")").split(", frame=")[0]
            model, x = "m", f"Asked(m, {folder}).find({text!r})[0]"
        lines.append(f"traces[{name!r}] = {model}.probe({x}{more})")
    chosen = "".join(f", {key}={value!r}" for key, value in options.items())
    return "\n".join([*lines, f'picture_together(traces, "{view.name}"{chosen}).save("{view.name}.html")'])


def _trace(
    view: View, runs: Sequence[str], text: str | None, given: Mapping[str, Any], loaded: str
) -> list[str]:
    if view.of == "history":
        return ["", f"trace = an.history({', '.join(map(repr, runs))})"]
    if view.of == "film":
        return ["from anaphora.probe.film import film", "", f"trace = film({', '.join(map(repr, runs))})"]
    model = f"m = {loaded}"
    named = dict(given) | ({"what": view.what} if view.what else {})
    more = "".join(f", {key}={value!r}" for key, value in named.items())
    if view.of == "vectors":
        asked = f"asked = Asked(m, {runs[0]!r})"
        typed = f"asked.typed({text!r})" if text and text.strip() else ""
        return [
            "from anaphora.tasks.looking import Asked",
            "",
            model,
            asked,
            f"trace = asked.vectors({typed})",
        ]
    if view.of == "dev":
        lines = [line for line in (text or "").splitlines() if line.strip()] if view.lines else []
        return [
            "from anaphora.tasks.gathered import gather",
            "from anaphora.tasks.looking import Asked",
            "",
            model,
            f"trace = gather(Asked(m, {runs[0]!r}), {view.what[0]!r}{f', {lines!r}' if lines else ''})",
        ]
    if view.of != "probe":
        return [""]
    if text is not None and re.match(r"\s*#[0-9]", text):  # a dev example of the run
        find = f"x, facts = Asked(m, {runs[0]!r}).find({text!r})"
        return [
            "from anaphora.tasks.looking import Asked",
            "",
            model,
            find,
            f"trace = m.probe(x{more})",
            "trace.facts |= facts",
        ]
    shown = text if text is not None else ("TEXT" if view.typed else "FILE")
    return ["", model, f"trace = m.probe({shown!r}{more})"]
