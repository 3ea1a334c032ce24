"""``anaphora models``: the presets of each task."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora models
anaphora models translate --json
"""


@click.command("models", cls=Order, examples=EXAMPLES)
@click.argument("task", required=False)
@json_option
def command(task: str | None, as_json: bool) -> None:
    """List the presets (`--model`) of TASK, or of every task, with the settings each of them changes."""
    from anaphora.cli.output import emit, faint, heading, result, say, table, word, wrapped
    from anaphora.cli.words import find_task
    from anaphora.tasks.registry import TASKS

    shown = [find_task(task)] if task else list(TASKS.values())
    if as_json:
        emit({info.command: _facts(info) for info in shown})
        return
    for info in shown:
        result(wrapped(f"{info.command}  {info.summary}", first=heading(info.command)))
        result(faint(wrapped(f"  data: {info.data_help}")))
        rows = []
        for preset in info.presets.values():
            star = "*" if preset.name == info.default_preset else "+" if preset.assumed else " "
            where = f" Assumed for {preset.assumed}." if preset.assumed else ""
            changes = ", ".join(f"{key}={word(value)}" for key, value in preset.usual.items())
            rows.append((f"{star} {preset.name}", preset.summary + where))
            rows.append(("", f"{changes or 'the default settings'}"))
        result(table(rows))
    say(
        "* is taken when no --model is given; + is assumed instead for the data that it names. `anaphora explain` lists the settings."
    )


def _facts(info: Any) -> dict[str, Any]:
    return {
        "name": info.name,
        "summary": info.summary,
        "data": info.data_help,
        "default": info.default_preset,
        "presets": {
            preset.name: {
                "summary": preset.summary,
                "assumed": preset.assumed or None,
                "defaults": preset.usual,
                "unused": sorted(info.unused(preset.name)),
            }
            for preset in info.presets.values()
        },
    }
