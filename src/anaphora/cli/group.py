"""The command group: commands are imported when they are called, and mistyped names get a suggestion."""

from __future__ import annotations

import difflib
import importlib
from keyword import iskeyword
from typing import Any

import click

from anaphora.cli.catalog import COMMANDS, KNOWN_AS, SECTIONS, TASK_COMMANDS
from anaphora.cli.output import heading, table


class House(click.Group):
    """Knows the name and one line of every command, and imports a command only to run it."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(
            f"anaphora.cli.commands.{cmd_name}{'_' if iskeyword(cmd_name) else ''}"
        )
        command: click.Command = module.command
        command.short_help = COMMANDS[cmd_name]
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in COMMANDS or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        if name in TASK_COMMANDS:
            raise click.UsageError(f"{name} is a task; write `anaphora train {name} DATA`.", ctx)
        if name.lower() in KNOWN_AS:
            raise click.UsageError(
                f"there is no command {name!r}. Did you mean {KNOWN_AS[name.lower()]}?", ctx
            )
        near = difflib.get_close_matches(name.lower(), COMMANDS, n=1, cutoff=0.65)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise click.UsageError(f"there is no command {name!r}.{hint}", ctx)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[Any]:
        """Names with their one line, without importing the commands (click's own way would)."""
        from click.shell_completion import CompletionItem

        options = click.Command.shell_complete(self, ctx, incomplete)
        names = [CompletionItem(n, help=line) for n, line in COMMANDS.items() if n.startswith(incomplete)]
        return names + options

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        formatter.write(f"{heading('anaphora')} COMMAND [OPTIONS]\n\n")
        formatter.write("Models of sequences: train them, search with them, look inside them. Offline.\n\n")
        formatter.write(
            f"First time here?  {heading('anaphora demo')}  trains a translator in a minute or two.\n"
        )
        margin = max(len(name) for name in COMMANDS)
        for title, commands in SECTIONS.items():
            rows = [(click.style(name.ljust(margin), fg="cyan"), line) for name, line in commands.items()]
            formatter.write(f"\n{heading(title)}\n{table(rows)}\n")
        options = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx))]
        rows = [(click.style(name.ljust(margin), fg="cyan"), line) for name, line in options]
        formatter.write(f"\n{heading('Options')}\n{table(rows)}\n")
        formatter.write("\n`anaphora COMMAND --help` says more, with examples.\n")


class Order(click.Command):
    """A command of the house: its help text first, then its options, then examples as they are typed."""

    def __init__(self, *args: Any, examples: str = "", **kwargs: Any):
        usual = {"max_content_width": 110, "help_option_names": ["-h", "--help"]}
        kwargs.setdefault("context_settings", usual)
        super().__init__(*args, **kwargs)
        self.examples = examples

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        if self.examples:
            formatter.write_paragraph()
            formatter.write("Examples:\n")
            for line in self.examples.strip().splitlines():
                formatter.write(f"  {line.strip()}\n")
