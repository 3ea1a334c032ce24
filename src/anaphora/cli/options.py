"""Options that several commands share."""

from __future__ import annotations

import click


def option_of(key: str) -> str:
    """The option that a setting was given by."""
    return "--skip-bad" if key == "bad_rows" else f"--{key.replace('_', '-')}"


json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
skip_bad_option = click.option(
    "--skip-bad", is_flag=True, help="Leave out what cannot be read and count it, instead of stopping there."
)
"""Given as ``bad_rows = "skip"``: a setting of training, an option of scoring and predicting."""
source_field_option = click.option(
    "--source-field", metavar="NAME", help="Column of a CSV or JSONL file that holds the input."
)
target_field_option = click.option(
    "--target-field", metavar="NAME", help="Column of a CSV or JSONL file that holds the output."
)
