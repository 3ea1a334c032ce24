"""``anaphora verify``: is every file of a run whole?"""

from __future__ import annotations

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

    The exit code is 0 if all are whole and 2 if one is damaged or missing.
    """
    from pathlib import Path

    from anaphora.tasks.config import read_config

    if not Path(run).is_dir():
        read_config(Path(run))  # says that there is no such run, before anything heavy is loaded
    from anaphora.cli.output import emit, result, table
    from anaphora.tasks.verify import verify_run

    findings = verify_run(run)
    damaged = [finding for finding in findings if not finding.fine]
    if as_json:
        rows = [{"file": f.file, "fine": f.fine, "text": f.text} for f in findings]
        emit({"run": run, "fine": not damaged, "files": rows})
        return MISTAKE if damaged else FINE
    rows_ = [
        (click.style("fine", fg="green") if f.fine else click.style("damaged", fg="red"), f.file, f.text)
        for f in findings
    ]
    result(table(rows_))
    result(
        f"\n{len(damaged)} of {len(findings)} files damaged."
        if damaged
        else f"\nAll {len(findings)} files are whole."
    )
    return MISTAKE if damaged else FINE
