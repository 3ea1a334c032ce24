"""``anaphora sample``: new text from a language model."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, trust_option

EXAMPLES = """
anaphora sample runs/python-lstm --length 500
anaphora sample runs/shakespeare --prompt 'ROMEO:' --temperature 0.8 --top-k 40
anaphora sample runs/names -n 10 --seed 3 --json
"""


@click.command("sample", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option("--prompt", metavar="TEXT", help="Text to go on from.")
@click.option("--length", type=int, metavar="N", help="Symbols to write.")
@click.option(
    "--temperature", type=float, metavar="T", help="Below 1 keeps to what is probable; 0 takes the best."
)
@click.option("--top-k", type=int, metavar="K", help="Draw among the K most probable symbols.")
@click.option(
    "--top-p", type=float, metavar="P", help="Draw among the most probable that hold P of the probability."
)
@click.option(
    "--min-p", type=float, metavar="P", help="Draw among those at least P times as probable as the best."
)
@click.option("--seed", type=int, metavar="N", help="The same seed draws the same text.")
@click.option("-n", type=int, metavar="N", help="Samples to draw.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of sampling; repeatable."
)
@json_option
@trust_option
def command(run: str, assignments: tuple[str, ...], as_json: bool, **flags: Any) -> None:
    """Write new text with the language model of RUN, symbol by symbol as it is drawn.

    The prompt comes first, then what goes on from it. Several samples (-n) are written when all are drawn, each
    with a line break after it. With --json each sample is one line of JSON.
    """
    from pathlib import Path

    from anaphora.cli.output import emit
    from anaphora.errors import AnaphoraError, SettingsError
    from anaphora.settings.base import build
    from anaphora.settings.files import read_assignments
    from anaphora.settings.language import SampleOptions
    from anaphora.tasks.recipe import Recipe

    recipe = Recipe.read(Path(run))
    if recipe.task.command != "language":
        raise AnaphoraError(
            f"{run} holds a {recipe.task.name}, which writes no text of its own; use `anaphora predict {run}`."
        )
    typed = read_assignments(assignments)
    for key, value in flags.items():
        if value is not None:
            typed.add(key, value, f"--{key.replace('_', '-')}")
    if typed.problems:
        raise SettingsError(typed.problems)
    asked = typed.values
    options = build(
        SampleOptions, asked, owner="sample", where=typed.where
    )  # a mistake is reported before torch is loaded

    from anaphora.tasks.load import load

    model = load(run)
    if as_json or options.n > 1:
        for number, text in enumerate(model.sample(**asked), start=1):
            if as_json:
                emit({"sample": number, "prompt": options.prompt, "output": text}, indent=None)
            else:
                click.echo(options.prompt + text)
        return
    click.echo(options.prompt, nl=False)
    model.sample(**asked, listen=_write)
    click.echo()


def _write(piece: str) -> None:
    import sys

    click.echo(piece, nl=False)
    sys.stdout.flush()
