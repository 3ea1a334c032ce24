"""One input explained: the model's answer, what it rests on, and the view that says most about the model."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError, DataError
from anaphora.probe.answers import answer_of
from anaphora.probe.trace import Trace
from anaphora.studio.pictures import Pictures, Wanted, read_wanted
from anaphora.studio.runs import Run
from anaphora.views.attribution import METHODS, totals
from anaphora.views.code import code_for
from anaphora.views.registry import FIRST, VIEWS, picture
from anaphora.views.room import fitted

MOST_TOKENS = 600
"""Symbols that are coloured one by one on the page."""


def explained(pictures: Pictures, run: Run, query: Mapping[str, str]) -> dict[str, Any]:
    """The explanation of ``text``, or where there is none of dev example ``example``, as JSON."""
    asked, _ = pictures.model_of(run)
    text, example = query.get("text", ""), None
    facts: dict[str, Any] = {}
    if not text.strip():
        text, example, facts = example_text(asked, query.get("example", "1"))
    wanted = read_wanted("attribution", [run], {**query, "text": text})
    output = dict(wanted.options).get("output")
    trace = _attributed(pictures, wanted, run)
    found = {
        "run": run.shown,
        "text": text,
        "kind": asked.model._inputs(),
        "example": example,
        "examples": count_of(asked),
        "reference": str(trace.facts.get("reference") or facts.get("reference") or ""),
        "answer": answer_of(trace),
        "input": _input(trace, output, symbols=asked.model._inputs() != "numbers"),
        "code": code_for(
            VIEWS["attribution"], dict(wanted.options), runs=[run.name], text=text, frame=run.frame
        ),
        "difference": trace.max_difference,
    }
    with fitted(wanted.width):
        found["picture"], found["view"] = _telling(pictures, trace, run, wanted, text)
        found["drawn"] = _drawn(pictures, trace, run, found["input"])
    return found


def example_text(asked: Any, number: str) -> tuple[str, int, dict[str, Any]]:
    """What stands in the page's box for a dev example: its text, or its number where it cannot be typed."""
    wanted = int(number) if number.isascii() and number.isdigit() and len(number) < 10 else 1
    if asked.model._inputs() != "text":
        return f"#{wanted}", wanted, {}
    x, reference = asked.example(wanted)
    return (x if isinstance(x, str) else " ".join(map(str, x))), wanted, {"reference": _spelled(reference)}


def _spelled(reference: Any) -> str:
    return reference if isinstance(reference, str) else " ".join(map(str, reference))


def count_of(asked: Any) -> int | None:
    with contextlib.suppress(AnaphoraError, TypeError, OSError):
        return int(asked.count())
    return None


def _attributed(pictures: Pictures, wanted: Wanted, run: Run) -> Trace:
    """The trace with the attribution where the model has one, without it otherwise."""
    try:
        trace: Trace = pictures.trace(wanted, run)
    except DataError:
        raise
    except AnaphoraError:
        plain = Wanted(VIEWS["states"], (run,), wanted.text, wanted.target, (), wanted.search)
        trace = pictures.trace(plain, run)
    return trace


def _input(trace: Trace, output: Any, *, symbols: bool) -> dict[str, Any] | None:
    """The symbols of the input and what each method gives them; None where there are no symbols to colour."""
    there = [name for name in METHODS if name in trace.arrays]
    if not there:
        return None
    array = trace.arrays[there[0]]
    axis = array.axes[-1]
    known = dict(trace.facts.get("attribution", {}))
    tokens = trace.tokens.get(axis)
    if not symbols or array.axes == ("row", "column") or tokens is None or len(tokens) > MOST_TOKENS:
        return {"tokens": None, "methods": {}, **known}
    chosen = (
        output
        if isinstance(output, int) and len(array.axes) == 2 and 1 <= output <= len(array.values)
        else None
    )
    methods = {name: np.round(totals(trace, name, chosen), 6).tolist() for name in there}
    return {"tokens": tokens, "methods": methods, "output": chosen, "outputs": len(array.axes) == 2, **known}


def _telling(
    pictures: Pictures, trace: Trace, run: Run, wanted: Wanted, text: str
) -> tuple[dict[str, Any] | None, str]:
    """The first of the telling views that this trace has."""
    for name in FIRST:
        if VIEWS[name].missing(trace) is None:
            made = picture(trace, name)
            given = pictures.given(wanted, pictures.model_of(run)[0].model)
            made.code = code_for(VIEWS[name], {}, runs=[run.name], text=text, given=given, frame=run.frame)
            return pictures.json(made, run.name), name
    return None, ""


def _drawn(pictures: Pictures, trace: Trace, run: Run, found: dict[str, Any] | None) -> dict[str, Any] | None:
    """The attribution as a picture, where the input is no row of symbols."""
    if found is None or (found["tokens"] is not None and "picture_occlusion" not in trace.arrays):
        return None
    return pictures.json(picture(trace, "attribution"), run.name)


def able(pictures: Pictures, run: Run) -> dict[str, str | None]:
    """For each view None if this run can give it, else the reason, found by looking at its first dev example."""
    from anaphora.probe.history import history
    from anaphora.tasks.gathered import why_not
    from anaphora.training.film import frames
    from anaphora.training.run import RunFolder

    reasons: dict[str, str | None] = {}
    traces: dict[str, Trace | str] = {}
    with _told(traces, "history"):
        traces["history"] = history(run.path)
    asked = None
    with _told(traces, "vectors"):
        asked, _ = pictures.model_of(run)
        traces["vectors"] = asked.vectors()
    with _told(traces, "probe"):
        if asked is None:
            raise AnaphoraError(str(traces["vectors"]))
        traces["probe"] = _looked_at(asked)
    for name, view in VIEWS.items():
        if view.of == "dev":
            reasons[name] = str(traces["vectors"]) if asked is None else why_not(asked, view.what[0])
            continue
        if view.of == "film":  # looked for, not read: that takes all of its frames
            kept = len(frames(RunFolder(run.path))) > 1
            reasons[name] = None if kept else "the run has kept no film of its training (setting film)."
            continue
        trace = traces.get(view.of, f"`anaphora study {name}` draws it.")
        if isinstance(trace, str):
            reasons[name] = trace
        elif view.of == "history":
            empty = not any(trace.tables.get(need) for need in view.needs)
            reasons[name] = "the run has journaled nothing of it." if empty else None
        else:
            reasons[name] = view.missing(trace)
    return reasons


@contextlib.contextmanager
def _told(traces: dict[str, Trace | str], kind: str) -> Any:
    try:
        yield
    except AnaphoraError as error:
        traces[kind] = str(error)


def _looked_at(asked: Any) -> Trace:
    """A trace of the first dev example with all that views ask for; what one model refuses another has."""
    from anaphora.tasks.looking import SLOW, beginning

    x = asked.first()
    trace: Trace = asked.model.probe(x)
    needed = dict.fromkeys(one for view in VIEWS.values() if view.of == "probe" for one in view.what)
    for one in needed:
        with contextlib.suppress(AnaphoraError):
            more: Trace = asked.model.probe(beginning(x) if one in SLOW else x, what=(one,))
            if one in SLOW:  # of other places than the rest
                more.arrays = {name: a for name, a in more.arrays.items() if name not in trace.arrays}
                more.tables = {}
            trace.arrays.update(more.arrays)
            trace.tables.update(more.tables)
    trace.facts["asked"] = list(needed)
    return trace
