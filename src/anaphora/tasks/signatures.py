"""The signature and the help of each estimator, made of the settings of its task. Nothing here imports torch.

``python -m anaphora.tasks.signatures`` writes `anaphora.tasks.keywords`, the same for type checkers and editors.
"""

from __future__ import annotations

import inspect
import re
import textwrap
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from anaphora.files.writing import replace_file
from anaphora.settings.base import Settings
from anaphora.tasks.info import Preset, TaskInfo

WIDTH = 108
_HEAD = '''"""The keyword arguments of the estimators, for type checkers and editors. Generated: do not edit.

Write it again with ``python -m anaphora.tasks.signatures`` after a setting or a preset has changed.
"""

from __future__ import annotations

'''


_IMPORTS = {
    "collections.abc": ("Callable", "Mapping", "Sequence"),
    "typing": ("Any", "Literal", "TypedDict"),
}


def homes(task: TaskInfo) -> dict[type[Settings], list[str]]:
    """The names of the settings of a task, ``model`` left out, by the class that declares them."""
    found: dict[type[Settings], list[str]] = {task.settings: []}
    for name in task.settings.model_fields:
        if name != "model":
            home = next(c for c in task.settings.__mro__ if name in vars(c).get("__annotations__", {}))
            found.setdefault(home, []).append(name)
    return found


def groups(task: TaskInfo) -> dict[str, list[str]]:
    """The settings of a task by the title of their group: those of the task itself first, training last."""
    found = {
        task.name if home is task.settings else _title(home): names for home, names in homes(task).items()
    }
    return dict(sorted(found.items(), key=lambda item: _LAST.index(item[0]) if item[0] in _LAST else -1))


_LAST = ("Search", "Sampling", "Training")
_TITLES = {"Seq2Seq": "Encoder and decoder", "Draw": "Sampling"}


def _title(home: type) -> str:
    name = home.__name__.removesuffix("Settings")
    return _TITLES.get(name, "".join(f" {c.lower()}" if i and c.isupper() else c for i, c in enumerate(name)))


def _own_default(task: TaskInfo, preset: Preset, name: str) -> Any:
    usual = task.settings.model_fields[name].get_default(call_default_factory=True)
    return preset.usual.get(name, usual)


def default(task: TaskInfo, name: str) -> Any:
    """What a setting is where neither a preset nor a setting is given."""
    return _own_default(task, task.presets[task.default_preset], name)


class Keywords(inspect.Signature):
    """A signature with many parameters, written over several lines."""

    def __str__(self) -> str:
        return (
            "(\n"
            + "\n".join(
                textwrap.wrap(
                    ", ".join(map(str, self.parameters.values())),
                    WIDTH,
                    initial_indent="    ",
                    subsequent_indent="    ",
                    break_long_words=False,
                    break_on_hyphens=False,
                )
            )
            + "\n)"
        )


def signature(task: TaskInfo) -> Keywords:
    """``(model="lstm", *, tokens="bpe", …)``: every setting with the default of the default preset."""
    keyword = inspect.Parameter.KEYWORD_ONLY
    first = inspect.Parameter("model", inspect.Parameter.POSITIONAL_OR_KEYWORD, default=task.default_preset)
    rest = [
        inspect.Parameter(name, keyword, default=default(task, name))
        for names in groups(task).values()
        for name in names
    ]
    return Keywords([first, *rest])


def describe(task: TaskInfo) -> str:
    """The presets and settings of a task in groups, a line or two each, with their defaults."""
    lines = ["Presets (``model``):", ""]
    for preset in task.presets.values():
        mark = f" (assumed for {preset.assumed})" if preset.assumed else ""
        mark = " (default)" if preset.name == task.default_preset else mark
        lines += _entry(f"{preset.name}{mark}", preset.summary)
    lines += ["", "Settings are keyword arguments. Shown are the defaults of the preset "]
    lines[-1] += f"``{task.default_preset}``; a * marks those that"
    lines += ["other presets change. ``anaphora explain KEY`` says more."]
    for title, names in groups(task).items():
        if names:
            lines += ["", f"{title}:"]
        for name in names:
            changed = {
                repr(_own_default(task, p, name)) for p in task.presets.values() if name in task.used(p.name)
            }
            star = "*" if len(changed) > 1 else ""
            text = _first_sentence(task.settings.model_fields[name].description or "")
            lines += _entry(f"{name} = {default(task, name)!r}{star}", text)
    return "\n".join(lines)


def _entry(head: str, text: str) -> list[str]:
    wide = f"  {head:<28}"
    return textwrap.wrap(text, WIDTH - 4, initial_indent=f"{wide} ", subsequent_indent=" " * 31) or [wide]


