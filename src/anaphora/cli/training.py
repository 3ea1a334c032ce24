"""The work behind ``train`` and ``resume``: run the estimator, then say what came of it."""

from __future__ import annotations

import shlex
import time
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anaphora.cli.failures import FINE, INTERRUPTED
from anaphora.cli.output import command_name, emit, faint, heading, number, result, say, table
from anaphora.cli.processes import first_process
from anaphora.cli.request import Data, Request
from anaphora.errors import DataError
from anaphora.settings.base import suggestion
from anaphora.tasks.registry import TASKS, TaskInfo
from anaphora.training.launch import recall, remember
from anaphora.training.progress import dev_name


def train(
    request: Request,
    *,
    force: bool,
    as_json: bool,
    seeds: int = 1,
    rewrite: Callable[[Any], tuple[Any, Any]] | None = None,
) -> str:
    """Train as asked, ``seeds`` times, and report; returns how training ended (``finished``, ``patience``, ``interrupted``).

    ``rewrite``, given the untrained estimator, makes training and dev examples that replace those of the data.
    """
    check_data(request.data, request.task)
    if request.valid is not None:
        check_data(request.valid, request.task)
    out = request.out or recall("out") or free_name(request)
    if first_process():
        remember("out", out)
    if request.out is None and first_process():
        say(f"The run goes to {out}; -o RUN chooses another place.")
    from anaphora.cli.reporting import make_reporter
    from anaphora.data.sources.report import reported
    from anaphora.tasks.registry import estimator

    begun = time.monotonic()
    model = estimator(request.task.command)(**request.given)
    reporter = make_reporter(request.settings)
    try:
        with reported(say if first_process() else str):
            data, valid = (request.data, request.valid) if rewrite is None else rewrite(model)
            fields = request.fields if rewrite is None else {}
            model.fit(data, valid=valid, out=out, force=force, reporter=reporter, seeds=seeds, **fields)
    except KeyboardInterrupt:  # before the first step, or twice: the run is there, and can go on
        begun_runs = [*Path(out).glob("config.json"), *Path(out).glob("seed-*/config.json")]
        if first_process() and begun_runs:
            say(f"Go on with it:  {command_name()} resume {shlex.quote(out)}")
        raise
    seconds, chosen = time.monotonic() - begun, assumed(model, request)
    return report(model, out, seconds=seconds, as_json=as_json, chosen=chosen)


def exit_status(stopped: str) -> int:
    """The exit code of a command that trained: that of the signal which stopped it, or that all went well."""
    from anaphora.training.interrupts import exit_code

    return exit_code(INTERRUPTED) if stopped == "interrupted" else FINE


def assumed(model: Any, request: Request) -> dict[str, Any]:
    """The settings that follow from the data: those of ``model`` that were not given and differ from the preset's."""
    before, now = request.settings.model_dump(), model.settings_.model_dump()
    return {key: value for key, value in now.items() if key not in request.given and value != before[key]}


