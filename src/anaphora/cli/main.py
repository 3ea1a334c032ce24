"""The entry: ``anaphora …`` and ``python -m anaphora …``."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

import click

from anaphora._version import __version__
from anaphora.cli.failures import guarded, show_warnings_as_sentences
from anaphora.cli.group import House
from anaphora.cli.output import colour_for, may_colour


@click.group(cls=House, invoke_without_command=True, add_help_option=False)
@click.help_option("-h", "--help", help="This page.")
@click.version_option(__version__, message="anaphora %(version)s", help="The version.")
@click.option("--debug", is_flag=True, expose_value=False, help="On failure show the whole traceback.")
@click.pass_context
def anaphora(ctx: click.Context) -> None:
    """Models of sequences: train them, search with them, look inside them."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help(), color=colour_for(sys.stdout))


def run(arguments: Sequence[str]) -> int:
    """Run one command and return its exit code."""
    debug = "--debug" in arguments
    kept = [argument for argument in arguments if argument != "--debug"]  # it may stand anywhere
    if kept[:1] == ["help"]:  # `anaphora help train` is `anaphora train --help`
        kept = [*kept[1:2], "--help"]
    show_warnings_as_sentences()

    def work() -> object:
        if "_ANAPHORA_COMPLETE" in os.environ:
            anaphora.main(kept, prog_name="anaphora")  # answers the shell and exits
        _check_encoding(kept)
        plain = None if may_colour() else False  # None: click looks whether the stream is a terminal
        # Not click's main(): it has its own idea of what failures look like.
        with anaphora.make_context("anaphora", kept, color=plain) as context:
            returned = anaphora.invoke(context)
        sys.stdout.flush()
        return returned

    return guarded(work, debug=debug)


def _check_encoding(arguments: Sequence[str]) -> None:
    """A run remembers names as text, so what is not UTF-8 (a file name of another system's) is an error at once."""
    for argument in arguments:
        if not argument.isascii() and argument.encode(errors="replace") != argument.encode(
            errors="surrogateescape"
        ):
            raise click.UsageError(f"{argument!r} is not UTF-8; rename the file, or give it another way.")


def main() -> NoReturn:
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Files and pipes get UTF-8 whatever the locale; a poor terminal gets "?" instead of a crash.
            stream.reconfigure(encoding=stream.encoding if stream.isatty() else "utf-8", errors="replace")
    sys.exit(run(sys.argv[1:]))
