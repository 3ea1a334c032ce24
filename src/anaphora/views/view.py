"""What is known of a view besides how it draws: what it needs of a trace, how it is read, what can be chosen."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from types import ModuleType
from typing import Any

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.picture import Chart

_KINDS: Mapping[str, tuple[tuple[type, ...], str]] = {
    "int": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "str": ((str,), "text"),
    "bool": ((bool,), "true or false"),
}

QUESTIONS = {
    "explain": "What did it answer, and why?",
    "learning": "Did it learn?",
    "memory": "What does it remember?",
    "attention": "Where does it look?",
    "search": "How does it search?",
    "symbols": "What do its vectors say?",
    "errors": "Where is it wrong?",
    "data": "What was it given?",
    "own": "Views of your own",
}
"""Names of the questions that views help to answer, in the order in which they are asked."""


@dataclass(frozen=True)
class View:
    """One kind of picture of a trace."""

    name: str
    title: str
    needs: tuple[str, ...]
    """Names of arrays or tables the trace must hold."""
    reading: str
    caution: str
    without: str
    """Why a trace may lack them, as a sentence."""
    draw: Callable[..., Chart]
    of: str = "probe"
    """What the trace is of: "probe" (one input through a model), "history" (the course of trainings), "film" (their weights), "vectors" (a
    model's symbols), "dev" (many dev examples of a run: ``what`` says which `anaphora.tasks.gathered` gathers) or "examples" (many
    results)."""
    what: tuple[str, ...] = ()
    """What ``probe`` must be given as ``what`` for this view."""
    more: bool = False
    """Whether what it needs is there without ``what`` as well, which only adds to it."""
    any_of: tuple[str, ...] = ()
    """Names of arrays of which the trace must hold at least one; ``*`` stands for any letters."""
    axis: str = ""
    """An axis that this one must have: attention over a picture has no heads, say."""
    typed: bool = True
    """Whether its input can be typed; otherwise it is a file, or a dev example by its number."""
    lines: bool = False
    """Whether it takes texts of the user's, one a line."""
    question: str = "own"
    """The question it helps to answer, one of `QUESTIONS`."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The sentences of ``reading``, each by a part of the title of the chart that it is about."""
    together: Callable[..., Chart] | None = None
    """Draws the traces of several runs, by their names, in one picture; takes the options of ``draw``."""

    def drawn(self, trace: Trace, **options: Any) -> Chart:
        """Draw a trace; the reading speaks only of the charts that are there."""
        chart = self.draw(trace, **options)
        if self.parts:
            titles = [one.title for one in getattr(chart, "charts", [chart])]
            kept = [text for name, text in self.parts.items() if any(name in title for title in titles)]
            chart.reading = " ".join(kept)
        return chart

    def options(self) -> list[str]:
        """Names of what ``draw`` takes besides the trace."""
        return [name for name in inspect.signature(self.draw).parameters if name != "trace"]

    def missing(self, trace: Trace) -> str | None:
        """None if this view can be drawn, else a sentence that says why not."""
        held = {*trace.arrays, *trace.tables}
        some = not self.any_of or any(
            fnmatchcase(name, pattern) and self.axis in ("", *array.axes)
            for name, array in trace.arrays.items()
            for pattern in self.any_of
        )
        if some and {*self.needs} <= held:
            return None
        if not self.more and not {*self.what} <= {*trace.facts.get("asked", ())}:
            return f"The view {self.name} needs a trace of probe(…, what={self.what!r})."
        return f"The view {self.name} cannot be drawn of this trace: {self.without}"

    def check(self, options: Mapping[str, Any]) -> None:
        """A sentence where ``draw`` does not take these: they come from a command line or a page, so names and kinds are
        checked here, once for all views."""
        parameters = inspect.signature(self.draw).parameters
        taken = set(self.options())
        if not set(options) <= taken:
            unknown = ", ".join(sorted(set(options) - taken))
            has = f"it has {', '.join(sorted(taken))}" if taken else "it has none"
            raise AnaphoraError(f"The view {self.name} has no option {unknown}; {has}.")
        for name, value in options.items():
            words = str(parameters[name].annotation).split(" | ")
            if value is None and "None" in words:
                continue
            allowed, said = _KINDS[words[0]]
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                raise AnaphoraError(
                    f"The option {name} of the view {self.name} must be {said}, not {value!r}."
                )


def described(
    module: ModuleType,
    draw: Callable[..., Chart],
    question: str,
    *,
    prefix: str = "",
    name: str = "",
    **more: Any,
) -> View:
    """The view that ``draw`` makes; ``module`` has its words: TITLE, READING and CAUTION, perhaps behind a ``prefix``."""
    title, reading, caution = (getattr(module, prefix + word) for word in ("TITLE", "READING", "CAUTION"))
    needs = tuple(more.pop("needs", ()))
    return View(
        name or draw.__name__,
        title,
        needs,
        reading,
        caution,
        draw=draw,
        question=question,
        parts=getattr(module, f"{prefix}PARTS", {}),
        **more,
    )
