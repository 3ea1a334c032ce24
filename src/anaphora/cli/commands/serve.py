"""``anaphora serve``: trained runs behind HTTP."""

from __future__ import annotations

import os
from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import trust_option

EXAMPLES = """
anaphora serve runs/reviews
anaphora serve reviews=runs/reviews-2 runs/numbers --port 8080 --workers 2
anaphora serve runs/reviews --host 0.0.0.0 --token-file token.txt --tls-cert cert.pem --tls-key key.pem
"""
TOKEN = "ANAPHORA_TOKEN"
SHORTEST_TOKEN = 16


@click.command("serve", cls=Order, examples=EXAMPLES)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.option(
    "--host", default="127.0.0.1", metavar="HOST", show_default=True, help="Any other one needs a token."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8000,
    metavar="N",
    show_default=True,
    help="0 takes any free one.",
)
@click.option("--device", default="auto", metavar="DEVICE", show_default=True, help="cpu, cuda, cuda:1 …")
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    metavar="N",
    show_default=True,
    help="Processes, each with its own copy of the models.",
)
@click.option(
    "--batch-tokens", type=click.IntRange(1), metavar="N", help="Symbols that are computed together. [8192]"
)
@click.option(
    "--max-wait-ms",
    type=click.FloatRange(0, 10_000),
    metavar="X",
    help="How long a request waits for others to be computed with. [2]",
)
@click.option(
    "--max-cost", "cost", type=click.IntRange(1), metavar="N", help="Steps that a request may cost. [400000]"
)
@click.option("--queue", type=click.IntRange(1), metavar="N", help="Requests that may wait for a run. [256]")
@click.option(
    "--slots", type=click.IntRange(1, 4096), metavar="N", help="Texts a language model writes at a time. [64]"
)
@click.option(
    "--max-length", "length", type=click.IntRange(1), metavar="N", help="Symbols of one input. [20000]"
)
@click.option("--max-body", type=click.IntRange(1), metavar="MIB", help="Mebibytes of one request. [16]")
@click.option(
    "--timeout", "seconds", type=click.FloatRange(0.1), metavar="S", help="Seconds of one request. [60]"
)
@click.option(
    "--grace", type=click.FloatRange(0), metavar="S", help="Seconds to finish requests after SIGTERM. [30]"
)
@click.option(
    "--token-file", metavar="FILE", help=f"File with the token that requests must carry; or ${TOKEN}."
)
@click.option("--tls-cert", metavar="FILE", help="Certificate (PEM): serve HTTPS.")
@click.option("--tls-key", metavar="FILE", help="Its key (PEM).")
@click.option("--no-reload", is_flag=True, help="Do not look for replaced run folders.")
@trust_option
def command(runs: tuple[str, ...], **given: Any) -> None:
    """Answer requests with the models of RUN…, each a folder or NAME=FOLDER.

    POST /predict takes inputs as JSON, a file or a form and gives what `predict` gives; /docs lists the rest. The same request
    gets the same bytes under any load. SIGTERM or Ctrl-C ends the server after the requests that it has accepted.
    """
    from pathlib import Path

    from anaphora.cli.output import say
    from anaphora.serving.limits import Limits
    from anaphora.serving.naming import named_folders
    from anaphora.tasks.recipe import Recipe
    from anaphora.web.listening import LOCAL, listen

    host = given["host"]
    token = _token(given["token_file"])
    tls = _tls(given["tls_cert"], given["tls_key"])
    local = host in (LOCAL, "localhost", "::1")
    if not local and token is None:
        raise click.UsageError(
            f"--host {host} lets other machines in, which needs a token: give --token-file FILE, or set ${TOKEN}."
        )
    folders = named_folders(runs)
    for folder in folders.values():
        Recipe.read(Path(folder))  # a mistyped folder is noticed before torch is loaded
    asked = {
        name: given[name]
        for name in ("batch_tokens", "max_wait_ms", "queue", "slots", "length", "seconds", "grace")
    }
    asked |= {
        "body": given["max_body"] and given["max_body"] << 20,
        "reload_seconds": 0.0 if given["no_reload"] else None,
    }
    if given["cost"]:
        asked |= {"cost": given["cost"], "client_cost": 2 * given["cost"], "run_cost": 4 * given["cost"]}
    limits = Limits(**{name: value for name, value in asked.items() if value is not None})
    listening = listen(given["port"], host, backlog=2048)
    number = listening.getsockname()[1]

    def ready() -> None:
        shown = f"[{host}]" if ":" in host else host
        say(f"Serving {', '.join(folders)} at {'https' if tls else 'http'}://{shown}:{number}/")
        if not local and tls is None:
            say("anaphora: note: without --tls-cert the token and all data travel unencrypted.")

    how: dict[str, Any] = {
        "device": given["device"],
        "host": host,
        "token": token,
        "tls": tls,
        "ready": ready,
    }
    if given["workers"] > 1:
        from anaphora.serving.supervisor import Supervisor
        from anaphora.settings.own import trusting

        trust = trusting()
        code = Supervisor(
            listening, folders, limits, workers=given["workers"], say=say, trust=trust, **how
        ).run()
        raise click.exceptions.Exit(code)
    from anaphora.serving.serve import serve

    serve(listening, folders, limits, **how)


def _token(file: str | None) -> str | None:
    """The token, of one place only; never of the arguments, which others on this machine can read."""
    from anaphora.files import clause, read_bytes

    found = {f"${TOKEN}": os.environ.get(TOKEN)}
    if file is not None:
        try:
            found["--token-file"] = read_bytes(file, most=10_000).decode("ascii").strip()
        except OSError as error:
            raise click.UsageError(f"--token-file {file} cannot be read: {clause(error)}.") from None
        except UnicodeDecodeError:
            raise click.UsageError(f"--token-file {file} must hold plain ASCII characters.") from None
    given = {place: token for place, token in found.items() if token is not None}
    if len(given) > 1:
        raise click.UsageError(f"the token is given by {' and by '.join(given)}; give it once.")
    for place, token in given.items():
        if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
            raise click.UsageError(
                f"{place} must have at least {SHORTEST_TOKEN} ASCII characters without spaces; "
                "`openssl rand -hex 24` makes one."
            )
        return token
    return None


def _tls(certificate: str | None, key: str | None) -> tuple[str, str] | None:
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        raise click.UsageError("--tls-cert and --tls-key belong together; give both.")
    import ssl

    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key)
    except OSError as error:
        reason = error.strerror or str(error) or "it is not PEM"
        raise click.UsageError(
            f"--tls-cert {certificate} and --tls-key {key} cannot be used: {reason}."
        ) from None
    return certificate, key
