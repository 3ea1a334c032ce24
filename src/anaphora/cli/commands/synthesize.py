"""``anaphora synthesize``: pairs to train on, written by a trained translator."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option, trust_option

EXAMPLES = """
anaphora synthesize runs/de-en more.de --back -o synthetic.tsv
anaphora synthesize runs/de-en more.de --back --set decode=sample -o synthetic.tsv
anaphora synthesize runs/en-de more.en --add train.tsv -o both.tsv
"""


@click.command("synthesize", cls=Order, examples=EXAMPLES)
@click.argument("runs", metavar="RUN…", nargs=-1, required=True)
@click.argument("texts", metavar="TEXTS")
@click.option("-o", "--out", metavar="FILE", required=True, help="The TSV file of pairs to write.")
@click.option(
    "--back",
    is_flag=True,
    help="Each text is a target, and its output the source: back-translation with a model of the other direction.",
)
@click.option("--add", metavar="DATA", help="Pairs to write first, so that FILE is ready to train on.")
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept at each step; 1 is greedy.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of predicting; repeatable."
)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@json_option
@trust_option
def command(
    runs: tuple[str, ...],
    texts: str,
    out: str,
    back: bool,
    add: str | None,
    assignments: tuple[str, ...],
    force: bool,
    as_json: bool,
    **flags: Any,
) -> None:
    """Write a pair for every line of TEXTS: the line, and what the translator of RUN (of several, their mean) makes of it.

    With --back the pairs are reversed: outputs of a model from the target language to the source language
    become sources of true targets (Sennrich 2016); drawn at random (--set decode=sample) they teach more than the best ones (Edunov
    2018). Without it, this is self-training. Empty lines and empty outputs are left out and counted.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.predicting import read_options
    from anaphora.data.asked import check_readable
    from anaphora.errors import DataError
    from anaphora.files.unpacking import check_unpacked
    from anaphora.files.writing import check_place, folder_for, replace_file, writing
    from anaphora.tasks.recipe import Recipe, single_runs

    runs = tuple(single_runs(runs))
    recipe = Recipe.read(Path(runs[0]))
    if recipe.task.command != "translate":
        raise click.UsageError(f"{runs[0]} is a {recipe.task.name}; pairs are written by a Translator.")
    options = read_options(recipe.task, flags, assignments)
    check_readable(texts)
    if Path(out).exists() and not force:
        raise DataError(f"{out} exists already; choose another name, or give --force.")
    check_unpacked(out)
    check_place(Path(out))

    from anaphora.data.sources.opening import open_source
    from anaphora.tasks.distilling import ensemble, texts_of, written_pairs

    first = [] if add is None else list(open_source(add, role="train"))
    translator = ensemble(runs)
    pairs, left = written_pairs(translator, texts_of(texts, translator), back=back, **options)
    if not pairs:
        raise DataError(f"{texts}: all {left} outputs are empty, so that there is no pair to write.")
    rows = (f"{_field(source)}\t{_field(target)}\n" for source, target in [*first, *pairs])
    with folder_for(Path(out)), writing(Path(out)):
        replace_file(Path(out), "".join(rows).encode())
    if as_json:
        emit({"out": out, "written": len(pairs), "added": len(first), "left_out": left})
        return
    say(f"{out}: {len(pairs)} pairs written" + (f" after {len(first)} of {add}" if add else "") + ".")
    if left:
        say(f"{left} {'line was' if left == 1 else 'lines were'} left out, as nothing was written for them.")
    say(f"Train on them:  anaphora train translate {out}")


def _field(text: str) -> str:
    """A text as a field of a TSV file."""
    return " ".join(text.replace("\0", " ").split())
