"""``anaphora cluster``: inputs that are alike, together."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, source_field_option, trust_option

EXAMPLES = """
anaphora cluster runs/questions questions.txt -k 8
anaphora cluster runs/questions questions.csv -k 20 --json
"""


@click.command("cluster", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="FILE")
@click.option(
    "-k", "count", type=click.IntRange(1), default=8, metavar="N", help="How many clusters; 8 by default."
)
@click.option("--seed", type=int, default=1, metavar="N", help="Where the search for clusters begins.")
@source_field_option
@json_option
@trust_option
def command(run: str, file: str, count: int, seed: int, source_field: str | None, as_json: bool) -> None:
    """Sort the inputs of FILE into clusters, by the vectors of the embedder of RUN.

    A line `cluster⇥text` for each input, in the order of FILE; cluster 1 is the largest.
    """
    from anaphora.cli.answering.session import read_inputs
    from anaphora.cli.output import emit, result, say
    from anaphora.cli.predicting import embedder_of

    model = embedder_of(run, [file])
    inputs = read_inputs(model, file, source_field)
    found = model.cluster(inputs, count, seed=seed)
    for number, (x, label) in enumerate(zip(inputs, found.labels, strict=True), start=1):
        text = x if isinstance(x, str) else f"#{number}"
        if as_json:
            emit({"line": number, "cluster": label + 1, "input": text}, indent=None)
        else:
            result(f"{label + 1}\t{text}")
    say(str(found))
