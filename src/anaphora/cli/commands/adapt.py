"""``anaphora adapt``: a transcriber that has adapted to recordings without transcripts."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, skip_bad_option, trust_option

EXAMPLES = """
anaphora adapt runs/digits theo/ -o runs/digits-theo --set lexicon=train
anaphora adapt runs/digits recordings.tsv -o runs/room --balance 0
"""


@click.command("adapt", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("recordings", metavar="RECORDINGS")
@click.option("-o", "--out", metavar="RUN", required=True, help="The run folder to write.")
@click.option(
    "--rounds", type=click.IntRange(1), metavar="N", help="Transcribe and learn so many times (default 6)."
)
@click.option(
    "--balance",
    type=click.FloatRange(0, 1),
    metavar="SHARE",
    help="How far words are drawn to how often training had them: 0 (other words are said here) to 1 (the same); default 0.5.",
)
@click.option("--beam", type=int, metavar="N", help="Beginnings of the text kept while searching.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of predicting; repeatable."
)
@skip_bad_option
@click.option("--force", is_flag=True, help="Replace the run folder if it exists.")
@json_option
@trust_option
def command(
    run: str,
    recordings: str,
    out: str,
    rounds: int | None,
    balance: float | None,
    assignments: tuple[str, ...],
    skip_bad: bool,
    force: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Adapt the transcriber of RUN to a speaker or a microphone, and write it as a run of its own.

    RECORDINGS is a file, a folder or a list, as for predict; no transcripts are needed or read. The model transcribes them, learns from the
    transcripts that it is surest of, and begins again. Dozens of recordings of the same voice are needed, better hundreds; a lexicon
    (--set lexicon=train) helps much. `anaphora score` on some transcripts tells whether it helped.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.predicting import model_of, read_options
    from anaphora.data.asked import check_readable
    from anaphora.data.sources.report import reported
    from anaphora.tasks.recipe import Recipe
    from anaphora.training.run import RunFolder

    recipe = Recipe.read(Path(run))
    if recipe.task.command != "transcribe":
        raise click.UsageError(f"{run} is a {recipe.task.name}; adapt is for a Transcriber.")
    if skip_bad:
        flags["bad_rows"] = "skip"
    options = read_options(recipe.task, flags, assignments)
    check_readable(recordings, folders=True)
    RunFolder(Path(out)).check_free(force=force)

    model = model_of(run, options)
    asked = {key: value for key, value in (("rounds", rounds), ("balance", balance)) if value is not None}
    with reported(say):
        adapted = model.adapt(recordings, **asked, **options)
    adapted.save(out, force=force)
    if as_json:
        emit({"out": out})
        return
    say(f"{out}: adapted to {recordings}.")
    say(f"Use it:  anaphora predict {out} SOUND")
