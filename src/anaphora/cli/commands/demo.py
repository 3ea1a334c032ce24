"""``anaphora demo``: two minutes from nothing to a model one can look into."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.failures import FAULT, FINE
from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora demo
anaphora demo --out runs/demo --json
"""


@click.command("demo", cls=Order, examples=EXAMPLES)
@click.option("-o", "--out", metavar="RUN", default="runs/demo", show_default=True, help="The run folder.")
@json_option
def command(out: str, as_json: bool) -> int:
    """Train a translator of number words, English to German, and look inside it. About two minutes.

    Prints the share of unseen numbers written without a mistake beside the share to expect, and the alignment
    of one number: German says the ones before the tens, so the model has to look back and forth.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.reporting import make_reporter
    from anaphora.tasks.demo import run_demo

    say("Training a translator of number words (English to German) on this machine; about two minutes …")
    facts = run_demo(out, reporter=make_reporter())
    trace = facts.pop("trace")
    picture = trace.view("alignment")
    page = Path(out) / "alignment.html"
    picture.save(page)
    facts["html"] = str(page)
    weights = trace.array("alignment", "target", "source")
    facts["alignment"] = {
        "source": trace.tokens["source"],
        "output": trace.tokens["target"],
        "weights": [[round(float(weight), 4) for weight in row] for row in weights],
    }
    if as_json:
        emit(facts)
    else:
        _show(facts, picture)
    return FINE if facts["passed"] else FAULT


def _show(facts: dict[str, Any], picture: Any) -> None:
    from anaphora.cli.output import command_name, result, say
    from anaphora.cli.pictures import draw
    from anaphora.cli.training import duration

    result(
        f"Exact match on {facts['unseen_numbers']} unseen numbers: {facts['exact_match']:.1f} % "
        f"(expected: at least {facts['expected']:g} %), trained in {duration(facts['training_seconds'])}."
    )
    result(f"\n  {facts['text']}\n  → {facts['output']}\n")
    draw(picture)
    if not facts["passed"]:
        say("This is less than expected: a fault of Anaphora or of this machine; see `anaphora doctor`.")
    say(f"The same picture, to hover over: {facts['html']}\n\nNext:")
    name = command_name()
    say(f"  echo 'nine hundred one' | {name} predict {facts['run']}")
    say(f"  {name} inspect {facts['run']} --view alignment --text 'eighty-one thousand six'")
    say(f"  {name} train translate YOUR.tsv -o runs/mine")
