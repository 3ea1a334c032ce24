"""From what a page asks for to a picture: checked, bounded, and with models kept that were used last."""

from __future__ import annotations

import inspect
import re
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from anaphora.errors import AnaphoraError, DataError
from anaphora.settings.files import parse_value
from anaphora.studio.runs import Run
from anaphora.views.code import code_for, code_together, opened
from anaphora.views.colour import DARK, LIGHT
from anaphora.views.raster import encoded, painted
from anaphora.views.registry import VIEWS, picture, picture_together, view
from anaphora.views.room import fitted
from anaphora.views.scene import Dot, Image, Label, Path, Rect, Shape
from anaphora.views.view import View
from anaphora.web.cost import cost_of, tokenizer_of

LONGEST_TEXT = 20_000
MOST_RUNS = 8
MOST_COST = 4_000_000
"""Steps (`anaphora.web.cost`) that one look at a typed text may cost."""
LOOKS = 100
"""About how often an explanation has the model read its text."""
MODELS_KEPT = 2
TRACES_KEPT = 8
_OPTION = re.compile(r"[a-z_]{1,20}")


@dataclass(frozen=True)
class Wanted:
    """One request, checked."""

    view: View
    runs: tuple[Run, ...]
    text: str = ""
    target: str = ""
    options: tuple[tuple[str, Any], ...] = ()
    search: tuple[tuple[str, Any], ...] = ()
    """What ``probe`` is given besides the text, such as the beam's width."""
    width: float | None = None
    """How wide pictures may be."""


def read_wanted(name: str, runs: Sequence[Run], query: Mapping[str, str]) -> Wanted:
    """Check a page's words: ``text``, ``target``, ``o.KEY`` for options of the view, ``p.KEY`` for the probe's."""
    chosen = view(name)
    if not 1 <= len(runs) <= MOST_RUNS:
        raise DataError(f"choose from 1 to {MOST_RUNS} runs, not {len(runs)}.")
    text, target = query.get("text", ""), query.get("target", "")
    if max(len(text), len(target)) > LONGEST_TEXT:
        raise DataError(f"the text is longer than {LONGEST_TEXT:,} characters; use a shorter one.")
    if chosen.of == "probe" and not text.strip():
        raise DataError("type a text to look at, or the number of a dev example, such as #1.")
    options = option_values(query, "o.", [option["name"] for option in view_options(chosen)])
    search = option_values(query, "p.", ["beam"])
    for key, value in search:
        if key == "beam" and not (isinstance(value, int) and 1 <= value <= 100):
            raise DataError("beam must be a whole number from 1 to 100.")
    width = query.get("w", "")
    fits = float(width) if re.fullmatch("[0-9]{2,4}", width) else None
    return Wanted(chosen, tuple(runs), text, target, options, search, fits)


def option_values(query: Mapping[str, str], prefix: str, known: Sequence[str]) -> tuple[tuple[str, Any], ...]:
    """What the page gave for the options that are ``known``, by name; an error for another one."""
    found = []
    for key, text in query.items():
        if not key.startswith(prefix):
            continue
        name = key.removeprefix(prefix)
        if not _OPTION.fullmatch(name) or name not in known:
            has = ", ".join(known) or "none"
            raise DataError(f"there is no option {name[:20]!r} here; there are: {has}.")
        if len(text) > 200:
            raise DataError(f"the value of {name} is too long.")
        if text != "":
            value = parse_value(text)
            found.append((name, {"true": True, "false": False}.get(text, value)))
    return tuple(sorted(found))


def view_options(chosen: View) -> list[dict[str, Any]]:
    """Name, kind and default of every option of the view."""
    found = []
    for name, parameter in inspect.signature(chosen.draw).parameters.items():
        if name == "trace":
            continue
        kind = str(parameter.annotation).split(" ")[0]
        found.append({"name": name, "kind": kind, "default": parameter.default})
    return found


def all_views() -> list[dict[str, Any]]:
    """Every view as the page lists it."""
    return [
        {
            "name": v.name,
            "title": v.title,
            "of": v.of,
            "reading": v.reading,
            "caution": v.caution,
            "options": view_options(v),
            "typed": v.typed,
            "lines": v.lines,
            "question": v.question,
        }
        for v in VIEWS.values()
        if v.of != "examples"
    ]


def check_cost(model: Any, texts: Sequence[str], beam: int | None = None, *, times: int = 1) -> None:
    """Raise a `DataError` where a look at typed texts, with so wide a beam and so many ``times``, costs more than `MOST_COST` steps.

    Examples of a run's own data (``#1``) cost what they did in training.
    """
    typed = [text for text in texts if text.strip() and not text.lstrip().startswith("#")]
    if not typed:
        return
    tokenizer = tokenizer_of(model)
    lengths = [len(tokenizer.encode(text)) if tokenizer is not None else len(text.split()) for text in typed]
    cost = cost_of(model, [max(1, length) for length in lengths], {} if beam is None else {"beam": beam})
    if sentence := replace(cost, steps=times * cost.steps).excess(MOST_COST):
        raise DataError(sentence)


