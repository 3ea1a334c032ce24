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
anaphora explain --json
"""


def _complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_setting

    return complete_setting(ctx, param, incomplete)


@click.command("explain", cls=Order, examples=EXAMPLES)
@click.argument("key", required=False, shell_complete=_complete)
@json_option
def command(key: str | None, as_json: bool) -> None:
    """Say what the setting KEY means, which values it takes, its default and what the presets make of it.

    Without KEY all settings are listed. The same words are used in Python, `--set` and TOML files.
    """
    from anaphora.cli.glossary import entries
    from anaphora.cli.output import emit
    from anaphora.errors import SettingsError
    from anaphora.settings.base import suggestion
    from anaphora.tasks.registry import TASKS

    known = {task.name: {entry.key: entry for entry in entries(task)} for task in TASKS.values()}
    if key is None:
        if as_json:
            emit({task: [asdict(entry) for entry in found.values()] for task, found in known.items()})
        else:
            for task, found in known.items():
                _list(task, list(found.values()))
        return
    wanted = key.replace("-", "_").partition("=")[0]
    having = {task: found[wanted] for task, found in known.items() if wanted in found}
    if not having:
        words = list(dict.fromkeys(word for found in known.values() for word in found))
        raise SettingsError([f"{key} is not a setting.{suggestion(wanted, words)}"])
    if as_json:
        emit({task: asdict(entry) for task, entry in having.items()})
        return
    for task, entry in having.items():
        _tell(task, entry)


def _list(task: str, found: list[Entry]) -> None:
    from itertools import groupby

    from anaphora.cli.output import heading, result, say, table, word

    for group, members in groupby(found, key=lambda entry: entry.group):
        result(heading(group))
        result(table([(entry.key, word(entry.default), entry.meaning) for entry in members]))
        result()
    say(f"These are the settings of {task} with their defaults; `anaphora explain KEY` says more about one.")


def _tell(task: str, entry: Entry) -> None:
    from anaphora.cli.output import heading, result, table, word

    result(f"{heading(entry.key)}  {entry.meaning}")
    rows = [("values", entry.allowed), ("default", word(entry.default))]
    rows += [(f"in {name}", word(value)) for name, value in entry.presets.items()]
    if entry.unused:
        rows.append(("no effect in", ", ".join(entry.unused)))
    rows.append(
        ("write", f"--set {entry.key}={word(entry.default)}, or {entry.key}=… in Python and in a TOML file")
    )
    rows.append(("of", task))
    result(table(rows))