def report(
    model: Any, run: str, *, seconds: float, as_json: bool, chosen: Mapping[str, Any] | None = None
) -> str:
    """Say what training came to: the measures as a result, what to do next as talk.

    Of a new run, whose settings ``chosen`` follow from the data, also what the task advises.
    """
    new = chosen is not None
    if hasattr(model, "seeds_"):
        return _report_seeds(model, run, seconds=seconds, as_json=as_json, new=new)
    ended = model.result_
    if not first_process():
        return str(ended.stopped)
    advice = _advice(model, run) if new and ended.stopped != "interrupted" else ""
    if as_json:
        emit(
            {
                "run": run,
                "task": model.command,
                "model": model.settings_.model,
                "stopped": ended.stopped,
                "steps": ended.steps,
                "best": ended.best,
                "best_step": ended.best_step,
                "metrics": ended.metrics,
                "seconds": round(seconds, 2),
                **({"assumed": dict(chosen)} if chosen else {}),
                **({"advice": advice} if advice else {}),
            }
        )
        return str(ended.stopped)
    reasons = {
        "finished": "Trained for {} step" if ended.steps == 1 else "Trained for {} steps",
        "patience": "Stopped early at step {}, as the dev metric no longer improved",
        "interrupted": "Interrupted at step {}",
        "callback": "Stopped by a callback at step {}",
    }
    if getattr(model, "_direct", False):
        say(f"Fitted ({duration(seconds)}).")
    elif ended.trained:
        say(f"{reasons[ended.stopped].format(number(ended.steps))} ({duration(seconds)}).")
    result(
        table(
            [
                (dev_name(key), f"{value:.4g}")
                for key, value in ended.metrics.items()
                if isinstance(value, int | float)
            ]
        )
    )
    name, typed = command_name(), shlex.quote(run)
    if ended.stopped == "interrupted":
        say(f"Go on with it:  {name} resume {typed}")
    else:
        steps = _next_steps(model)
        margin = max(len(word) for word, _ in steps)
        for word, step in steps:
            say(f"{word.ljust(margin)} {name} {step.format(run=typed)}")
    if advice:
        say(f"Note: {advice}.")
    return str(ended.stopped)


