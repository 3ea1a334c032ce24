"""Pages of the reference that are generated from the code: every public name, every view, every file format."""

from __future__ import annotations

import importlib
import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import anaphora
from anaphora.learn.page import documentation
from anaphora.learn.site.markdown import anchor
from anaphora.nn.cell import Cell
from anaphora.tasks.estimator import Estimator

ROOMS = {
    "anaphora": "Estimators and classical models",
    "anaphora.nn": "Cells and layers",
    "anaphora.nn.attention": "Attention",
    "anaphora.nn.attention.masks": "Masks",
    "anaphora.nn.positions": "Positions",
    "anaphora.nn.transformer": "Transformer blocks",
    "anaphora.nn.linear": "Linear recurrences",
    "anaphora.nn.inside": "Record and change what happens inside",
    "anaphora.search": "Search",
    "anaphora.probe.trace": "Traces",
    "anaphora.probe.classical": "Traces of HMMs and Kalman filters",
    "anaphora.probe.ctc": "Traces of CTC",
    "anaphora.probe.vectors": "Traces of vectors",
    "anaphora.probe.film": "Traces of weights while they were trained",
    "anaphora.data.audio.files": "Files of sound",
    "anaphora.data.audio.features": "Features of sound",
    "anaphora.data.audio.augment": "Augmentation of sound",
    "anaphora.data.audio.warping": "Other speakers' frequencies",
    "anaphora.data.audio.rooms": "Rooms, microphones and pitch",
    "anaphora.data.corpora": "Embedded corpora",
    "anaphora.errors": "Errors",
    "anaphora.learn": "Lessons and exercises",
    "anaphora.runtime": "The runtime without torch",
}
"""Modules whose public names have a page, and what it is called."""
_INTERNAL = ("from_folder", "from_recipe", "artifacts", "recipe_in_use", "write")
"""Methods that other modules of ours call and users do not need."""
_EVERY = "What all estimators have: `Answerer`, `Captioner`, `Classifier`, `Embedder`, `Forecaster`, `LanguageModel`, `Tagger`, `Transcriber` and `Translator`."
_FIRST = ("Settings are keyword arguments.", "Presets (``model``):")
"""Where the docstring of an estimator begins to list settings, which have pages of their own."""


def pages() -> dict[str, str]:
    """Name → Markdown: ``api-nn``, … , ``views``, ``formats``."""
    found = {_page(name): _room(name) for name in ROOMS}
    return {**found, "views": _views(), "formats": _formats()}


def public(room: str) -> Iterator[tuple[str, Any]]:
    """The public classes and functions of a module, by name: those in its ``__all__``, else those that it defines."""
    module = importlib.import_module(room)
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", "") == room]
    for name in sorted(getattr(module, "__all__", own), key=str.lower):
        value = getattr(module, name)
        if not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value)):
            yield name, value


def spoken(room: str) -> str:
    """What examples call a module: ``an.nn`` after ``import anaphora as an``; one that ``an`` does not have by its full name."""
    first = room.split(".")[1:2]
    return room.replace("anaphora", "an", 1) if not first or first[0] in anaphora.__all__ else room


def _room(room: str) -> str:
    short = spoken(room)
    needs = "`import torch`, `import numpy as np` and `import anaphora as an`"
    about = f"`{room}`. {_first(importlib.import_module(room))} Examples need {needs}."
    parts = [f"# API: {ROOMS[room]}", about]
    for name, value in public(room):
        parts += [f"## {short}.{name}", _signature(f"{short}.{name}", value), described(value)]
        if inspect.isclass(value):
            bases, further = _own_part(value)
            parts += [*_members(value, bases), further]
    if room == "anaphora":
        parts += ["## Every estimator", _EVERY, *_members(Estimator, Estimator.__mro__)]
    return _linked("\n\n".join(part for part in parts if part), _page(room)) + "\n"


