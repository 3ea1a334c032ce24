"""The film of a training: small snapshots of its weights at evaluations, so that views can follow it through time.

Frames are half precision, at most `MOST_FRAMES` and at most so many bytes as the setting ``film`` allows; they are thinned as the
training goes on. Which frames there are follows from the step alone, so that a resumed run has the film of one that was
never interrupted. Taking one reads the weights and draws no random number: the training is the same with and without it.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import is_folder
from anaphora.files.writing import discard, make_inner_folder, replacing
from anaphora.training.run import RunFolder
from anaphora.training.weights import load_weights, pack

MOST_FRAMES = 24
FEWEST_FRAMES = 3
"""Of a model so large that fewer fit, no film is taken."""
_NAME = re.compile(r"step-([0-9]{8,12})\.safetensors")


class Film:
    """Takes and thins the frames of one run. ``mebibytes`` is the most that they may take together; 0: there is no film."""

    def __init__(self, run: RunFolder, mebibytes: int, every: int):
        self.run, self._most, self._every = run, mebibytes << 20, max(every, 1)
        self.problem = ""
        """Why no more frames are taken; the training goes on without them."""

    @property
    def on(self) -> bool:
        return bool(self._most) and not self.problem

    def rewind(self, step: int) -> None:
        """Remove the frames after ``step``, from which the run goes on."""
        for number in frames(self.run):
            if number > step:
                self._remove(number)

    def take(self, step: int, weights: Mapping[str, Tensor], *, last: bool = False) -> None:
        """Keep ``weights`` as the frame of ``step``, if this evaluation is one of those that are kept, and thin the others."""
        if not self.on:
            return
        size = sum(value.numel() * _kept_type(value).itemsize for value in weights.values())
        most = min(MOST_FRAMES, self._most // max(size, 1))
        if most < FEWEST_FRAMES:
            self.problem = f"a frame takes {size / 2**20:.3g} MiB, of which fewer than {FEWEST_FRAMES} fit"
            return
        stride = self._stride(step, most)
        try:
            if self._due(step, stride) or last:
                self._write(step, weights)
            for number in frames(self.run):
                if number != step and not self._due(number, stride):
                    self._remove(number)
        except OSError as error:
            self.problem = f"the film cannot be written ({error.strerror or error}), so it ends here"

    def _stride(self, step: int, most: int) -> int:
        """Of how many evaluations one is kept once the training has come to ``step``: a power of two."""
        stride = 1
        while step // self._every // stride + 2 > most:  # the first, and a last one that is not in line
            stride *= 2
        return stride

    def _due(self, step: int, stride: int) -> bool:
        return step % (self._every * stride) == 0

    def _write(self, step: int, weights: Mapping[str, Tensor]) -> None:
        packed = pack(_halved(weights), facts={"step": step, "chosen": "film"})
        make_inner_folder(self.run.film)
        with replacing(_path(self.run, step), synced=False) as file:
            file.write(packed)

    def _remove(self, step: int) -> None:
        discard(_path(self.run, step))


def frames(run: RunFolder) -> list[int]:
    """The steps of which a run has frames, in order."""
    if not is_folder(run.film):
        return []
    with contextlib.suppress(OSError):
        return sorted(int(found[1]) for entry in os.listdir(run.film) if (found := _NAME.fullmatch(entry)))
    return []


def frame_weights(run: RunFolder, step: int) -> dict[str, Tensor]:
    """The weights at ``step``, as single precision numbers; a `RunError` where there is no such frame, or it is damaged."""
    there = frames(run)
    if step not in there:
        has = f"it has those of {', '.join(map(str, there))}" if there else "it has no film"
        raise RunError(f"{run.path}: has no frame of step {step}; {has}.")
    tensors, _ = load_weights(_path(run, step))
    return {name: value.float() if value.dtype == torch.float16 else value for name, value in tensors.items()}


def _path(run: RunFolder, step: int) -> Path:
    return run.film / f"step-{step:08d}.safetensors"


def _kept_type(value: Tensor) -> torch.dtype:
    """Half precision for what is single; numbers that do not fit into it stay as they are."""
    if value.dtype != torch.float32 or (value.numel() and float(value.detach().abs().max()) > 60_000):
        return value.dtype
    return torch.float16


def _halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Small copies in the host's memory; tied tensors stay tied."""
    made: dict[tuple[Any, ...], Tensor] = {}
    found = {}
    for name, value in weights.items():
        place = (
            (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype) if value.numel() else (name,)
        )
        if place not in made:
            made[place] = value.detach().to("cpu", _kept_type(value), copy=True)
        found[name] = made[place]
    return found


def film_of(run: RunFolder, settings: Any) -> Film:
    """The film that the settings of a training ask for."""
    return Film(run, settings.film, settings.valid_every)
