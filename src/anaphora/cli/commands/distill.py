"""``anaphora distill``: train a model on what trained runs predict."""

from __future__ import annotations

from typing import Any

import click

from anaphora.cli.commands.train import _setting_options
from anaphora.cli.group import Order
from anaphora.cli.options import (
    json_option,
    seeds_option,
    skip_bad_option,
    source_field_option,
    target_field_option,
)

EXAMPLES = """
anaphora distill runs/big train.tsv --valid dev.tsv --hidden 128 -o runs/small
anaphora distill runs/a runs/b runs/c train.tsv --valid dev.tsv -o runs/of-three
anaphora distill runs/big train.tsv --valid dev.tsv --hidden 128 --seeds 3 -o runs/three-small
anaphora distill runs/big train.tsv --sequences --model lstm-attention -o runs/small
anaphora distill runs/big train.tsv --extra texts.txt -o runs/self-trained
"""


@click.command("distill", cls=Order, examples=EXAMPLES)
@click.argument("teachers", metavar="RUN…", nargs=-1, required=True)
@click.argument("data", metavar="DATA")
@click.option("--valid", metavar="DATA", help="Dev data; without it a part of DATA is held out.")
@click.option("-o", "--out", metavar="RUN", help="The run folder to write; runs/… if not given.")
@click.option("--model", metavar="PRESET", help="Preset of the student; that of the first RUN if not given.")
@_setting_options
@click.option(
    "--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Any setting; may be repeated."
)
@click.option(
    "--sequences",
    is_flag=True,
    help="Of translators: train on their outputs for the training inputs in place of the true ones.",
)
@click.option(
    "--extra",
    metavar="FILE",
    help="Of translators: also train on their outputs for the lines of FILE (self-training).",
)
@source_field_option
@target_field_option
@skip_bad_option
@seeds_option
@click.option("--force", is_flag=True, help="Replace the run folder if it exists.")
@json_option
def command(
    teachers: tuple[str, ...],
    data: str,
    valid: str | None,
    out: str | None,
    assignments: tuple[str, ...],
    sequences: bool,
    extra: str | None,
    source_field: str | None,
    target_field: str | None,
    skip_bad: bool,
    seeds: int,
    force: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Train a student on DATA that also learns what trained runs predict.

    The loss is (1 − w) times that of the true answers plus w times the divergence from the mean of what the runs predict, with
    w = teacher_weight. The student has their task, their symbols and labels, and its own preset and sizes. With --sequences a translator
    learns the outputs that a beam of its teachers finds (Kim & Rush 2016), with --extra also those for texts without a translation.
    """
    from pathlib import Path

    from anaphora.cli.request import read_request
    from anaphora.data.asked import check_readable
    from anaphora.tasks.recipe import Recipe, single_runs

    teachers = tuple(single_runs(teachers))
    recipes = [Recipe.read(Path(run)) for run in teachers]
    task = recipes[0].task.command
    _check_tasks(teachers, [recipe.task for recipe in recipes])
    if (sequences or extra) and task != "translate":
        option = "--sequences" if sequences else "--extra"
        raise click.UsageError(f"{option} is for translators, but {teachers[0]} is a {recipes[0].task.name}.")
    if extra is not None:
        check_readable(extra)
    given = {key: value for key, value in flags.items() if value is not None}
    model = str(recipes[0].settings.model)  # type: ignore[attr-defined]
    preset = recipes[0].task.presets.get(model)
    if preset is not None and preset.direct:
        raise click.UsageError(
            f"{teachers[0]} is of the preset {model}, which gives no scores to learn from; give a network that was trained by steps."
        )
    given.setdefault("model", model)
    _check_student(recipes[0].task, given["model"])
    given["teacher"] = ",".join(teachers)
    if skip_bad:
        given["bad_rows"] = "skip"
    places = {
        "task": task,
        "data": data,
        "valid": valid,
        "out": out,
        "source_field": source_field,
        "target_field": target_field,
    }
    request = read_request(None, places, given, assignments)

    from anaphora.cli.training import exit_status, train

    rewrite = _rewriting(request, teachers, sequences, extra) if sequences or extra else None
    return exit_status(train(request, force=force, as_json=as_json, seeds=seeds, rewrite=rewrite))


def _check_tasks(teachers: tuple[str, ...], tasks: list[Any]) -> None:
    """A mistake where a teacher's task has no teachers, or is not that of the first one."""
    from anaphora.tasks.registry import TASKS

    if "teacher" not in tasks[0].settings.model_fields:
        known = [task.name for task in TASKS.values() if "teacher" in task.settings.model_fields]
        raise click.UsageError(
            f"{teachers[0]} is a {tasks[0].name}; distill trains on what runs of {', '.join(known)} predict."
        )
    for run, task in zip(teachers, tasks, strict=True):
        if task is not tasks[0]:
            raise click.UsageError(
                f"{run} is a {task.name}, but {teachers[0]} is a {tasks[0].name}; teachers are of one task."
            )


def _check_student(task: Any, model: str) -> None:
    """A mistake where the preset of the student has no loss that what teachers predict could be part of."""
    if model in task.presets and "teacher" not in task.used(model):
        known = [name for name in task.presets if "teacher" in task.used(name)]
        raise click.UsageError(
            f"--model {model} cannot learn from what runs predict; choose one of {', '.join(known)}."
        )


def _rewriting(request: Any, teachers: tuple[str, ...], sequences: bool, extra: str | None) -> Any:
    """What makes the examples of a student of translators: their outputs for the training inputs, and for other texts."""

    def rewrite(student: Any) -> tuple[list[Any], list[Any]]:
        from anaphora.cli.output import say
        from anaphora.tasks.distilling import ensemble, texts_of, written_pairs

        texts = [] if extra is None else texts_of(extra, student)
        train, dev = student._open(request.data, request.valid, spill=None, **request.fields)
        rows, teacher = list(train), ensemble(teachers)
        left = 0
        if sequences:
            say(f"The teachers write outputs for {len(rows)} training inputs.")
            rows, left = written_pairs(teacher, [source for source, _ in rows])
        if texts:
            say(f"The teachers write outputs for {len(texts)} lines of {extra}.")
            more, empty = written_pairs(teacher, texts)
            rows, left = rows + more, left + empty
        if left:
            say(
                f"{left} {'input was' if left == 1 else 'inputs were'} left out, as nothing was written for them."
            )
        return rows, list(dev)

    return rewrite