def _first_sentence(text: str) -> str:
    """Up to the first full stop outside brackets."""
    for end, sign in enumerate(text):
        closed = text[:end].count("(") == text[:end].count(")")
        if sign == "." and closed and text[end + 1 : end + 2] in (" ", ""):
            return text[:end]
    return text


# ------------------------------------------------------------------ the same as source text


def source(tasks: Sequence[TaskInfo]) -> str:
    """The text of `anaphora.tasks.keywords`: a class for each group of settings, and one for each task."""
    by_task = {task.name: homes(task) for task in tasks}
    shared: dict[type[Settings], list[str]] = {}  # what a group has in every task that has the group
    for found in by_task.values():
        for home, names in found.items():
            shared[home] = [name for name in shared.get(home, names) if name in names]
    text = ""
    for home, names in shared.items():
        if names and not any(home is task.settings for task in tasks):
            title = home.__name__.removesuffix("Settings")
            usual = {name: home.model_fields[name].get_default(call_default_factory=True) for name in names}
            doc = f"{_title(home)}; a preset may change the defaults."
            text += "\n".join(_class(f"{title}Keywords", "TypedDict", doc, home, usual))
    for task in tasks:
        found = by_task[task.name]
        bases = [home for home in found if home is not task.settings and shared[home]]
        rest = [
            name
            for home, names in found.items()
            for name in names
            if home not in bases or name not in shared[home]
        ]
        words = ", ".join(f'"{name}"' for name in task.presets)
        text += f'{task.name}Model = Literal[{words}] | Callable[..., Any]\n"""The presets of `an.{task.name}`, or a model of your own."""\n\n\n'
        above = (
            ", ".join(f"{home.__name__.removesuffix('Settings')}Keywords" for home in bases) or "TypedDict"
        )
        doc = f"The settings of `an.{task.name}`; ``help(an.{task.name})`` shows the defaults."
        usual = {name: default(task, name) for name in rest}
        text += "\n".join(_class(f"{task.name}Keywords", above, doc, task.settings, usual))
    used = {module: [n for n in names if re.search(rf"\b{n}\b", text)] for module, names in _IMPORTS.items()}
    lines = [f"from {module} import {', '.join(names)}\n" for module, names in used.items() if names]
    return _HEAD + "".join(lines) + "\n\n" + text.rstrip() + "\n"


def _class(name: str, bases: str, doc: str, home: type[Settings], usual: Mapping[str, Any]) -> Iterator[str]:
    yield f"class {name}({bases}, total=False):"
    yield f'    """{doc}"""\n'
    for key, value in usual.items():
        yield f"    {key}: {_type_of(home, key)}"
        text = " ".join((home.model_fields[key].description or "").split()).replace("\\", "\\\\")
        yield f'    """{text.rstrip(".")}. Default: {value!r}."""'
    yield "\n\n"


def _type_of(settings: type[Settings], name: str) -> str:
    field = settings.model_fields[name]
    extra = field.json_schema_extra if isinstance(field.json_schema_extra, dict) else {}
    also = [str(extra["also"])] if "also" in extra else []
    also += [str(mark.also) for mark in field.metadata if hasattr(mark, "also")]  # own parts
    return " | ".join(dict.fromkeys([type_text(field.annotation), *also]))


def type_text(kind: Any) -> str:
    """An annotation as it is written: ``int``, ``Literal["a", "b"]``, ``str | None``, ``tuple[int, int]``."""
    origin, args = get_origin(kind), get_args(kind)
    if kind is None or kind is type(None):
        return "None"
    if kind is Any:
        return "Any"
    if origin is typing.Annotated:
        return type_text(args[0])
    if origin is Literal:
        return f"Literal[{', '.join(_quoted(word) for word in args)}]"
    if origin in (Union, types.UnionType):
        return " | ".join(dict.fromkeys(map(type_text, args)))
    if origin is Callable or kind is Callable or origin is typing.get_origin(Callable[..., Any]):
        return "Callable[..., Any]"
    if kind is ...:
        return "..."
    if origin is not None:
        return f"{origin.__name__}[{', '.join(map(type_text, args))}]"
    return kind.__name__ if getattr(kind, "__module__", "") == "builtins" else "Any"


def _quoted(word: Any) -> str:
    return f'"{word}"' if isinstance(word, str) else repr(word)


FILE = Path(__file__).with_name("keywords.py")


def main() -> None:
    """Write the keywords of all tasks."""
    from anaphora.tasks.registry import TASKS

    replace_file(FILE, source(list(TASKS.values())).encode())


if __name__ == "__main__":
    main()
