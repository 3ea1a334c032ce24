"""``anaphora explain``: what a setting means."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option

if TYPE_CHECKING:
    from anaphora.cli.glossary import Entry

EXAMPLES = """
anaphora explain
anaphora explain dropout
anaphora explain muon
anaphora explain --task classify
anaphora explain --task classify --model bilstm
"""

ELSEWHERE = {
    "back_translation": "`anaphora synthesize RUN FILE --back`",
    "ensemble": "`an.ensemble([RUN, RUN])` in Python, and `anaphora synthesize` and `distill` with several runs",
    "self_training": "`anaphora synthesize RUN FILE`, or `anaphora distill RUN DATA --extra FILE`",
    "seeds": "`anaphora train TASK DATA --seeds N`",
}
"""What other words than settings are for."""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_setting

    return complete_setting(ctx, param, incomplete)


def _complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_preset

    return complete_preset(ctx, param, incomplete)


@click.command("explain", cls=Order, examples=EXAMPLES)
@click.argument("key", required=False, shell_complete=_complete)
@click.option("--task", metavar="TASK", help="The settings of this task only.")
@click.option(
    "--model", metavar="PRESET", help="The settings of this preset only.", shell_complete=_complete_preset
)
@json_option
def command(key: str | None, task: str | None, model: str | None, as_json: bool) -> None:
    """Explain the setting KEY: its meaning, its values, its default, and what the presets make of it.

    KEY may also be the name of a preset, a word that a setting can be (muon), or what papers and other libraries call a setting.
    Without KEY all settings are listed, and what `score`, `predict` and `sample` take besides them. The same words are used in
    Python, `--set` and TOML files.
    """
    from anaphora.cli.glossary import entries, options, with_value
    from anaphora.cli.output import emit
    from anaphora.cli.words import find_task
    from anaphora.errors import SettingsError
    from anaphora.settings.base import suggestion
    from anaphora.settings.removed import REMOVED
    from anaphora.settings.synonyms import SYNONYMS
    from anaphora.tasks.registry import TASKS

    asked = [find_task(task)] if task else list(TASKS.values())
    if model:
        presets = dict.fromkeys(name for info in asked for name in info.presets)
        asked = [info for info in asked if model in info.presets]
        if not asked:
            raise SettingsError(
                [
                    f"{model} is not a preset ({', '.join(presets)}).{suggestion(model, list(presets), otherwise='')}"
                ]
            )
    known = {info.name: {entry.key: entry for entry in entries(info, model)} for info in asked}
    if key is None:
        if as_json:
            emit({name: [asdict(entry) for entry in found.values()] for name, found in known.items()})
        else:
            _list(known, model)
            _list_options({info.name: options(info) for info in asked})
        return
    others = {info.name: options(info) for info in asked}
    wanted = key.replace("-", "_").replace(" ", "_").partition("=")[0]
    if _explain(wanted, known, others, as_json=as_json):
        return
    if wanted in REMOVED:
        raise SettingsError([REMOVED[wanted]])
    if wanted in ELSEWHERE:
        raise SettingsError([f"{key} is not a setting: it is {ELSEWHERE[wanted]}."])
    named = {info.command: info.presets[key].summary for info in asked if key in info.presets}
    holding = list(dict.fromkeys(found for info in asked for found in with_value(info, key)))
    if named:
        _tell_presets(key, named, holding, as_json=as_json)
        return
    called, note = SYNONYMS.get(wanted.lower(), ("", ""))
    for meant in holding or [called]:
        about = (
            f"{key} is a value of {', '.join(holding)}:"
            if holding
            else f"{key} is called {meant} here.{note}"
        )
        if meant and _explain(meant, known, others, as_json=as_json, about=about):
            return
    words = [word for found in known.values() for word in found]
    words += [entry.key for found in others.values() for listed in found.values() for entry in listed]
    raise SettingsError([f"{key} is not a setting.{suggestion(wanted, list(dict.fromkeys(words)))}"])


def _explain(
    key: str,
    known: dict[str, dict[str, Entry]],
    others: dict[str, dict[str, list[Entry]]],
    *,
    as_json: bool,
    about: str = "",
) -> bool:
    """Explain a setting, or an option of the commands that use a trained run, after the line ``about``; False where there is none."""
    from anaphora.cli.output import emit, say

    having = {name: found[key] for name, found in known.items() if key in found}
    options = {
        f"{task} ({command})": entry
        for task, commands in others.items()
        for command, found in commands.items()
        for entry in found
        if entry.key == key
    }
    shown = having or options
    if shown and about:
        say(about)
    if shown and as_json:
        emit({name: asdict(entry) for name, entry in shown.items()})
    else:
        for meaning, tasks in _by_meaning(shown).items():
            (_tell if having else _tell_option)(meaning, tasks)
    return bool(shown)


def _tell_presets(name: str, named: dict[str, str], holding: list[str], *, as_json: bool) -> None:
    """What the presets called ``name`` are, by their task, and which settings can be ``name`` as well."""
    from anaphora.cli.output import emit, heading, result, say, table

    if as_json:
        emit({"presets": named, "settings": holding})
        return
    result(f"{heading(name)}  a preset (`--model {name}`)")
    result(table([(f"of {task}", summary) for task, summary in named.items()]))
    more = f", and `anaphora explain {holding[0]}` another meaning of the word" if holding else ""
    say(f"`anaphora explain --model {name}` lists its settings{more}.")


def _list(known: dict[str, dict[str, Entry]], preset: str | None) -> None:
    """Every setting once, in groups; those that only some tasks have name them."""
    from anaphora.cli.output import faint, heading, result, say, table, word

    groups: dict[str, dict[str, list[str]]] = {}
    for task, found in known.items():
        for entry in found.values():
            groups.setdefault(entry.group, {}).setdefault(entry.key, []).append(task)
    own = {name: keys for name, keys in groups.items() if name in known}
    for group, keys in {**{n: k for n, k in groups.items() if n not in known}, **own}.items():
        result(heading(group))
        rows = []
        for key, tasks in keys.items():
            entry = known[tasks[0]][key]
            some = faint(f" ({', '.join(tasks)})") if len(tasks) < len(known) and group not in known else ""
            rows.append((key, word(entry.default), entry.meaning + some))
        result(table(rows))
        result()
    if not preset:
        say(
            "Presets may have other defaults: `--model PRESET` lists those of one, `anaphora explain KEY` explains one."
        )


def _list_options(known: dict[str, dict[str, list[Entry]]]) -> None:
    """What the commands that use a trained run take, by command and task."""
    from anaphora.cli.output import heading, result, table, word

    for task, commands in known.items():
        for command, found in commands.items():
            if found:
                result(heading(f"Options of {command}, {task}"))
                result(table([(entry.key, word(entry.default), entry.meaning) for entry in found]))
                result()


def _tell_option(meaning: str, tasks: dict[str, Entry]) -> None:
    from anaphora.cli.output import heading, result, table, word

    first = next(iter(tasks.values()))
    result(f"{heading(first.key)}  {meaning}")
    default = word(first.default) or "…"
    write = f"anaphora {first.group} RUN … --set {first.key}={default}, or m.{first.group}(…, {first.key}=…) in Python"
    rows = [("values", first.allowed), ("default", word(first.default)), ("write", write)]
    result(table([*rows, ("of", ", ".join(tasks))]))


def _by_meaning(having: dict[str, Entry]) -> dict[str, dict[str, Entry]]:
    """Tasks for which the setting means the same, together."""
    shared: dict[str, dict[str, Entry]] = {}
    for task, entry in having.items():
        shared.setdefault(entry.meaning, {})[task] = entry
    return shared


def _tell(meaning: str, tasks: dict[str, Entry]) -> None:
    from anaphora.cli.output import heading, result, table, word

    first = next(iter(tasks.values()))
    result(f"{heading(first.key)}  {meaning}")
    rows = []
    for name, same in _alike(tasks, "allowed").items():
        rows.append(("values", same.allowed + name))
    for name, same in _alike(tasks, "default").items():
        rows.append(("default", word(same.default) + name))
    for task, entry in tasks.items():
        of = f" ({task})" if len(tasks) > 1 else ""
        rows += [(f"in {name}", word(value) + of) for name, value in entry.presets.items()]
        if entry.unused:
            rows.append(("no effect in", ", ".join(entry.unused) + of))
    default = word(first.default) or "…"
    rows.append(("write", f"--set {first.key}={default}, or {first.key}=… in Python and in a TOML file"))
    rows.append(("of", ", ".join(tasks)))
    result(table(rows))


def _alike(tasks: dict[str, Entry], what: str) -> dict[str, Entry]:
    """Entries that differ in ``what``, each once, under the words that say whose they are."""
    found: dict[str, list[str]] = {}
    for task, entry in tasks.items():
        found.setdefault(str(getattr(entry, what)), []).append(task)
    if len(found) == 1:
        return {"": next(iter(tasks.values()))}
    return {f" ({', '.join(names)})": tasks[names[0]] for names in found.values()}
