"""``anaphora score``: measure a model on data with known answers."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import (
    checkpoint_option,
    json_option,
    series_options,
    skip_bad_option,
    source_field_option,
    target_field_option,
    trust_option,
)

EXAMPLES = """
anaphora score runs/numbers test.tsv
anaphora score runs/numbers numbers --json
anaphora score runs/x test.en --target test.de
anaphora score runs/three-seeds test.tsv
anaphora score runs/book test.txt --set dynamic=0.0003 --set cache=2000
"""


@click.command("score", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("data", metavar="DATA")
@click.option("--target", metavar="FILE", help="Second of two parallel files.")
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept at each step.")
@click.option("--length-penalty", type=float, metavar="A", help="α in score = log p / lengthᵅ.")
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any option of predicting, or of score; repeatable.",
)
@click.option(
    "--bad-rows",
    type=click.Choice(["strict", "skip"]),
    help="Stop at a broken row, or leave it out; as in training if not given.",
)
@skip_bad_option
@source_field_option
@target_field_option
@series_options
@checkpoint_option
@json_option
@trust_option
def command(
    run: str,
    data: str,
    target: str | None,
    bad_rows: str | None,
    skip_bad: bool,
    assignments: tuple[str, ...],
    checkpoint: int | None,
    as_json: bool,
    **flags: Any,
) -> None:
    """Measure the model of RUN on DATA: a file, or an embedded corpus (its test split).

    Measures have the names and the values that `score` has in Python and --json: shares are in percent (79.82 %). BLEU and chrF
    come with sacrebleu's signature, so that they can be compared. Of a folder that
    `train --seeds` or `distill --seeds` wrote, every run is measured: mean ± standard deviation, and the values by seed.
    """
    from pathlib import Path

    from anaphora.cli.output import emit, say
    from anaphora.cli.predicting import model_of, read_options
    from anaphora.cli.request import FIELDS
    from anaphora.cli.training import check_data
    from anaphora.data.sources.report import reported
    from anaphora.tasks.recipe import Recipe, single_runs

    runs = single_runs([run])
    recipe = Recipe.read(Path(runs[0]))
    both = data if target is None else (data, target)
    check_data(both, recipe.task)
    if skip_bad and bad_rows == "strict":
        raise click.UsageError("--skip-bad and --bad-rows strict contradict each other; give one of them.")
    skipping = "skip" if skip_bad else bad_rows
    named = {field: flags.pop(field) for field in FIELDS} | {"bad_rows": skipping}
    options = read_options(recipe.task, flags, assignments, scoring=True)
    options |= {key: value for key, value in named.items() if value is not None}

    found = []
    for one in runs:
        own = dict(options)
        model = model_of(one, own, checkpoint)
        with reported(say if one == runs[0] else str):
            found.append(model.score(both, **own))
    if runs != [run]:
        _report_several(run, both, dict(zip(runs, found, strict=True)), as_json=as_json)
    elif as_json:
        emit({"run": run, "data": both, **found[0]})
    else:
        _show(found[0])


def _report_several(run: str, data: Any, scores: dict[str, dict[str, Any]], *, as_json: bool) -> None:
    """Mean ± standard deviation of the numbers that the runs of several seeds have in common, and their values."""
    import statistics

    from anaphora.cli.output import emit, result, say, table

    first, *others = scores.values()
    measures: dict[str, dict[str, Any]] = {}
    for key, value in first.items():
        values = [value, *(one.get(key) for one in others)]
        if all(isinstance(one, int | float) and not isinstance(one, bool) for one in values):
            sd = statistics.stdev(values) if others else 0.0
            measures[key] = {"mean": statistics.fmean(values), "sd": sd, "values": values}
    if as_json:
        emit({"run": run, "data": data, "metrics": measures, "runs": scores})
        return
    say(f"Measured {len(scores)} run{'s' if len(scores) != 1 else ''}: {', '.join(scores)}.")
    rows = []
    for key, one in measures.items():
        same = len(set(one["values"])) == 1
        mean = _number(one["values"][0]) if same else f"{_number(one['mean'])} ± {one['sd']:.2g}"
        rows.append((key, _with_unit(mean, key), "" if same else "  ".join(map(_number, one["values"]))))
    result(table(rows))


def _show(scores: dict[str, Any]) -> None:
    """Numbers as a table, and whatever is a table itself (a confusion matrix, say) below it."""
    from anaphora.cli.output import faint, heading, result, table

    rows = []
    for key, value in scores.items():
        if key.endswith("_signature") or isinstance(value, dict | list):
            continue
        shown = _with_unit(_number(value), key)
        rows.append((key, shown, faint(str(scores.get(f"{key}_signature", "")))))
    result(table(rows))
    for key, value in scores.items():
        if isinstance(value, dict):
            result(heading(key))
            result(table([(str(name), *_cells(cells, key)) for name, cells in value.items()]))


def _cells(value: Any, key: str) -> list[str]:
    if isinstance(value, dict):
        return [f"{name} {_cells(cell, name)[0]}" for name, cell in value.items()]
    if isinstance(value, list | tuple):
        return [cell for item in value for cell in _cells(item, key)]
    return [_with_unit(_number(value), key)]


def _with_unit(number: str, measure: str) -> str:
    from anaphora.kinds.measures.judged import unit_of

    return f"{number} {unit_of(measure)}".rstrip()


def _number(value: Any) -> str:
    """Two decimals, and three significant digits of what is small, as errors may be, or beyond all measure."""
    if not isinstance(value, float):
        return str(value)
    if abs(value) >= 1e9:
        return f"{value:.3g}"
    return f"{value:.2f}" if abs(value) >= 1 or not value else f"{value:.3g}"
