"""How requests may share a call of ``predict`` so that no bit of an answer depends on its neighbours.

On a GPU that is what the setting ``batch_invariant`` is for. On a CPU products are computed in blocks of one size
(`anaphora.ops.invariant.blocks`). What is left may still depend on how far inputs are filled up, so it is tried when a run is
loaded: the same inputs alone and in batches, compared to the last bit. Where they differ, only inputs of equal length share a call, and
where those differ too, each request is a call of its own.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
import warnings
from collections.abc import Callable, Iterator
from enum import Enum
from importlib.util import find_spec
from typing import Any

import torch
from torch import nn

from anaphora.errors import AnaphoraError
from anaphora.ops.invariant.blocks import rows_in_blocks

TRIED = 12
"""Inputs of a round that are tried when a run is loaded."""
ROUNDS, ENOUGH = 4, 1.0
"""Rounds of other inputs, unless those before took so many seconds."""
LONGEST = 40
"""Their lengths are drawn from 1 to this."""
Answer = Callable[[list[Any]], list[Any]]


class Sharing(Enum):
    """Which inputs share a call of ``predict``."""

    ANY = "inputs of any length"
    EQUAL = "inputs of equal length"
    NONE = "the inputs of one request"


def device_of(estimator: Any) -> torch.device:
    """Where the model computes; one that is no network does so on the CPU."""
    model = estimator.model_
    weight = next(model.parameters(), None) if isinstance(model, nn.Module) else None
    return torch.device("cpu") if weight is None else weight.device


@contextlib.contextmanager
def apart(device: torch.device, sharing: Sharing) -> Iterator[None]:
    """Where answers are computed: within, rows do not depend on each other."""
    with rows_in_blocks(device) if sharing is not Sharing.NONE else contextlib.nullcontext():
        yield


def sharing_of(estimator: Any, examples: Callable[[random.Random, int], Any], answer: Answer) -> Sharing:
    """What may share a call of this estimator; ``examples(draw, length)`` makes an input, ``answer`` answers inputs."""
    device = device_of(estimator)
    if device.type == "cuda":
        apart_there = estimator.settings_.batch_invariant and find_spec("triton") is not None
        return Sharing.ANY if apart_there else Sharing.NONE
    levels = _possible(estimator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for sharing in levels:
            try:
                if _same_bits(device, sharing, examples, answer):
                    return sharing
            except AnaphoraError:  # what was drawn is nothing that this model reads
                return Sharing.NONE
    return Sharing.NONE


def _possible(estimator: Any) -> tuple[Sharing, ...]:
    """What is worth trying on a CPU.

    Convolutions choose their algorithm by the batch. Searches and language models make batches of their own, of hypotheses and of
    windows, so that inputs of equal length do not mean equal shapes.
    """
    convolutions = (nn.Conv1d, nn.Conv2d)
    if estimator.command in ("caption", "answer", "transcribe"):
        return ()
    modules = estimator.model_.modules() if isinstance(estimator.model_, nn.Module) else ()
    if any(isinstance(module, convolutions) for module in modules):
        return ()
    return (Sharing.ANY,) if estimator.command in ("language", "translate") else (Sharing.ANY, Sharing.EQUAL)


def _same_bits(
    device: torch.device, sharing: Sharing, examples: Callable[[random.Random, int], Any], answer: Answer
) -> bool:
    begun = time.monotonic()
    for number in range(ROUNDS):
        draw = random.Random(f"together {number}")
        lengths = [draw.randint(1, LONGEST) for _ in range(TRIED)]
        if sharing is Sharing.EQUAL:
            lengths = [lengths[0]] * TRIED
        inputs = [examples(draw, length) for length in lengths]
        with apart(device, sharing):
            alone = [_text(answer([x])[0]) for x in inputs]
            for batch in (range(TRIED), range(TRIED)[::-3], range(2 + number)):
                if [_text(one) for one in answer([inputs[i] for i in batch])] != [alone[i] for i in batch]:
                    return False
        if time.monotonic() - begun > ENOUGH:
            break
    return True


def _text(answer: Any) -> str:
    return json.dumps(answer)
