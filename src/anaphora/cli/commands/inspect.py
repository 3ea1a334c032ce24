"""``anaphora inspect``: draw what a model does with a text."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option
from anaphora.cli.pictures import picture_options

EXAMPLES = """
anaphora inspect runs/demo --view alignment --text 'ninety-one thousand six'
anaphora inspect runs/demo --view alignment --text 'forty-two' --target 'zweiundvierzig' --html look.html
"""


@click.command("inspect", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option("--view", metavar="VIEW", default="alignment", show_default=True, help="Which picture.")
@click.option("--text", metavar="TEXT", required=True, help="The input to look at.")
@click.option("--target", metavar="TEXT", help="A given output, instead of the best one found.")
@picture_options
@json_option
def command(
    run: str,
    view: str,
    text: str,
    target: str | None,
    html: str | None,
    svg: str | None,
    png: str | None,
    as_json: bool,
) -> None:
    """Draw what the model of RUN does with TEXT: in the terminal, or into files.

    `alignment` shows, for each output symbol, how much attention went to each input symbol.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.pictures import check_files, draw, write_files
    from anaphora.errors import DataError
    from anaphora.tasks.config import read_config
    from anaphora.views.registry import view as find_view

    named = {"html": html, "svg": svg, "png": png}
    files = {kind: name for kind, name in named.items() if name is not None}
    check_files(files)
    if not text.strip():
        raise DataError("--text is empty; give the input to look at.")
    read_config(Path(run))
    find_view(view)

    from anaphora.tasks.load import load

    trace = load(run).probe(text, target)
    picture = trace.view(view)
    write_files(picture, files)
    if as_json:
        arrays = {name: {"axes": a.axes, "values": a.values.tolist()} for name, a in trace.arrays.items()}
        facts = {"tokens": trace.tokens, "arrays": arrays, "facts": trace.facts}
        emit({"run": run, "view": view, "text": text, "files": files, **facts}, indent=None)
    elif files:
        say(f"Wrote {', '.join(files.values())}.")
    else:
        draw(picture)
