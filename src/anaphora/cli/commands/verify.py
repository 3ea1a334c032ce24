"""``anaphora verify``: is every file of a run whole?"""

from __future__ import annotations

from dataclasses import asdict, replace

import click

from anaphora.cli.failures import FINE, MISTAKE
from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora verify runs/numbers
anaphora verify runs/numbers --json
anaphora verify runs/numbers --key my.key
"""


@click.command("verify", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option("--key", metavar="FILE", help="Also check what `anaphora sign` signed with this key.")
@json_option
def command(run: str, key: str | None, as_json: bool) -> int:
    """Read every file of RUN and compare it with its sha256.

    With --key every file must also be the one that was signed, and no other may be there. The exit code is 0 if all
    are whole and 2 if one is damaged, or was changed, added or removed since. Of a folder that `train --seeds` or
    `distill --seeds` wrote, every run is read.
    """
    from pathlib import Path

    from anaphora.tasks.recipe import Recipe, single_runs

    if not Path(run).is_dir():
        Recipe.read(Path(run))  # says that there is no such run, before anything heavy is loaded
    runs = single_runs([run])
    from anaphora.cli.output import emit, result, table
    from anaphora.tasks.verify import verify_run

    findings = [
        finding if one == run else replace(finding, file=f"{Path(one).name}/{finding.file}")
        for one in runs
        for finding in verify_run(one, key=key)
    ]
    bad = sum(not finding.fine for finding in findings)
    if as_json:
        signed = None if key is None else all(f.fine for f in findings if f.about == "signature")
        files = [asdict(finding) for finding in findings]
        emit({"run": run, "whole": not bad, "signed": signed, "files": files})
        return MISTAKE if bad else FINE
    wrong = "damaged or not as signed" if key else "damaged"
    fine, damaged = click.style("fine", fg="green"), click.style("wrong" if key else wrong, fg="red")
    result(table([(fine if f.fine else damaged, f.file, f.text) for f in findings]))
    said = "fit the signature and are whole" if key else "are whole"
    result(
        f"\n{bad} of {len(findings)} files are {wrong}." if bad else f"\nAll {len(findings)} files {said}."
    )
    return MISTAKE if bad else FINE