def _own_part(value: type) -> tuple[Sequence[type], str]:
    """The classes whose members are described with ``value``, and a sentence about the rest: a base with a section of its own has
    that there, and so has what all estimators share."""
    for place, base in enumerate(value.__mro__[1:], start=1):
        if base is Estimator:
            return value.__mro__[:place], "Further methods are those of [every estimator](#every-estimator)."
        if base.__module__.startswith("anaphora") and base.__name__ in _homes():
            return value.__mro__[:place], f"Further methods are those of `{base.__name__}`."
    return value.__mro__, ""


def _page(room: str) -> str:
    return f"api-{room.removeprefix('anaphora').strip('.').replace('.', '-') or 'anaphora'}"


def _linked(text: str, page: str) -> str:
    """The names of public classes in backticks as links to where they are described; not in blocks of code, nor in headings."""
    homes = _homes()

    def link(match: re.Match[str]) -> str:
        home, place = homes.get(match[1], ("", ""))
        return f"[`{match[1]}`]({'' if home == page else f'{home}.md'}#{place})" if home else match[0]

    pieces = re.split(r"(^```.*?^```$|^#[^\n]*$)", text, flags=re.MULTILINE | re.DOTALL)
    for place in range(0, len(pieces), 2):
        pieces[place] = re.sub(r"(?<!\[)`([A-Z]\w+)`", link, pieces[place])
    return "".join(pieces)


@cache
def _homes() -> dict[str, tuple[str, str]]:
    """Class → its page and the anchor there; of one that several modules offer, the first."""
    found: dict[str, tuple[str, str]] = {}
    for room in ROOMS:
        for name, value in public(room):
            if inspect.isclass(value):
                found.setdefault(name, (_page(room), anchor(f"{spoken(room)}.{name}")))
    return found


def _first(module: Any) -> str:
    return " ".join((inspect.getdoc(module) or "").split("\n\n")[0].split())


def _members(value: type, bases: Sequence[type]) -> list[str]:
    """Public methods and properties that the class, or one of ``bases`` that is ours, defines."""
    parts: list[str] = []
    seen = set(_INTERNAL)
    for base in bases:
        if not base.__module__.startswith("anaphora"):
            continue
        for name, member in vars(base).items():
            function = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if (
                name.startswith("_")
                or name in seen
                or not inspect.isfunction(function)
                or not function.__doc__
            ):
                continue
            seen.add(name)
            title = f"### {value.__name__}.{name}"
            shown = "A property." if isinstance(member, property) else _signature(name, function)
            parts += [title, shown, described(function)]
    return parts


def _signature(name: str, value: Any) -> str:
    """The call in a block of code, a line for each argument where it is long."""
    try:
        found = inspect.signature(value)
        if inspect.isclass(value) and issubclass(value, Cell) and value is not Cell:
            found = inspect.signature(value.setup)  # which gets the arguments of the constructor
            found = found.replace(return_annotation=found.empty)
    except (TypeError, ValueError):
        return ""
    arguments = [one for one in found.parameters.values() if one.name not in ("self", "cls")]
    if len(arguments) > 40:  # an estimator: its settings have pages of their own
        return f"```python\n{name}({arguments[0].name}={arguments[0].default!r}, **settings)\n```"
    texts = [_argument(one) for one in arguments]
    for place, one in enumerate(arguments):
        if (
            one.kind is one.KEYWORD_ONLY
            and "*" not in texts
            and not any(a.kind is a.VAR_POSITIONAL for a in arguments)
        ):
            texts.insert(place, "*")
            break
    back = "" if found.return_annotation in (found.empty, None, "None") else f" -> {found.return_annotation}"
    line = f"{name}({', '.join(texts)}){back}"
    if len(line) > 100:
        line = f"{name}(\n" + "".join(f"    {text},\n" for text in texts) + f"){back}"
    return f"```python\n{line}\n```"


def _argument(one: inspect.Parameter) -> str:
    """``name: kind = default``; annotations are texts in this code base."""
    stars = "*" if one.kind is one.VAR_POSITIONAL else "**" if one.kind is one.VAR_KEYWORD else ""
    kind = "" if one.annotation is one.empty else f": {one.annotation}"
    default = "" if one.default is one.empty else f"{' = ' if kind else '='}{_default(one.default)}"
    return f"{stars}{one.name}{kind}{default}"


