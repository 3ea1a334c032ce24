"""``anaphora serve``: trained runs behind HTTP."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import trust_option

EXAMPLES = """
anaphora serve runs/reviews
anaphora serve runs/reviews numbers=runs/translator --port 8080
curl -d '{"inputs": ["a good script"]}' -H 'content-type: application/json' http://127.0.0.1:8000/predict
"""


@click.command("serve", cls=Order, examples=EXAMPLES)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option(
    "--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Another one needs a token."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    metavar="N",
    show_default=True,
    help="0: any free one.",
)
@click.option("--device", default="auto", metavar="DEVICE", show_default=True, help="cpu, cuda, cuda:1 …")
@trust_option
def command(runs: tuple[str, ...], host: str, port: int, device: str) -> None:
    """Answer requests with the models of RUN…, each a folder or NAME=FOLDER.

    POST /predict takes inputs as JSON and gives what `predict` gives; /docs lists the rest. Ctrl-C or SIGTERM ends the server after
    the requests that it has accepted.
    """
    from anaphora.cli.output import say
    from anaphora.serving.limits import Limits
    from anaphora.serving.runs import named_folders
    from anaphora.serving.serve import serve
    from anaphora.web.listening import listen

    folders = named_folders(runs)
    listening = listen(port, host, backlog=2048)
    number = listening.getsockname()[1]

    def ready() -> None:
        say(f"Serving {', '.join(folders)} at http://{host}:{number}/")
        say("Ctrl-C ends it.")

    serve(listening, folders, Limits(), device=device, host=host, ready=ready)