class Pictures:
    """Makes pictures; called from one worker thread at a time."""

    def __init__(self) -> None:
        self._models: OrderedDict[tuple[str, float], Any] = OrderedDict()
        self._traces: OrderedDict[Any, Any] = OrderedDict()

    def draw(self, wanted: Wanted) -> dict[str, Any]:
        """One picture for each run (or one of all of them together), as JSON."""
        with fitted(wanted.width):
            drawn = [
                {"run": name, "error": str(made)}
                if isinstance(made, AnaphoraError)
                else self.json(made, name)
                for name, made in self.made(wanted)
            ]
        return {"view": wanted.view.name, "pictures": drawn, "missing": self._missing(wanted)}

    def made(self, wanted: Wanted) -> list[tuple[str, Any]]:
        """The pictures with the names of their runs; of several runs, one that has none gives the reason instead."""
        options = dict(wanted.options)
        if wanted.view.of in ("history", "film"):
            from anaphora.probe.film import film
            from anaphora.probe.history import history

            read = history if wanted.view.of == "history" else film
            trace = read(*dict.fromkeys(run.path for run in wanted.runs))
            names = [run.name for run in wanted.runs]
            made = picture(trace, wanted.view.name, **options)
            made.code = code_for(wanted.view, options, runs=names)
            return [(", ".join(names), made)]
        if wanted.view.together is not None and len(wanted.runs) > 1:
            return self._together(wanted)
        found: list[tuple[str, Any]] = []
        for run in wanted.runs:
            try:
                made = picture(self.trace(wanted, run), wanted.view.name, **options)
                model = self.model_of(run)[0].model
                given = self.given(wanted, model)
                takes_text = {"vectors": model.embeds_inputs, "dev": wanted.view.lines}
                given_text = wanted.text if takes_text.get(wanted.view.of, True) else ""
                made.code = code_for(
                    wanted.view, options, runs=[run.name], text=given_text, given=given, frame=run.frame
                )
                found.append((run.shown, made))
            except AnaphoraError as error:
                if len(wanted.runs) == 1:
                    raise
                found.append((run.shown, error))
        return found

    def _together(self, wanted: Wanted) -> list[tuple[str, Any]]:
        """One picture of all runs that have it, and the reasons of the others.

        Where nothing was given to put out, all are made to put out what the first one does: rows are the same symbols then.
        """
        options = dict(wanted.options)
        traces: dict[str, Any] = {}
        used: list[tuple[str, str]] = []
        given: list[dict[str, Any]] = []
        refused: list[tuple[str, Any]] = []
        for run in wanted.runs:
            try:
                trace = self.trace(wanted, run)
                if reason := wanted.view.missing(trace):
                    raise AnaphoraError(reason)
            except AnaphoraError as error:
                refused.append((run.shown, error))
                continue
            if not traces and not wanted.target and wanted.view.name == "alignment":
                output = trace.facts.get("output_text")
                wanted = replace(wanted, target=output) if output else wanted
            name = run.shown if run.shown not in traces else f"{run.shown} ({len(traces) + 1})"
            traces[name] = trace
            used.append((name, opened(run.name, run.frame)))
            given.append(self.given(wanted, self.model_of(run)[0].model) if len(traces) > 1 else {})
        if not traces:
            raise refused[0][1]
        made = picture_together(traces, wanted.view.name, **options)
        made.code = code_together(wanted.view, options, used, wanted.text, given)
        return [(", ".join(traces), made), *refused]

    def _missing(self, wanted: Wanted) -> dict[str, str]:
        """For the first run and this text: which other views cannot be drawn, and why."""
        if wanted.view.of != "probe":
            return {}
        try:
            trace = self.trace(wanted, wanted.runs[0])
        except AnaphoraError:
            return {}
        # gradients and ablations are computed on request only, so their absence says nothing yet
        shown = [v for v in VIEWS.values() if v.of == "probe" and (v.name == "heads" or not v.what)]
        reasons = {v.name: v.missing(trace) for v in shown}
        return {name: reason for name, reason in reasons.items() if reason}

    def trace(self, wanted: Wanted, run: Run) -> Any:
        asked, stamp = self.model_of(run)
        model = asked.model
        text = wanted.text if wanted.view.of != "dev" or wanted.view.lines else ""
        key = (run.id, stamp, wanted.view.of, text, wanted.target, wanted.search, wanted.view.what)
        if key not in self._traces:
            typed = wanted.text.splitlines() if wanted.view.lines else [text, wanted.target]
            given = self.given(wanted, model)
            check_cost(model, typed, given.get("beam"), times=LOOKS if wanted.view.what else 1)
            if wanted.view.of == "dev":
                from anaphora.tasks.gathered import gather

                made = gather(
                    asked, wanted.view.what[0], wanted.text.splitlines() if wanted.view.lines else ()
                )
            elif wanted.view.of == "vectors":
                made = asked.vectors(asked.typed(wanted.text) if model.embeds_inputs else None)
            else:
                given = self.given(wanted, model)
                check_cost(
                    model,
                    (wanted.text, wanted.target),
                    given.get("beam"),
                    times=LOOKS if wanted.view.what else 1,
                )
                probe = _asked(model, "probe", run)
                if wanted.view.what:
                    given["what"] = wanted.view.what
                x, facts = asked.find(wanted.text)
                made = probe(x, **given)
                made.facts |= facts
            self._traces[key] = made
        self._traces.move_to_end(key)
        while len(self._traces) > TRACES_KEPT:
            self._traces.popitem(last=False)
        return self._traces[key]

    def given(self, wanted: Wanted, model: Any) -> dict[str, Any]:
        """What ``probe`` of this model is given besides the input, of that which the page asks for."""
        given = dict(wanted.search) | ({"target": wanted.target} if wanted.target else {})
        taken = {"target"} | ({"beam"} & model.task().predicting.model_fields.keys())
        if model.command in ("language", "forecast"):  # nothing can be given for them to put out
            taken = set()
        return {name: value for name, value in given.items() if name in taken}

    def model_of(self, run: Run) -> tuple[Any, float]:
        """The run's model in an `Asked`, which finds the inputs it is asked about, and when it was written."""
        from anaphora.tasks.load import load
        from anaphora.tasks.looking import Asked

        weights = run.path / "model.safetensors"
        try:
            stamp = weights.stat().st_mtime
        except OSError:
            raise AnaphoraError(
                "the run has not written its weights yet; wait for its first checkpoint."
            ) from None
        key = (run.id, stamp)
        if key not in self._models:
            self._models[key] = Asked(load(run.path, device="cpu", frame=run.frame), run.path)
        self._models.move_to_end(key)
        while len(self._models) > MODELS_KEPT:
            self._models.popitem(last=False)
        return self._models[key], stamp

    def json(self, made: Any, run: str) -> dict[str, Any]:
        chart = made.chart
        scene = chart.scene()
        head, rows = chart.table()
        return {
            "run": run,
            "title": chart.title,
            "description": scene.description,
            "width": scene.width,
            "height": scene.height,
            "shapes": [_shape(shape) for shape in scene.shapes],
            "reading": chart.reading,
            "caution": chart.caution,
            "notes": chart.notes,
            "table": {"head": head, "rows": rows[:2000]},
            "code": made.code,
            "grid": chart.page_data(),
        }


