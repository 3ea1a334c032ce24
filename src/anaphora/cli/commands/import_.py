"""``anaphora import``: a run folder of a model of others."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, trust_option

EXAMPLES = """
anaphora import all-MiniLM-L6-v2 -o runs/minilm
anaphora import path/to/gpt2 -o runs/gpt2
anaphora import path/to/m2m100_418M -o runs/en-fr --source-language en --target-language fr
"""


@click.command("import", cls=Order, examples=EXAMPLES)
@click.argument("path", metavar="PATH")
@click.option("-o", "--out", required=True, metavar="RUN", help="The run folder to write.")
@click.option("--force", is_flag=True, help="Write over a run that is there.")
@click.option(
    "--source-language",
    default="",
    metavar="CODE",
    help="What a model of many languages reads: en, eng_Latn.",
)
@click.option("--target-language", default="", metavar="CODE", help="What it writes: fr, fra_Latn.")
@json_option
@trust_option
def command(
    path: str, out: str, force: bool, source_language: str, target_language: str, as_json: bool
) -> None:
    """Make a run folder from the model in PATH, a folder of `transformers`.

    Then `predict`, `sample`, `score`, `inspect`, `serve` and `export` work on it. Nothing in PATH is executed.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.errors import RunError
    from anaphora.foreign.folder import is_foreign

    if not Path(path).exists():
        raise RunError(f"{path} does not exist; check the path.")

    from anaphora.tasks.estimator import Estimator
    from anaphora.tasks.load import load, refuse_toolkits

    refuse_toolkits(Path(path))
    if not (is_foreign(Path(path)) or Path(path).is_file()):
        raise RunError(
            f"{path} is not a folder of `transformers`: it has no config.json that names a model_type; check the path."
        )
    m = load(path, device="cpu")
    if not isinstance(m, Estimator):
        raise RunError(
            f"{path} holds a {type(m).__name__}, which is no model of a task and makes no run; use it in Python with an.load."
        )
    if source_language or target_language:
        if not hasattr(m, "between"):
            raise RunError(f"{path} is no translator; leave out --source-language and --target-language.")
        m.between(source_language, target_language)
    m.save(out, force=force)
    if as_json:
        emit({"path": path, "run": out, "task": m.command, "parameters": m._parameters()})
    else:
        say(f"Made {out}, a {type(m).__name__} with {m._parameters():,} parameters.")