def _default(value: Any) -> str:
    """A function or a class by its name, anything else as Python writes it."""
    return str(getattr(value, "__name__", None) or repr(value))


def described(value: Any) -> str:
    """The docstring as Markdown: ``code`` in backticks, equations and examples as blocks."""
    text = inspect.getdoc(value) or ""
    for heading in _FIRST:
        text = text.split(heading)[0]
    text = re.sub(r"``(.+?)``", r"`\1`", text).replace("::\n", ":\n")
    text = re.sub(r":\w+:`~?(?:[\w.]+\.)?(\w+)`", r"`\1`", text)
    return "\n\n".join(_paragraph(part) for part in re.split(r"\n\s*\n", text.strip("\n")) if part.strip())


def _paragraph(text: str) -> str:
    if ">>>" in text:
        return f"```python\n{textwrap.dedent(text)}\n```"
    listed = _arguments(text)
    if listed:
        return listed
    if all(line.startswith("    ") for line in text.split("\n") if line.strip()):
        block = textwrap.dedent(text)
        code = re.search(r"\w\.\w+\(|^import |\"", block, re.MULTILINE)
        return f"```{'python' if code else 'equation'}\n{block}\n```"
    return re.sub(r"<(?=\w)", r"\\<", text)


_ARGUMENT = re.compile(r"(\*{0,2}\w+(?:, \w+)*): (.+)")


def _arguments(text: str) -> str:
    """``name: meaning`` line by line, with or without ``Args:`` above, as a list; empty for other paragraphs."""
    head, _, rest = text.partition("\n")
    lines = textwrap.dedent(rest if head == "Args:" else text).split("\n")
    found: list[str] = []
    for line in lines:
        named = _ARGUMENT.fullmatch(line)
        if named:
            names = ", ".join(f"`{name}`" for name in named[1].split(", "))
            found.append(f"- {names}: {named[2]}")
        elif found and line.startswith(" "):
            found[-1] += f" {line.strip()}"
        else:
            return ""
    return "\n".join(["**Arguments**", "", *found] if head == "Args:" else found if len(found) > 1 else [])


def _views() -> str:
    from anaphora.views.registry import VIEWS

    parts = [
        "# Gallery of views",
        "`anaphora inspect RUN --view NAME` draws one; `--set OPTION=VALUE` changes it. `trace.view(NAME)` does the same in Python.",
    ]
    for view in sorted(VIEWS.values(), key=lambda one: one.name):
        parts += [f"## {view.name}", f"**{view.title}.** {view.reading}", f"*Beware:* {view.caution}"]
        for name in (f"inside-{view.name}.svg", f"{view.name}.svg"):
            if (documentation() / "pictures" / name).is_file():
                parts.append(f"![{view.title}](../pictures/{name})")
                break
        needs = [f"`{name}`" for name in (*view.needs, *(f"…{end}" for end in view.any_of))]
        facts = [("needs", ", ".join(needs)), ("`probe(what=…)`", ", ".join(f"`{w}`" for w in view.what))]
        facts += [
            ("options", ", ".join(f"`{one}`" for one in view.options())),
            ("missing where", view.without),
        ]
        parts.append(
            "\n".join(["| | |", "|---|---|", *(f"| {name} | {text} |" for name, text in facts if text)])
        )
    return "\n\n".join(parts) + "\n"


def _formats() -> str:
    from anaphora.data.sources.formats import formats

    rows = [
        f"| {one.name} | {', '.join(f'`{end}`' for end in one.endings)} | {one.about} |" for one in formats()
    ]
    packed = "Each may be packed: `.gz`, `.bz2`, `.xz`, `.zst` (extra `tables`), `.zip` with one file."
    return "\n".join(
        [
            "# File formats",
            "",
            "Tables, for every task. The format is found by the first bytes, then by the ending, then by how the text looks.",
            "",
            "| format | endings | what it is |",
            "|---|---|---|",
            *rows,
            "",
            packed,
            "",
            "[Bring your data](../guides/data.md) says how columns are chosen. [Run folders](runs.md) lists the files of a run.",
            "",
        ]
    )
