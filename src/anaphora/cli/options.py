"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def option_of(key: str) -> str:
    """The option that a setting was given by."""
    return "--skip-bad" if key == "bad_rows" else f"--{key.replace('_', '-')}"


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")


def _trust(ctx: click.Context, param: click.Parameter, value: bool) -> None:
    if value:
        from anaphora.settings.own import trust_parts

        trust_parts()


trust_option = click.option(
    "--trust-parts",
    is_flag=True,
    expose_value=False,
    callback=_trust,
    help="Import your own parts (module:Name) that RUN names, from the current folder or installed packages.",
)
"""A run folder may come from anyone, and what it names would be executed: so only on request."""
skip_bad_option = click.option(
    "--skip-bad",
    is_flag=True,
    help="Skip rows and files that cannot be read, and count them, instead of stopping.",
)
"""Given as ``bad_rows = "skip"``: a setting of training, an option of scoring and predicting."""
source_field_option = click.option(
    "--source-field",
    metavar="NAME",
    help="Column of the input: its name, or its number in a table without a header; a.b for a field inside an object, a+b for two columns read as one text.",
)
checkpoint_option = click.option(
    "--checkpoint",
    type=int,
    metavar="STEP",
    help="Use the checkpoint of STEP; `anaphora verify RUN` lists them.",
)
target_field_option = click.option(
    "--target-field",
    "--label",
    "target_field",
    metavar="NAME",
    help="Column of the output or the label.",
)
_SERIES = (
    click.option("--time", "time_field", metavar="NAME", help="Column of the times, in a table of series."),
    click.option(
        "--id",
        "id_field",
        metavar="NAME",
        help="Column that says which series a row belongs to, in a table of series.",
    ),
    click.option(
        "--decimal",
        metavar="MARK",
        help="What stands before decimals in a table of series, where its cells do not tell: . or ,",
    ),
)


def series_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options that say how a table of series is read."""
    for option in reversed(_SERIES):
        command = option(command)
    return command


seeds_option = click.option(
    "--seeds",
    type=int,
    default=1,
    metavar="N",
    help="Train N times, with --seed and those after it; mean and spread of each measure.",
)
