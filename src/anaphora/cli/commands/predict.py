"""``anaphora predict``: data in, answers out."""

from __future__ import annotations

import sys
from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import (
    checkpoint_option,
    json_option,
    skip_bad_option,
    source_field_option,
    trust_option,
)

EXAMPLES = """
anaphora predict runs/numbers inputs.txt > outputs.txt
echo 'forty two' | anaphora predict runs/numbers
anaphora predict runs/numbers inputs.txt --beam 10 --n-best 3 --json
anaphora predict runs/numbers inputs.txt --set decode=sample --set temperature=0.7
anaphora predict runs/numbers inputs.txt --checkpoint 1500
"""


@click.command("predict", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept at each step; 1 is greedy.")
@click.option("--length-penalty", type=float, metavar="X", help="α in score = log p / lengthᵅ.")
@click.option("--max-length", type=int, metavar="N", help="Most symbols in an output.")
@click.option("--n-best", type=int, metavar="N", help="Outputs for each input.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of predicting; repeatable."
)
@click.option("--npy", metavar="FILE", help="Write the vectors of an embedder into this .npy file.")
@source_field_option
@skip_bad_option
@checkpoint_option
@json_option
@trust_option
def command(
    run: str,
    file: str,
    assignments: tuple[str, ...],
    npy: str | None,
    skip_bad: bool,
    checkpoint: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Put FILE (or standard input) through the model of RUN.

    Models of text answer line by line, in order: one output line for each input line, and an empty line stays
    empty. Taggers take the columns they were trained on, forecasters a CSV file. With --n-best each output is a
    line `number⇥score⇥text`. With --json each answer is one line of JSON.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.predicting import model_of, read_options
    from anaphora.data.streams import check_readable
    from anaphora.tasks.config import read_config

    config = read_config(Path(run))
    if skip_bad and "bad_rows" not in config.task.predicting.model_fields:
        raise click.UsageError(f"--skip-bad has no meaning for a {config.task.name}; leave it out.")
    if skip_bad:
        flags["bad_rows"] = "skip"
    if flags["source_field"] is not None and "source_field" not in config.task.predicting.model_fields:
        raise click.UsageError(f"--source-field has no meaning for a {config.task.name}; leave it out.")
    if npy is not None and config.task.command != "embed":
        raise click.UsageError(
            f"--npy is for vectors, which a {config.task.name} does not give; leave it out."
        )
    options = read_options(config.task, flags, assignments)
    if file != "-":
        check_readable(file, folders=config.task.folders)  # a missing file is reported before torch is loaded
    elif sys.stdin.isatty():
        say("Type a line to have it answered; Ctrl-D ends.")

    from anaphora.cli.answering import respond  # which loads torch

    vectors = []
    for response in respond(model_of(run, options, checkpoint), file, options):
        if npy is not None:
            vectors.append(response.record["output"])
        elif as_json:
            emit(response.record, indent=None)
        else:
            click.echo(response.text)
        sys.stdout.flush()
    if npy is not None:
        _write(npy, vectors)
        say(f"Wrote {len(vectors)} vectors to {npy}.")


def _write(path: str, vectors: list[list[float] | None]) -> None:
    """One row for each input, zeros where a line was empty."""
    import numpy as np

    width = max((len(one) for one in vectors if one), default=0)
    with open(path, "wb") as file:
        np.save(file, np.array([one or [0.0] * width for one in vectors], dtype=np.float32))