def _asked(model: Any, name: str, run: Run) -> Any:
    method = getattr(model, name, None)
    if method is None:
        raise AnaphoraError(f"{run.name} is a {type(model).__name__}, which this view cannot look into.")
    return method


_KINDS = {Rect: "rect", Label: "text", Path: "path", Dot: "dot"}


def _shape(shape: Shape) -> dict[str, Any]:
    """A shape as JSON; what is empty or usual is left out, since a picture may have many thousands."""
    if isinstance(shape, Image):
        return _image(shape)
    usual = {"radius": 0.0, "title": "", "data": (), "size": 12.0, "anchor": "start", "angle": 0.0}
    usual |= {"bold": False, "filled": False, "opacity": 1.0, "dashed": False, "spans": ()}
    fields = {key: value for key, value in asdict(shape).items() if usual.get(key, ...) != value}
    fields = {key: round(v, 2) if isinstance(v, float) else v for key, v in fields.items()}
    if isinstance(shape, Path):
        fields["points"] = [[round(x, 2), round(y, 2)] for x, y in shape.points]
    if "data" in fields:
        fields["data"] = dict(fields["data"])
    return {"kind": _KINDS[type(shape)], **fields}


def _image(shape: Image) -> dict[str, Any]:
    """Pixels as a PNG in base 64; steps of the scale once for each theme."""
    themes = {"png": LIGHT} if shape.pixels.ndim == 3 else {"png": LIGHT, "dark": DARK}
    place = {name: round(getattr(shape, name), 2) for name in ("x", "y", "width", "height")}
    png = {name: encoded(painted(shape.pixels, theme)) for name, theme in themes.items()}
    return {"kind": "image", "role": "page", **place, "title": shape.title, **png}
