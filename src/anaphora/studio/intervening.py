"""Changes inside a model that the page asks for, with what they do to its answer: the numbers of `m.effect`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from anaphora.errors import AnaphoraError, DataError
from anaphora.files import parse_json
from anaphora.probe.answers import answer_of
from anaphora.probe.interventions import Attend, Clamp, Intervention, Noise, Patch, Silence
from anaphora.probe.trace import Trace
from anaphora.studio.panels import Panel, input_of
from anaphora.studio.pictures import LONGEST_TEXT, Pictures
from anaphora.studio.runs import Run
from anaphora.views.code import opened
from anaphora.views.registry import FIRST, VIEWS, picture_together
from anaphora.views.room import fitted

KINDS: dict[str, type[Intervention]] = {
    kind.__name__: kind for kind in (Silence, Clamp, Noise, Attend, Patch)
}
MOST = 8
"""Changes at once."""
READING = (
    "What the model answers with something inside it changed. Δ loss is the mean of −log p a symbol of the answer it gave before (or of the "
    "output you ask for), after minus before: above 0, what was changed spoke for that answer."
)
CAUTION = (
    "A model is not made to work without a part: what breaks when it is gone need not be what it was for."
)
_HEADS = {
    "attention": "",
    "cross_attention": "cross",
    "self_attention": "decoder",
    "encoder_attention": "encoder",
}


def intervened(pictures: Pictures, run: Run, query: Mapping[str, str]) -> dict[str, Any]:
    """The answer before and after the changes ``s.do`` (JSON), and where changes can be made, as JSON."""
    asked, _ = pictures.model_of(run)
    given, target = input_of(pictures, run, query, times=2), query.get("target", "")
    text, x = given.text, given.x
    if len(target) > LONGEST_TEXT:
        raise DataError(f"the text is longer than {LONGEST_TEXT:,} characters; use a shorter one.")
    written = _read(query.get("s.do", ""))
    changes = [
        Patch(**{**vars(one), "source": asked.find(str(one.source))[0]})
        if isinstance(one, Patch) and one.source is not None
        else one
        for one in written
    ]
    effect = asked.model.effect(x, changes, target or None)
    width = query.get("w", "")
    with fitted(float(width) if width.isascii() and width.isdigit() and len(width) < 5 else None):
        drawn, view = _drawn(pictures, effect.before, effect.after, run)
    lines = ["import anaphora as an", ""]
    shown = repr(text)
    if text.lstrip().startswith("#") and asked.model._inputs() != "text":
        lines.insert(1, "from anaphora.tasks.looking import Asked")
        shown = f"Asked(m, {run.name!r}).find({text!r})[0]"
    listed = ", ".join(one.code() for one in written)
    asked_for = f", {target!r}" if target else ""
    lines += [f"m = {opened(run.name, run.frame)}", f"found = m.effect({shown}, [{listed}]{asked_for})"]
    lines += ["print(found.delta, found)"]
    return {
        **given.facts,
        "reading": READING,
        "caution": CAUTION,
        "before": answer_of(effect.before),
        "after": answer_of(effect.after),
        "wanted": effect.wanted if isinstance(effect.wanted, str) else None,
        "loss": [effect.loss_before, effect.loss_after],
        "delta": effect.delta,
        "changes": [{"kind": type(one).__name__, "code": one.code()} for one in written],
        "places": places(effect.before, sided=hasattr(asked.model.model_, "decoder")),
        "picture": drawn,
        "view": view,
        "code": "\n".join(lines),
    }


def _read(text: str) -> list[Intervention]:
    try:
        given = parse_json(text or "[]")
    except ValueError:
        raise DataError("the changes must be a list as JSON.") from None
    if not isinstance(given, list) or len(given) > MOST:
        raise DataError(f"give a list of at most {MOST} changes.")
    found = []
    for one in given:
        words = dict(one) if isinstance(one, dict) else {}
        kind = KINDS.get(str(words.pop("kind", "")))
        if kind is None:
            raise DataError(f"a change is one of {', '.join(KINDS)}.")
        try:
            found.append(kind(**words))
        except TypeError:
            raise DataError(f"{kind.__name__} takes other words than {json.dumps(words)[:200]}.") from None
    return found


def places(trace: Trace, *, sided: bool = True) -> dict[str, list[dict[str, Any]]]:
    """What can be changed: ``heads`` (where, layers, heads, and the symbols that look and are looked at) and ``states`` (where,
    layers, the directions of those that read both ways, units and symbols). Heads are 0 where an attention has but one score for each pair. A model that is not ``sided`` has
    one part: what its trace names by encoder and decoder (a transducer's) is not listed."""
    heads, states = [], []
    for name, array in trace.arrays.items():
        if name in _HEADS and len(array.axes) == 4:
            layers, count = array.values.shape[:2]
            rows, columns = (trace.names(name, axis) for axis in array.axes[2:])
            heads.append(
                {"where": _HEADS[name], "layers": layers, "heads": count, "rows": rows, "columns": columns}
            )
        elif name == "alignment" and "cross_attention" not in trace.arrays:
            rows, columns = (trace.names(name, axis) for axis in array.axes)
            heads.append({"where": "cross", "layers": 1, "heads": 0, "rows": rows, "columns": columns})
        elif name in ("states", "encoder_states", "decoder_states") and array.axes[0] == "layer":
            known = trace.layers(name)
            ways = sorted({one.direction for one in known if one.direction}, reverse=True)
            states.append(
                {
                    "where": name.removesuffix("states").rstrip("_"),
                    "layers": max(one.number for one in known),
                    "directions": ways if len(ways) > 1 else [],
                    "units": array.values.shape[2],
                    "places": trace.names(name, array.axes[1]),
                }
            )
    if not sided:
        heads, states = ([one for one in found if not one["where"]] for found in (heads, states))
    return {"heads": heads, "states": states}


def _drawn(pictures: Pictures, before: Trace, after: Trace, run: Run) -> tuple[dict[str, Any] | None, str]:
    """The most telling view of both, on one scale."""
    for name in FIRST:
        view = VIEWS[name]
        if view.missing(after) is None:
            try:
                both = {"before": before, "after": after}
                return pictures.json(picture_together(both, name, beside=True), run.shown), name
            except AnaphoraError:
                continue
    return None, ""


def _why_not(model: Any) -> str | None:
    if hasattr(model.model_, "named_modules"):
        return None
    return "the model is no network, so there is nothing inside it to change."


PANEL = Panel("intervene", "Intervene", "explain", READING, intervened, _why_not)
