"""``anaphora studio``: a page on this machine over a folder of runs."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import trust_option

EXAMPLES = """
anaphora studio
anaphora studio runs/ --port 8765 --no-open
anaphora studio runs/ --allow-training
"""


@click.command("studio", cls=Order, examples=EXAMPLES)
@click.argument("folders", metavar="[RUNS]…", nargs=-1)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Where the page is; by default the same at each start for the same RUNS.",
)
@click.option("--no-open", is_flag=True, help="Do not open the browser.")
@click.option(
    "--allow-training",
    is_flag=True,
    help="Let the page start, stop and resume trainings, one at a time, and keep files that are dropped on it.",
)
@trust_option
def command(folders: tuple[str, ...], port: int, no_open: bool, allow_training: bool) -> None:
    """Open a page over the runs below RUNS (by default ./runs): watch them train, compare them, look inside.

    The page is served on 127.0.0.1 alone, can only read, and needs the token in the address that is printed.
    Nothing is loaded from anywhere else. With --allow-training it can also train, on embedded corpora and on files that are
    dropped on it; runs and files go below the first of RUNS and nowhere else. Ctrl-C ends it, and the trainings it
    started, which save first.
    """
    import os
    from pathlib import Path

    from anaphora.cli.output import say
    from anaphora.errors import AnaphoraError
    from anaphora.files.writing import make_folder
    from anaphora.processes import open_page

    try:
        from anaphora.studio.serve import serve
    except ImportError as error:
        raise AnaphoraError(
            f"the studio needs {error.name}: install it with `pip install 'anaphora[studio]'`."
        ) from None
    places = [Path(folder) for folder in folders] or [Path("runs")]
    if allow_training and not folders:
        make_folder(places[0])  # the first run may be made here
    if not folders and not places[0].is_dir():
        raise AnaphoraError("there is no folder runs/ here; train something first, or name a folder of runs.")

    def ready(address: str) -> None:
        say(f"The studio is at {address}")
        say("Ctrl-C ends it.")
        if not no_open:
            open_page(address)

    if hasattr(os, "nice") and not allow_training:
        os.nice(5)  # training on the same machine goes first; what is started from here would be as patient
    serve(places, port=port, ready=ready, allow_training=allow_training)
