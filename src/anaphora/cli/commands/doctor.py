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
"""


@click.command("doctor", cls=Order, examples=EXAMPLES)
@json_option
def command(as_json: bool) -> int:
    """Check this machine: versions, CPU, GPUs, compiler, disk space, permissions and terminal.

    Says in words what is fine and what is not. The exit code is 2 if something is in the way.
    """
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


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
