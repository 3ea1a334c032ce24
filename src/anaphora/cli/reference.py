"""Pages of the reference about the command line: every command with its help, and the settings of every task."""

from __future__ import annotations

import click

from anaphora.cli.catalog import SECTIONS
from anaphora.cli.glossary import entries
from anaphora.cli.group import House
from anaphora.cli.output import word
from anaphora.tasks.registry import TASKS, TaskInfo


def pages() -> dict[str, str]:
    """Name → Markdown: ``command-help`` and ``settings-TASK`` for each task."""
    tasks = {f"settings-{task.command}": _settings(task) for task in TASKS.values()}
    return {"command-help": _commands(), **tasks}


def _commands() -> str:
    house = House("anaphora")
    parent = click.Context(house, info_name="anaphora")
    parts = [
        "# Every command",
        "What `anaphora COMMAND --help` prints. [Use the command line](../guides/commands.md) shows them at work.",
    ]
    for section, commands in SECTIONS.items():
        parts.append(f"## {section}")
        for name in commands:
            command = house.get_command(parent, name)
            assert command is not None
            settings = command.context_settings
            context = click.Context(
                command, info_name=name, parent=parent, max_content_width=100, terminal_width=100
            )
            context.help_option_names = settings.get("help_option_names", ["--help"])
            parts.append(f"### anaphora {name}\n\n```text\n{click.unstyle(command.get_help(context))}\n```")
    return "\n\n".join(parts) + "\n"


def _settings(task: TaskInfo) -> str:
    """A table for each group; what presets change stands beside the default."""
    parts = [
        f"# Settings: {task.command}",
        f"{task.summary[:1].upper()}{task.summary[1:]}.\n\n`anaphora train {task.command} DATA --set KEY=VALUE`, `KEY = VALUE` in a TOML file, or `an.{task.name}(KEY=VALUE)`.",
    ]
    rows = [f"| `{name}` | {_cell(preset.summary)} |" for name, preset in task.presets.items()]
    parts += ["## Presets", "\n".join(["| `model` | |", "|---|---|", *rows])]
    groups: dict[str, list[str]] = {}
    for entry in entries(task):
        changed = ", ".join(
            f"{_code(value)} in {name}" for name, value in entry.presets.items() if value != entry.default
        )
        default = _code(entry.default) + (f"; {changed}" if changed else "")
        groups.setdefault(entry.group, []).append(
            f"| `{entry.key}` | {_cell(entry.meaning)} | {_cell(entry.allowed)} | {default} |"
        )
    for group, lines in groups.items():
        parts += [
            f"## {group}",
            "\n".join(["| setting | meaning | values | default |", "|---|---|---|---|", *lines]),
        ]
    asked = [
        f"| `{key}` | {_cell(field.description or '')} | {_code(field.default)} |"
        for key, field in task.predicting.model_fields.items()
    ]
    if asked:
        parts += [
            "## When predicting",
            "\n".join(["| setting | meaning | default |", "|---|---|---|", *asked]),
        ]
    return "\n\n".join(parts) + "\n"


def _code(value: object) -> str:
    text = word(value)
    return f"`{text}`" if text else "–"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "\\<").replace("\n", " ")
