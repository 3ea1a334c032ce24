"""``anaphora compare``: runs side by side on the same examples."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import (
    json_option,
    series_options,
    skip_bad_option,
    source_field_option,
    target_field_option,
    trust_option,
)

EXAMPLES = """
anaphora compare runs/lstm runs/gru
anaphora compare runs/lstm runs/gru --data test.tsv --examples 20
anaphora compare runs/* --data test.tsv --set beam=5 --json
"""


@click.command("compare", cls=Order, examples=EXAMPLES)
@click.argument("runs", metavar="RUN RUN…", nargs=-1, required=True)
@click.option("--data", metavar="DATA", help="Data with known answers; without it the dev data of the runs.")
@click.option("--target", metavar="FILE", help="Second of two parallel files.")
@click.option("--examples", type=int, default=5, show_default=True, metavar="N", help="Examples to show.")
@click.option(
    "--samples",
    type=int,
    default=2000,
    show_default=True,
    metavar="N",
    help="Samples of intervals and tests.",
)
@click.option(
    "--level", type=float, default=0.95, show_default=True, metavar="P", help="Share in an interval."
)
@click.option("--seed", type=int, default=1, show_default=True, metavar="N", help="Of the samples.")
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any option of predicting; repeatable."
)
@skip_bad_option
@source_field_option
@target_field_option
@series_options
@json_option
@trust_option
def command(
    runs: tuple[str, ...],
    data: str | None,
    target: str | None,
    assignments: tuple[str, ...],
    skip_bad: bool,
    as_json: bool,
    **asked: Any,
) -> None:
    """Compare the models of several runs of one task on the same examples.

    The table has the settings in which the runs differ, their size and speed, and each measure with its bootstrap interval.
    Every run is compared with the first one: the difference, its interval, and the p-value of a paired test. Below it are
    the examples on which the runs disagree most. Both say what other examples could change, not what another seed of
    training could. A folder that `train --seeds` or `distill --seeds` wrote stands for its runs.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, result, say
    from anaphora.cli.predicting import read_options
    from anaphora.cli.training import check_data
    from anaphora.data.sources.report import reported
    from anaphora.tasks.recipe import Recipe, single_runs

    runs = tuple(single_runs(runs))
    tasks = [Recipe.read(Path(run)).task for run in runs]
    if target is not None and data is None:
        raise click.UsageError("--target is the second of two files; name the first with --data.")
    both = data if data is None or target is None else (data, target)
    if both is not None:
        check_data(both, tasks[0])
    options = read_options(tasks[0], {}, assignments)

    from anaphora.tasks.comparing.comparison import compare

    with reported(say):
        found = compare(*runs, data=both, bad_rows="skip" if skip_bad else None, **asked, **options)
    if as_json:
        emit(found.to_dict())
    else:
        result(str(found))
