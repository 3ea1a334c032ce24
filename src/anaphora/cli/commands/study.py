"""``anaphora study``: an experiment of the lectures, run on the spot."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora study length
anaphora study length --corpus numbers -o runs/length --json
anaphora study memory
anaphora study memory --corpus brackets -o runs/brackets
anaphora study positions
anaphora study scaling --corpus text.txt --set steps=300
anaphora study tracking
anaphora study recall
anaphora study budget --corpus text.txt --set seconds=60
anaphora study draw --set samples=10
"""


@click.command("study", cls=Order, examples=EXAMPLES)
@click.argument("name", metavar="NAME")
@click.option("--corpus", metavar="DATA", help="The data to study; each study has its own default.")
@click.option("-o", "--out", metavar="FOLDER", help="Folder for the runs and the picture; runs/study-NAME.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated."
)
@json_option
def command(
    name: str, corpus: str | None, out: str | None, assignments: tuple[str, ...], as_json: bool
) -> None:
    """Run the experiment NAME, print what it found and write its picture.

    \b
    length     quality against input length, with and without attention
    memory     what Elman, LSTM, GRU and Transformer remember while the answer
               moves back (adding, brackets, recall), and the gradient over time
    positions  a Transformer with each of six codes of positions
    scaling    the loss of language models against parameters, data and compute
    draw       DRAW learns to draw small pictures (numerals, an .npz, a folder)
    tracking   which recurrences count modulo two and five, and follow swaps (S₅)
    recall     how much fits into a vector, a matrix, and attention
    budget     the loss of all language models after the same time

    If you stop a study with Ctrl-C, the same command continues it; `length` starts again.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.pictures import draw, write_files
    from anaphora.cli.reporting import make_reporter
    from anaphora.errors import SettingsError
    from anaphora.settings.files import read_assignments
    from anaphora.tasks import study
    from anaphora.views.studies import study_picture

    written = read_assignments(assignments)
    if written.problems:
        raise SettingsError(written.problems)
    folder = Path(out or f"runs/study-{name}")
    options = {"corpus": corpus, "settings": written.values}
    given = {key: value for key, value in options.items() if value}
    found = study.run(name, folder, reporter=make_reporter(), **given)
    drawn = study_picture(name, found)
    files = {kind: str(folder / f"{name}.{kind}") for kind in ("html", "svg")}
    write_files(drawn, files)
    if as_json:
        emit({**found, **files})
        return
    draw(drawn)
    say(f"Wrote {', '.join(files.values())}.")
