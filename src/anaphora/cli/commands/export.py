"""``anaphora export``: a trained model in a format that others read."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import checkpoint_option, json_option, trust_option
from anaphora.tasks.exporting.formats import FORMATS

EXAMPLES = """
anaphora export runs/reviews --to onnx -o exported/reviews
anaphora export runs/ngram --to arpa -o ngram.arpa
anaphora export runs/reviews --to word2vec -o vectors.bin
"""


@click.command("export", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option(
    "--to",
    type=click.Choice(list(FORMATS)),
    required=True,
    help="; ".join(f"{name}: {one.about}" for name, one in FORMATS.items()) + ".",
)
@click.option("-o", "--out", required=True, metavar="PATH", help="The folder or file to write.")
@click.option("--int8", is_flag=True, help="onnx: weights of eight bits, a quarter of the size.")
@click.option("--force", is_flag=True, help="Write over what is there.")
@checkpoint_option
@json_option
@trust_option
def command(
    run: str, to: str, out: str, int8: bool, force: bool, checkpoint: int | None, as_json: bool
) -> None:
    """Write the model of RUN in a format that others read.

    A graph of ONNX takes any batch and length and is checked against the model before anything is kept; with it is what
    `anaphora.runtime` needs to predict without torch.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.tasks.recipe import Recipe

    Recipe.read(Path(run))  # a mistyped run is noticed before torch is loaded

    from anaphora.tasks.load import load

    place = load(run, device="cpu", checkpoint=checkpoint).export(out, to=to, force=force, int8=int8)
    if as_json:
        emit({"run": run, "to": to, "path": str(place)})
    else:
        say(f"Wrote {place}.")
