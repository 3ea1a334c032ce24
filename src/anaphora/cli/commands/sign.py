"""``anaphora sign``: which files a run has, vouched for with a key."""

from __future__ import annotations

import click

from anaphora.cli.failures import FINE
from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
openssl rand -hex 32 > my.key
anaphora sign runs/numbers --key my.key
anaphora verify runs/numbers --key my.key
"""


@click.command("sign", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option("--key", metavar="FILE", required=True, help="A file with a secret of 16 bytes or more.")
@json_option
def command(run: str, key: str, as_json: bool) -> int:
    """Write signature.json into RUN: the sha256 of every file, sealed with the key.

    `anaphora verify RUN --key FILE` then finds whatever was changed, added or removed by anyone without the key.
    Anyone with the key can also sign: keep it secret, and out of the run. Sign again after `resume`.
    """
    from pathlib import Path

    from anaphora.tasks.recipe import Recipe

    Recipe.read(Path(run))  # says that there is no such run, before anything heavy is loaded
    from anaphora.cli.output import emit, result
    from anaphora.training.run import RunFolder
    from anaphora.training.signature import sign

    signed = sign(RunFolder.open(run), key)
    if as_json:
        emit(
            {
                "run": run,
                "key": signed.key,
                "files": {name: digest for name, (digest, _) in signed.files.items()},
            }
        )
    else:
        result(f"Signed {len(signed.files)} files of {run} with the key {signed.key}.")
    return FINE
