"""``anaphora verify``: is every file of a run whole?"""

from __future__ import annotations

from dataclasses import asdict

import click

from anaphora.cli.failures import FINE, MISTAKE
from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora verify runs/numbers
anaphora verify runs/numbers --json
"""


@click.command("verify", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@json_option
def command(run: str, as_json: bool) -> int:
    """Read every file of RUN and compare it with its sha256.

    The exit code is 0 if all are whole and 2 if one is damaged.
    """
    from pathlib import Path

    from anaphora.tasks.config import read_config

    if not Path(run).is_dir():
        read_config(Path(run))  # says that there is no such run, before anything heavy is loaded
    from anaphora.cli.output import emit, result, table
    from anaphora.tasks.verify import verify_run

    findings = verify_run(run)
    bad = sum(not finding.fine for finding in findings)
    if as_json:
        emit({"run": run, "whole": not bad, "files": [asdict(finding) for finding in findings]})
        return MISTAKE if bad else FINE
    fine, damaged = click.style("fine", fg="green"), click.style("damaged", fg="red")
    result(table([(fine if f.fine else damaged, f.file, f.text) for f in findings]))
    result(
        f"\n{bad} of {len(findings)} files are damaged." if bad else f"\nAll {len(findings)} files are whole."
    )
    return MISTAKE if bad else FINE
