"""Where ``predict`` puts its answers: on stdout, into a file that can be continued, or into an array of vectors."""

from __future__ import annotations

import io
import json
import os
import stat
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import click
import numpy as np

from anaphora.cli.answering import asked, bulk, respond, warn_of_left_out
from anaphora.cli.answering.response import Response
from anaphora.cli.output import emit, number, plain, say
from anaphora.tasks.bulk.outfile import OutFile
from anaphora.tasks.bulk.values import identity
from anaphora.tasks.bulk.windows import Item

Encode = Callable[[Sequence[Response]], bytes]
MOVING, STANDING = 0.5, 30.0
"""Seconds between two reports of progress: on a terminal, and in a log."""


def print_answers(
    model: Any, source: str, options: Mapping[str, Any], *, as_json: bool, workers: int | None
) -> None:
    """Print the answers in order; those to a pipe or a terminal as its lines come."""
    if _arrives(source):
        for response in respond(model, source, options):
            _print([response], as_json)
        return
    given = bad = 0
    progress = Progress(sys.stderr.isatty() and not sys.stdout.isatty())
    items = _Items(model, source, options)
    for window in bulk(model, options, workers).answers(items):
        _print(window.answers, as_json)
        given, bad = given + len(window.items), bad + _bad(window.answers)
        progress.reached(given)
    progress.clear()
    if not given:
        say("There were no inputs, so there are no answers.")
    warn_of_left_out(model, bad, given)
    if items.empty:
        say(f"{number(items.empty)} of {number(given)} inputs are empty and have no answer.")


def write_answers(
    model: Any,
    source: str,
    options: Mapping[str, Any],
    out: str,
    *,
    as_json: bool,
    workers: int | None,
    force: bool,
) -> None:
    """Write the answers into the file ``out``, going on where an earlier command stopped."""
    form = "json" if as_json else "text"
    file = OutFile(out, _of(model, options, form), anew=force)
    count, empty = _write(model, source, options, file, encode_json if as_json else encode_text, workers)
    if empty:
        say(
            f"Wrote the answers to {number(count - empty)} of {number(count)} inputs to {out}; the others are empty."
        )
    else:
        say(f"Wrote the answers to {number(count)} inputs to {out}.")


def write_vectors(
    model: Any, source: str, options: Mapping[str, Any], npy: str, *, workers: int | None, force: bool
) -> None:
    """Write the vectors of an embedder into a ``.npy`` file: a row for each input, zeros where a line was empty."""
    width = int(model.model_.outputs)

    def encode(responses: Sequence[Response]) -> bytes:
        rows = [one.record["output"] or [0.0] * width for one in responses]
        return np.array(rows, dtype="<f4").tobytes()

    file = OutFile(npy, _of(model, options, "npy"), anew=force, replace=True, head=_npy_head(0, width))
    count, _ = _write(model, source, options, file, encode, workers, head=lambda rows: _npy_head(rows, width))
    say(f"Wrote {number(count)} vectors to {npy}.")


def encode_text(responses: Sequence[Response]) -> bytes:
    return "".join(f"{one.text}\n" for one in responses).encode(errors="replace")


def encode_json(responses: Sequence[Response]) -> bytes:
    lines = (json.dumps(plain(one.record), ensure_ascii=False, allow_nan=False) for one in responses)
    return "".join(f"{line}\n" for line in lines).encode(errors="replace")


def _write(
    model: Any,
    source: str,
    options: Mapping[str, Any],
    file: OutFile,
    encode: Encode,
    workers: int | None,
    head: Callable[[int], bytes] = lambda rows: b"",
) -> tuple[int, int]:
    """Return the number of inputs, and of those that are empty."""
    engine = bulk(model, options, workers)
    with file:
        if file.inputs and not file.complete:
            say(f"{file.part}: goes on after {number(file.inputs)} inputs.")
        progress = Progress(True, file.inputs)
        read = _Items(model, source, options)
        begun = file.inputs
        if engine.in_order:  # those before are answered again, as later answers depend on them
            items, begun = iter(read) if not file.complete else iter(()), 0
        else:
            items = file.rest(read)
        for window in engine.answers(items, first=begun + 1):
            if window.whole:  # windows end where they would have ended in one go
                file.write(window.items, encode(window.answers), _bad(window.answers))
                progress.reached(file.inputs)
        progress.clear()
        file.finish(head(file.inputs))
    warn_of_left_out(model, file.bad, file.inputs)
    return file.inputs, read.empty


def _of(model: Any, options: Mapping[str, Any], form: str) -> dict[str, Any]:
    given = json.loads(json.dumps(dict(options), default=str))
    return {"model": identity(model), "options": given, "form": form}


class _Items:
    """The inputs in a file, of which the empty texts are counted as they pass."""

    def __init__(self, model: Any, source: str, options: Mapping[str, Any]):
        self._batches = asked(model, source, options)
        self.empty = 0

    def __iter__(self) -> Iterator[Item]:
        for batch in self._batches:
            for one in batch:
                self.empty += isinstance(one.given, str) and not one.given.strip()
                yield one


def _arrives(source: str) -> bool:
    """Whether the inputs come as someone writes them, so that no answer may wait for others."""
    facts = os.fstat(sys.stdin.fileno()) if source == "-" else os.stat(source)
    return not (stat.S_ISREG(facts.st_mode) or stat.S_ISDIR(facts.st_mode))


def _print(responses: Sequence[Response], as_json: bool) -> None:
    for response in responses:
        if as_json:
            emit(response.record, indent=None)
        else:
            click.echo(response.text)
    sys.stdout.flush()


def _bad(responses: Sequence[Response]) -> int:
    return sum("error" in one.record for one in responses)


def _npy_head(rows: int, width: int) -> bytes:
    """The first bytes of a ``.npy`` file, as many whatever ``rows`` is: numpy leaves room for the first number to grow."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f4", "fortran_order": False, "shape": (rows, width)}
    )
    return head.getvalue()


class Progress:
    """How many inputs were answered and how many in a second: a line that moves on a terminal, now and then one in a log."""

    def __init__(self, shown: bool, begun: int = 0):
        self._shown, self._begun, self._start = shown, begun, time.monotonic()
        self._moves = sys.stderr.isatty()
        self._next = self._start + (MOVING if self._moves else STANDING)
        self._there = False

    def reached(self, inputs: int) -> None:
        """Report, if it is time."""
        now = time.monotonic()
        if not self._shown or now < self._next:
            return
        self._next = now + (MOVING if self._moves else STANDING)
        rate = (inputs - self._begun) / max(now - self._start, 1e-9)
        text = f"{number(inputs)} inputs, {number(round(rate)) if rate >= 10 else f'{rate:.2g}'} a second"
        if self._moves:
            say(f"\r\x1b[K{text}", newline=False)
            self._there = True
        else:
            say(text)

    def clear(self) -> None:
        """Remove the moving line."""
        if self._there:
            say("\r\x1b[K", newline=False)
