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
anaphora predict runs/numbers million.txt --out answers.txt --workers 8
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
@click.option(
    "-o",
    "--out",
    metavar="FILE",
    help="Write the answers into this file; after a stop, the same command continues.",
)
@click.option("--force", is_flag=True, help="Replace --out if it exists, from the first input on.")
@click.option(
    "--workers", type=click.IntRange(1), metavar="N", help="Processes on a CPU; by default one for each core."
)
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
    out: str | None,
    force: bool,
    workers: int | None,
    skip_bad: bool,
    checkpoint: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Predict an output for every input in FILE (or standard input) with the model of RUN.

    Models of text answer line by line, in order: one output line for each input line, and an empty line stays
    empty. Taggers take the columns they were trained on, forecasters a CSV file. With --n-best each output is a
    line `number⇥score⇥text`. With --json each answer is one line of JSON.

    FILE may be of any size: a window of it at a time is sorted by length and answered by all CPU cores, and the answers come
    in the order of the inputs. With --out a command that was killed goes on where it stopped when it is given again.
    """
    from pathlib import Path

    from anaphora.cli.output import say
    from anaphora.cli.predicting import model_of, read_options
    from anaphora.data.asked import check_readable
    from anaphora.tasks.recipe import Recipe

    recipe = Recipe.read(Path(run))
    if skip_bad and "bad_rows" not in recipe.task.predicting.model_fields:
        raise click.UsageError(f"--skip-bad has no meaning for a {recipe.task.name}; leave it out.")
    if skip_bad:
        flags["bad_rows"] = "skip"
    if flags["source_field"] is not None and "source_field" not in recipe.task.predicting.model_fields:
        raise click.UsageError(f"--source-field has no meaning for a {recipe.task.name}; leave it out.")
    if npy is not None and recipe.task.command != "embed":
        raise click.UsageError(
            f"--npy is for vectors, which a {recipe.task.name} does not give; leave it out."
        )
    if out is not None and npy is not None:
        raise click.UsageError("--out and --npy are two files for the same answers; give one of them.")
    if force and out is None and npy is None:
        raise click.UsageError("--force replaces the file of --out; leave it out.")
    options = read_options(recipe.task, flags, assignments)
    if file != "-":
        check_readable(file, folders=recipe.task.folders)  # a missing file is reported before torch is loaded
    elif sys.stdin.isatty():
        say("Type a line to have it answered; Ctrl-D ends.")

    from anaphora.cli.writing import print_answers, write_answers, write_vectors  # which load torch

    model = model_of(run, options, checkpoint)
    if npy is not None:
        write_vectors(model, file, options, npy, workers=workers, force=force)
    elif out is not None:
        write_answers(model, file, options, out, as_json=as_json, workers=workers, force=force)
    else:
        print_answers(model, file, options, as_json=as_json, workers=workers)
