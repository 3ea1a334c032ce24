"""A process that answers parts of the inputs: ``python -P -c "… main(DESCRIPTOR, FOLDER)"``, spoken to through a pipe.

It ends when its pipe does, so it never outlives the process that started it, however that one ends.
"""

from __future__ import annotations

import contextlib
import importlib
import signal
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from anaphora.errors import AnaphoraError
from anaphora.files.writing import remove

Asked = Sequence[tuple[int, Any]]
"""Inputs with their numbers, from 1."""
Answer = Callable[[Asked], Iterator[Any]]
"""Gives one answer for each input, in the order asked."""


class Note(NamedTuple):
    """A warning that was issued while a part was answered."""

    text: str
    file: str
    line: int


class Outcome(NamedTuple):
    """What became of a part: an answer for each input, or the error; and the warnings."""

    answers: list[Any]
    error: Exception | None
    notes: list[Note]


def made(maker: str, model: Any, options: Mapping[str, Any]) -> Answer:
    """What ``module:function`` makes of a model and the options of predicting."""
    home, name = maker.split(":")
    answer: Answer = getattr(importlib.import_module(home), name)(model, options)
    return answer


def attempt(answer: Answer, asked: Asked) -> Outcome:
    """Answer a part; its error, if there is one, is a value, so that it can wait for its turn."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", UserWarning)
        try:
            answers, error = list(answer(asked)), None
        except Exception as problem:
            answers, error = [], problem
    notes = [
        Note(str(one.message), one.filename, one.lineno)
        for one in caught
        if issubclass(one.category, UserWarning)
    ]
    return Outcome(answers, error, notes)


def main(descriptor: int, scratch: str) -> None:
    """Load the model that the first message names, then answer parts until the pipe ends.

    ``scratch`` is the folder of the first process. Where that one was killed, no other process is left to remove it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process ends this one by closing the pipe
    pipe = Connection(descriptor)
    with contextlib.suppress(EOFError, BrokenPipeError, ConnectionResetError):
        answer = _loaded(pipe.recv())
        pipe.send(None)
        while True:
            number, asked = pipe.recv()
            outcome = attempt(answer, asked)
            try:
                pipe.send((number, outcome))
            except (AttributeError, TypeError, ValueError) as error:  # an error that cannot be pickled
                whole = AnaphoraError(f"{type(outcome.error).__name__}: {outcome.error} ({error})")
                pipe.send((number, Outcome([], whole, outcome.notes)))
    remove(Path(scratch))


def _loaded(order: Mapping[str, Any]) -> Answer:
    import torch

    from anaphora.settings.own import trust_parts
    from anaphora.tasks.load import load

    torch.set_num_threads(1)
    if order["trust"]:
        trust_parts()
    model = load(order["folder"], device="cpu", trust=order["trust"])
    return made(order["maker"], model, order["options"])
