"""``anaphora doctor``: is this machine ready?"""

from __future__ import annotations

from dataclasses import asdict

import click

from anaphora.cli.failures import FINE, MISTAKE
from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora doctor
anaphora doctor --json
anaphora doctor --tune
"""


@click.command("doctor", cls=Order, examples=EXAMPLES)
@click.option(
    "--tune",
    is_flag=True,
    help="Measure recurrent layers on each GPU, about a minute, and use the fastest backend from then on.",
)
@json_option
def command(tune: bool, as_json: bool) -> int:
    """Check this machine: versions, CPU, GPUs, compiler, disk space, permissions and terminal.

    Prints what is fine and what is not. The exit code is 2 if something must be fixed.
    """
    if tune:
        return _tune(as_json)
    from anaphora.cli.health import examine
    from anaphora.cli.output import emit, result, table

    findings = examine()
    bad = [finding for finding in findings if finding.state == "bad"]
    if as_json:
        emit({"ready": not bad, "findings": [asdict(finding) for finding in findings]})
        return MISTAKE if bad else FINE
    colours = {"fine": "green", "note": "yellow", "bad": "red"}
    result(table([(click.style(f.state, fg=colours[f.state]), f.topic, f.text) for f in findings]))
    notes = sum(finding.state == "note" for finding in findings)
    if bad:
        result(f"\n{_count(len(bad), 'thing')} in the way; see above.")
    else:
        result(f"\nReady, with {_count(notes, 'note')}." if notes else "\nReady.")
    return MISTAKE if bad else FINE


def _tune(as_json: bool) -> int:
    from anaphora.cli.health import tune
    from anaphora.cli.output import emit, result, say, table

    tuned = tune(say)
    if as_json:
        emit({"gpus": [asdict(gpu) for gpu in tuned]})
        return FINE
    for gpu in tuned:
        result(f"{gpu.name}, {_count(len(gpu.measurements), 'layer')} measured, kept in {gpu.file}")
        result(table([(name.replace("_", " "), where) for name, where in gpu.words()]))
    return FINE


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
