"""Options that several commands share."""

from __future__ import annotations

import click

json_option = click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout.")
source_field_option = click.option(
    "--source-field", metavar="NAME", help="Column of a CSV or JSONL file that holds the input."
)
target_field_option = click.option(
    "--target-field", metavar="NAME", help="Column of a CSV or JSONL file that holds the output."
)
