"""``anaphora train``: from data to a run folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from anaphora.cli.catalog import TASK_COMMANDS
from anaphora.cli.failures import FINE
from anaphora.cli.group import Order
from anaphora.cli.options import (
    json_option,
    seeds_option,
    series_options,
    skip_bad_option,
    source_field_option,
    target_field_option,
)

EXAMPLES = """
anaphora train translate numbers -o runs/numbers
anaphora train translate train.tsv --valid dev.tsv --model transformer -o runs/x
anaphora train translate train.en --target train.de --set tokens=word --steps 2000
anaphora train classify reviews.tsv --model bilstm
anaphora train tag train.conll --valid dev.conll --model bilstm-crf
anaphora train tag train.conll --valid dev.conll --seeds 3
anaphora train language book.txt --model lstm --set tokens=char
anaphora train forecast sensors.csv --set horizon=24
anaphora train transcribe recordings.tsv --valid dev.tsv
anaphora train caption pictures.tsv --model lstm-attention
anaphora train answer questions.tsv
anaphora train embed pairs.tsv --model bilstm
anaphora train run.toml --dry-run
"""
# The commonest settings as options: name, type, what stands for the value. The rest goes through --set.
FLAGS: tuple[tuple[str, type, str], ...] = (
    ("steps", int, "Optimizer steps."),
    ("epochs", float, "Passes over the data, instead of steps."),
    ("hidden", int, "Width of the model."),
    ("layers", int, "Layers; of an encoder-decoder, of each."),
    ("dropout", float, "Share of values dropped while training."),
    ("lr", float, "Peak learning rate."),
    ("batch-tokens", int, "Symbols in a batch."),
    ("tokens", str, "What one symbol is: char, word or bpe."),
    ("vocab-size", int, "Size of the vocabulary, at most."),
    ("init", str, "Trained run, or folder of `transformers`, to start from."),
    ("embeddings", str, "File of word vectors to start from."),
    ("device", str, "auto, cpu, cuda …"),
    ("precision", str, "auto, fp32, bf16 or fp16."),
    ("seed", int, "Seed of everything random."),
)


def _complete_task(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_task

    return complete_task(ctx, param, incomplete)


def _complete_preset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_preset

    return complete_preset(ctx, param, incomplete)


def _complete_assignment(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    from anaphora.cli.words import complete_assignment

    return complete_assignment(ctx, param, incomplete)


def _setting_options(function: Any) -> Any:
    for name, kind, text in reversed(FLAGS):
        metavar = {int: "N", float: "X", str: "WORD"}[kind]
        function = click.option(f"--{name}", type=kind, metavar=metavar, help=text)(function)
    return function


class Train(Order):
    """``train TASK --model PRESET --help`` also lists the settings of that preset."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta["typed"] = list(args)
        return super().parse_args(ctx, args)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        typed: list[str] = ctx.meta.get("typed", [])
        task = next((word for word in typed if word in TASK_COMMANDS), None)
        if task is None:
            return super().format_epilog(ctx, formatter)
        from anaphora.cli.glossary import entries
        from anaphora.cli.output import heading, table, word
        from anaphora.cli.words import find_task

        info = find_task(task)
        at = typed.index("--model") + 1 if "--model" in typed else len(typed)
        named = [*typed[at : at + 1], *(one.partition("=")[2] for one in typed if one.startswith("--model="))]
        preset = next((one for one in named if one in info.presets), info.default_preset)
        formatter.write(f"\n{heading(f'Settings of {task}, preset {preset}')} (--set KEY=VALUE)\n")
        rows = [(one.key, word(one.default), one.meaning) for one in entries(info, preset)]
        formatter.write(f"{table(rows)}\n")
        return None


@click.command("train", cls=Train, examples=EXAMPLES)
@click.argument("task", shell_complete=_complete_task)
@click.argument("data", required=False)
@click.option("--target", metavar="FILE", help="Second of two parallel files: line n answers line n of DATA.")
@click.option("--valid", metavar="DATA", help="Dev data; without it a part of DATA is held out.")
@click.option("--valid-target", metavar="FILE", help="Second of two parallel dev files.")
@click.option("-o", "--out", metavar="RUN", help="The run folder to write; runs/… if not given.")
@click.option("--model", metavar="PRESET", help="See `anaphora models`.", shell_complete=_complete_preset)
@_setting_options
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="KEY=VALUE",
    help="Any setting; may be repeated.",
    shell_complete=_complete_assignment,
)
@source_field_option
@target_field_option
@series_options
@skip_bad_option
@seeds_option
@click.option("--force", is_flag=True, help="Replace the run folder if it exists.")
@click.option("--dry-run", is_flag=True, help="Check everything and say what would happen; train nothing.")
@json_option
def command(
    task: str,
    data: str | None,
    target: str | None,
    valid: str | None,
    valid_target: str | None,
    out: str | None,
    assignments: tuple[str, ...],
    skip_bad: bool,
    seeds: int,
    force: bool,
    dry_run: bool,
    as_json: bool,
    **flags: Any,
) -> int:
    """Train a model on DATA and write a run folder.

    TASK is what to learn: translate, classify, tag, language, forecast, transcribe, caption, answer or embed
    (`anaphora models` says what data each takes). DATA is a file or the name of an embedded corpus
    (`anaphora corpora`). Instead of both, a TOML file may be given that holds the keys task, data, valid, out
    and any settings; options given in addition override it.

    `anaphora train TASK --model PRESET --help` lists the settings of a preset, `anaphora explain` those of all.
    """
    from anaphora.cli.request import FIELDS, read_request
    from anaphora.cli.words import find_task

    file = Path(task) if task.endswith(".toml") else None
    if file is not None and data is not None:
        raise click.UsageError(f"{file} names its own data; leave out {data!r}, or use --set data={data}.")
    if file is None and data is None:
        find_task(task)  # names the tasks where this is the data
        raise click.UsageError(
            f"DATA is missing: `anaphora train {task} FILE`, or an embedded corpus's name."
        )
    places = {
        "task": None if file else task,
        "data": _both(data, target, "--target"),
        "valid": _both(valid, valid_target, "--valid-target"),
        "out": out,
        **{field: flags.pop(field) for field in FIELDS},
    }
    given = {key: value for key, value in flags.items() if value is not None}
    if skip_bad:
        given["bad_rows"] = "skip"
    request = read_request(file, places, given, assignments)

    from anaphora.cli.training import exit_status, plan, train

    if dry_run:
        plan(request, force=force, as_json=as_json, seeds=seeds)
        return FINE
    return exit_status(train(request, force=force, as_json=as_json, seeds=seeds))


def _both(first: str | None, second: str | None, option: str) -> str | tuple[str, str] | None:
    if second is None:
        return first
    if first is None:
        raise click.UsageError(f"{option} is the second of two parallel files; the first is missing.")
    return (first, second)