def _advice(model: Any, run: str) -> str:
    """What the task advises after training; it opens the data again, about which there were warnings already when training began."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return str(model._advice(Path(run)))


def _next_steps(model: Any) -> list[tuple[str, str]]:
    """What to do with the trained model; others begin with a masked language model, which can neither write nor judge a line."""
    if getattr(model.settings_, "model", "") == "masked":
        return [("Begin with it:", "train classify DATA --init {run}"), ("Measure it:", "score {run} FILE")]
    return list(TASKS[model.command].next_steps)


def _report_seeds(model: Any, run: str, *, seconds: float, as_json: bool, new: bool) -> str:
    """The same for several seeds: mean ± standard deviation of every measure, and which run is best."""
    from anaphora.kinds.result import plain_value

    found = model.seeds_
    stopped = "interrupted" if found.left else "finished"
    if as_json:
        emit(
            {
                "run": run,
                "task": model.command,
                "model": model.settings_.model,
                "stopped": stopped,
                "metric": found.metric,
                "metrics": dict(found.measures),
                "best_seed": found.best,
                "best_run": found.best_run,
                "runs": [plain_value(one) for one in found.runs],
                "left": found.left,
                "seconds": round(seconds, 2),
            }
        )
        return stopped
    ended = len(found.runs) - sum(one.seed in found.left for one in found.runs)
    many = (
        f"{ended} of {ended + len(found.left)} seeds"
        if found.left
        else f"{ended} seed{'s' if ended != 1 else ''}"
    )
    say(f"Trained with {many} ({duration(seconds)}).")
    rows = [
        (dev_name(name), f"{one['mean']:.4g} ± {one['sd']:.2g}", " ".join(f"{v:.4g}" for v in one["values"]))
        if len(one["values"]) > 1
        else (dev_name(name), f"{one['mean']:.4g}")
        for name, one in found.measures.items()
    ]
    result(table(rows))
    name, typed = command_name(), shlex.quote(run)
    if found.left:
        say(f"Go on with it:  {name} resume {typed}")
        return stopped
    say(f"Best by {dev_name(found.metric)}: {found.best_run}")
    for word, step in _next_steps(model):
        say(f"{word} {name} {step.format(run=shlex.quote(found.best_run))}")
    if new and (advice := _advice(model, found.best_run)):
        say(f"Note: {advice}.")
    return stopped


def plan(request: Request, *, force: bool, as_json: bool, seeds: int = 1) -> None:
    """Say what ``train`` would do, without doing it; refuse what it would refuse."""
    check_data(request.data, request.task)
    if request.valid is not None:
        check_data(request.valid, request.task)
    from anaphora.data.sources.report import reported
    from anaphora.tasks.registry import estimator
    from anaphora.tasks.seeds import seeds_asked
    from anaphora.training.run import RunFolder

    seeds_asked(seeds, getattr(request.settings, "seed", 0))
    if request.out is not None:
        RunFolder(request.out).check_free(force=force)
    model = estimator(request.task.command)(**request.given)
    with reported(say):
        planned: dict[str, Any] = model.plan(request.data, request.valid, **request.fields)
    settings, chosen = model.settings_.model_dump(), assumed(model, request)
    if settings.get("epochs"):
        settings["steps"] = planned.get("steps", settings["steps"])
    if as_json:
        what = {"settings": settings, "assumed": chosen}
        emit({"task": request.task.command, "out": request.out, **what, **planned})
        return
    result(heading(f"{request.task.name}: what would be trained"))
    rows = [(key, _rows(planned.pop(key))) for key in ("train", "valid") if key in planned]
    result(table(rows + [(key.replace("_", " "), _shown(value)) for key, value in planned.items()]))
    result()
    result(heading("Settings") + faint("  (* given by you, + assumed for these data)"))
    marks = dict.fromkeys(request.given, "*") | dict.fromkeys(chosen, "+")
    result(table([(f"{marks.get(key, ' ')} {key}", number(v)) for key, v in settings.items()]))
    say("Nothing was trained: this was a dry run.")


def check_data(data: Data, task: TaskInfo) -> None:
    """Notice a missing file, or a corpus of another task, before torch is loaded, with the nearest name there is."""
    from anaphora.data.corpora import CORPORA

    suitable = [name for name, corpus in CORPORA.items() if task.command in corpus.tasks]
    for part in (data,) if isinstance(data, str) else data:
        name = part.partition(":")[0]
        if name in suitable or Path(part).exists():
            continue
        if name in CORPORA:
            raise DataError(
                f"{name} is a corpus for `train {CORPORA[name].tasks[0]}`; for `{task.command}` there "
                f"{'is' if len(suitable) == 1 else 'are'} {', '.join(suitable)}."
            )
        folder = Path(part).parent
        beside = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        near = suggestion(
            Path(part).name, [*beside, *suitable], otherwise=" `anaphora corpora` lists the embedded ones."
        )
        raise DataError(f"{part} is neither a file nor an embedded corpus.{near}")


def free_name(request: Request) -> str:
    """``runs/DATA-PRESET``, with a number if there is such a folder already."""
    data = request.data if isinstance(request.data, str) else request.data[0]
    stem = Path(data).name.partition(".")[0].replace(":", "-") or "data"
    name = f"runs/{stem}-{getattr(request.settings, 'model', request.task.command)}"
    count = 2
    free = name
    while Path(free).exists():
        free, count = f"{name}-{count}", count + 1
    return free


def duration(seconds: float) -> str:
    """75 → "1 min 15 s"."""
    if seconds < 60:
        return f"{seconds:.0f} s" if seconds >= 1 else f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def _rows(facts: dict[str, Any]) -> str:
    """``{"rows": 20000, "kind": "tsv", …}`` → "20 000 rows; kind tsv, …", without hashes and what is empty; of dev data that
    were held out only how many, as the line of the training data has the rest."""
    whole = facts.get("of", {})
    many = f"{number(facts.get('rows', 0))} rows"
    if whole and facts.get("part") == "dev":
        return f"{many}; held out of the training data"
    quiet = {"rows", "sha256", "fingerprint", "seed", "size", "bytes", "of", "count", "part", "least", "role"}
    quiet |= {"characters"} if whole else set()  # of the whole
    shown = [
        f"{key} {_shown(value)}" for key, value in {**facts, **whole}.items() if key not in quiet and value
    ]
    return f"{many}; {', '.join(shown)}"


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{key} {_shown(item)}" for key, item in value.items())
    if isinstance(value, list | tuple):
        return ", ".join(_shown(item) for item in value)
    return number(value)
