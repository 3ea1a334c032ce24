"""``anaphora score``: measure a model on data with known answers."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, source_field_option, target_field_option

EXAMPLES = """
anaphora score runs/numbers test.tsv
anaphora score runs/numbers numbers --json
anaphora score runs/x test.en --target test.de
"""


@click.command("score", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("data", metavar="DATA")
@click.option("--target", metavar="FILE", help="Second of two parallel files.")
@click.option("--beam", type=click.IntRange(1, 1000), metavar="N", help="Hypotheses kept at each step.")
@click.option("--length-penalty", type=float, metavar="A", help="α in score = log p / lengthᵅ.")
@click.option(
    "--bad-rows",
    type=click.Choice(["strict", "skip"]),
    help="Stop at a broken row, or leave it out; as in training if not given.",
)
@source_field_option
@target_field_option
@json_option
def command(
    run: str,
    data: str,
    target: str | None,
    beam: int | None,
    length_penalty: float | None,
    bad_rows: str | None,
    source_field: str | None,
    target_field: str | None,
    as_json: bool,
) -> None:
    """Measure the model of RUN on DATA: a file, or an embedded corpus (its test split).

    All measures are in percent. BLEU and chrF come with sacrebleu's signature, so that they can be compared.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, faint, result, table
    from anaphora.cli.training import check_data
    from anaphora.tasks.config import read_config

    both = data if target is None else (data, target)
    check_data(both)
    read_config(Path(run))

    from anaphora.tasks.load import load

    options = {
        "source_field": source_field,
        "target_field": target_field,
        "beam": beam,
        "length_penalty": length_penalty,
        "bad_rows": bad_rows,
    }
    scores = load(run).score(both, **{key: value for key, value in options.items() if value is not None})
    if as_json:
        emit({"run": run, "data": both, **scores})
        return
    rows = []
    for key, value in scores.items():
        if key.endswith("_signature"):
            continue
        shown = f"{value:.2f}" if isinstance(value, float) else str(value)
        rows.append((key.replace("_", " "), shown, faint(str(scores.get(f"{key}_signature", "")))))
    result(table(rows))
