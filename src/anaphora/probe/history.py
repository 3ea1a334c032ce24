"""The course of a training, read from the journals of one or several run folders, also while they grow."""

from __future__ import annotations

import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.errors import RunError
from anaphora.probe.trace import Trace
from anaphora.training.journal import read_journal
from anaphora.training.lock import read_holder
from anaphora.training.run import RunFolder

MOST_BYTES = 1 << 23
"""Bytes that are read of each journal; of a longer one, pieces from its beginning to its end."""
STEPS_AT_MOST = 20_000
"""Of a journal with more lines of training every so many-th is taken."""


def history(*runs: str | Path) -> Trace:
    """What training wrote to the journals of ``runs``, as a `Trace` of tables; every record names its ``run``.

    Args:
        runs: run folders; a run that is still training is read as far as it is.

    Returns a trace with the tables ``steps`` (step, epoch, symbols, loss, lr, grad_norm, clipped), ``dev`` (step, measure,
    value, best), ``samples`` (step, source, reference, output), ``events`` (step, event: resumed, best, not-finite …) and
    ``seconds`` (step, seconds since the run, or its resumption, began). The fact ``early`` says of each run that did not take all
    of its steps how far it came. `Trace.view` draws it: ``curves``, ``samples``, ``health``.
    Raises a `RunError` without runs, and where a folder holds none.

    >>> model = torch.nn.Linear(2, 1)
    >>> done = an.fit(model, torch.nn.MSELoss(), [(torch.ones(4, 2), torch.ones(4, 1))], steps=3, log_every=1, out="runs/line")
    >>> [record["step"] for record in an.history("runs/line").tables["steps"]]
    [1, 2, 3]
    """
    if not runs:
        raise RunError("name at least one run folder.")
    names = names_of([Path(run) for run in runs])
    tables: dict[str, list[dict[str, Any]]] = {
        "steps": [],
        "dev": [],
        "samples": [],
        "events": [],
        "seconds": [],
    }
    for name, run in zip(names, runs, strict=True):
        _read(name, RunFolder.open(Path(run)), tables)
    return Trace({}, {}, {"runs": names, "early": early(names, runs)}, tables)


def early(names: Sequence[str], runs: Sequence[str | Path]) -> dict[str, str]:
    """Return, of the runs that did not take all of their steps, how far each came and why it went no further."""
    found = {}
    for name, run in zip(names, runs, strict=True):
        folder = RunFolder(Path(run))
        ended = ending(read_journal(folder.timings, most=MOST_BYTES))
        if ended is None or ended.step >= ended.steps:
            continue
        holder = read_holder(folder.path / "lock")
        living = holder is not None and holder.host == socket.gethostname() and holder.lives
        word = "is at" if living else WORDS.get(ended.how, "broke off at")
        found[name] = f"{word} step {ended.step:,} of {ended.steps:,}"
    return found


WORDS = {
    "interrupted": "was stopped at",
    "patience": "made no more progress and ended at",
    "callback": "was ended by a callback at",
}
"""How a run ended that did not take all of its steps."""


class Ending(NamedTuple):
    """The last ``step`` of so many ``steps``, and how a training ended there; ``how`` is empty while it has not."""

    step: int
    steps: int
    how: str


def ending(lines: Iterable[Mapping[str, Any]], steps: int = 0) -> Ending | None:
    """Return how a training ended, from the lines of ``timings.jsonl``; ``steps``: all it was to take, where no line has it."""
    step, how = -1, ""
    for line in lines:
        event = line.get("event")
        if event in ("start", "resume"):
            how, steps = "", line["steps"] if isinstance(line.get("steps"), int) else steps
        if isinstance(line.get("step"), int):
            step = max(step, line["step"])
        if event in ("finished", *WORDS):
            how = str(event)
    return Ending(step, steps, how) if step >= 0 and steps > 0 else None


def names_of(paths: list[Path]) -> list[str]:
    """The folders' own names, with as many of their parents as it takes to tell them apart."""
    depth = 1
    while True:
        names = ["/".join(path.resolve().parts[-depth:]) for path in paths]
        if len(set(names)) == len({path.resolve() for path in paths}) or depth > 32:
            return names
        depth += 1


def _numbered(path: Path) -> Iterator[dict[str, Any]]:
    """The lines that say which step they belong to, as all do that a training wrote."""
    return (line for line in read_journal(path, most=MOST_BYTES) if isinstance(line.get("step"), int))


def _read(name: str, run: RunFolder, tables: dict[str, list[dict[str, Any]]]) -> None:
    steps: list[dict[str, Any]] = []
    for line in _numbered(run.metrics):
        if isinstance(line.get("dev"), dict):
            for measure, value in line["dev"].items():
                if isinstance(value, int | float):
                    record = {"measure": measure, "value": float(value), "best": bool(line.get("best"))}
                    tables["dev"].append({"run": name, "step": line["step"], **record})
        elif "health" in line:
            event = {"event": line["health"], "message": line.get("message", "")}
            tables["events"].append({"run": name, "step": line["step"], **event})
        else:
            numbers = {key: value for key, value in line.items() if isinstance(value, int | float | None)}
            steps.append({"run": name, **numbers})
    tables["steps"] += steps[:: 1 + len(steps) // STEPS_AT_MOST]
    tables["samples"] += [{"run": name, **line} for line in _numbered(run.samples)]
    for line in read_journal(run.timings, most=MOST_BYTES):
        if line.get("event") == "resume":
            tables["events"].append({"run": name, "step": line.get("from_step", 0), "event": "resumed"})
        elif "seconds" in line and "step" in line:
            tables["seconds"].append({"run": name, "step": line["step"], "seconds": line["seconds"]})
