"""``anaphora predict``: lines in, lines out."""

from __future__ import annotations

import sys
from typing import Any

import click

from anaphora.cli.group import Order
from anaphora.cli.options import json_option

EXAMPLES = """
anaphora predict runs/numbers inputs.txt > outputs.txt
echo 'forty two' | anaphora predict runs/numbers
anaphora predict runs/numbers inputs.txt --beam 10 --n-best 3 --json
"""


@click.command("predict", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.argument("file", metavar="[FILE|-]", default="-")
@click.option("--beam", type=int, metavar="N", help="Hypotheses kept at each step; 1 is greedy.")
@click.option("--length-penalty", type=float, metavar="X", help="α in score = log p / lengthᵅ.")
@click.option("--max-length", type=int, metavar="N", help="Most symbols in an output.")
@click.option(
    "--n-best", type=click.IntRange(1, 1000), default=1, metavar="N", help="Outputs for each input."
)
@json_option
def command(
    run: str,
    file: str,
    beam: int | None,
    length_penalty: float | None,
    max_length: int | None,
    n_best: int,
    as_json: bool,
) -> None:
    """Put each line of FILE (or of standard input) through the model of RUN.

    One output line for each input line, in order; an empty line stays empty. With --n-best each output is
    a line `number⇥score⇥text`. With --json each input gives one line of JSON.
    """
    from anaphora.cli.lines import line_batches
    from anaphora.cli.output import say

    given = {"beam": beam, "length_penalty": length_penalty, "max_length": max_length}
    options = {key: value for key, value in given.items() if value is not None}
    _check(options)
    batches = line_batches(file)
    if file != "-":
        first = next(batches, None)  # a missing file is told before torch is loaded
        batches = (batch for part in ((first,) if first else (), batches) for batch in part)
    elif sys.stdin.isatty():
        say("Type a line to translate it; Ctrl-D ends.")

    from anaphora.tasks.load import load

    model = load(run)
    done = 0
    for lines in batches:
        _answer(model, lines, done, options, n_best, as_json)
        done += len(lines)
        sys.stdout.flush()


def _check(options: dict[str, Any]) -> None:
    from anaphora.settings import SearchSettings, build

    build(
        SearchSettings, options, owner="predict", where={key: f"--{key.replace('_', '-')}" for key in options}
    )


def _answer(
    model: Any, lines: list[str], done: int, options: dict[str, Any], n_best: int, as_json: bool
) -> None:
    from anaphora.cli.output import emit

    asked = [line for line in lines if line.strip()]
    found = iter(model.search(asked, n_best=n_best, **options) if asked else [])
    for count, line in enumerate(lines, start=done + 1):
        outputs = next(found) if line.strip() else []
        if as_json:
            shown = [
                {"text": o.text, "score": o.score, "log_prob": o.log_prob, "finished": o.finished}
                for o in outputs
            ]
            best = outputs[0].text if outputs else ""
            emit({"line": count, "input": line, "output": best, "outputs": shown}, indent=None)
        elif n_best > 1:
            for o in outputs:
                click.echo(f"{count}\t{o.score:.4f}\t{_one_line(o.text)}")
        else:
            click.echo(_one_line(outputs[0].text) if outputs else "")


def _one_line(text: str) -> str:
    """An output that holds line breaks must not shift the lines that follow."""
    return " ".join(text.splitlines())
