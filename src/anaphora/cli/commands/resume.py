"""``anaphora resume``: go on where a run was stopped."""

from __future__ import annotations

import click

from anaphora.cli.group import Order
from anaphora.cli.options import checkpoint_option, json_option, trust_option

EXAMPLES = """
anaphora resume runs/numbers
anaphora resume runs/numbers --steps 8000
anaphora resume runs/numbers --checkpoint 1500
"""


@click.command("resume", cls=Order, examples=EXAMPLES)
@click.argument("run", metavar="RUN")
@click.option("--steps", type=int, metavar="N", help="Train longer: to step N instead of the run's own.")
@click.option("--epochs", type=float, metavar="X", help="Train longer: to X passes over the data.")
@click.option(
    "--force",
    is_flag=True,
    help="Continue although the source of your own part has changed since the run began.",
)
@checkpoint_option
@json_option
@trust_option
def command(
    run: str, steps: int | None, epochs: float | None, checkpoint: int | None, force: bool, as_json: bool
) -> int:
    """Continue the training of RUN from its newest complete checkpoint.

    With --checkpoint the run goes back to that step; the checkpoints after it are removed.

    RUN may be a folder of `train --seeds` or `distill --seeds`: runs that have not ended continue, and those that are missing start.

    On the CPU the result is bit for bit that of a run that was never stopped. The settings are those of the run; if its
    config.json was edited since, the changes are reported.
    """
    import time
    from pathlib import Path

    from anaphora.cli.training import exit_status, report
    from anaphora.tasks.recipe import Recipe
    from anaphora.tasks.registry import estimator
    from anaphora.tasks.seeds import first_run

    recipe = Recipe.read(first_run(Path(run)))
    from anaphora.cli.reporting import make_reporter

    begun = time.monotonic()
    model = estimator(recipe.task.command).resume(
        run,
        steps=steps,
        epochs=epochs,
        checkpoint=checkpoint,
        force=force,
        reporter=make_reporter(recipe.settings),
    )
    return exit_status(report(model, run, seconds=time.monotonic() - begun, as_json=as_json))
