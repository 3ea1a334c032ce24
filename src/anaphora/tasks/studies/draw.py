"""DRAW as a generator (Gregor et al. 2015): learn to draw small pictures stroke by stroke, then draw new ones."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from anaphora.data.sources.labelled import open_labelled
from anaphora.errors import DataError, SettingsError
from anaphora.models.draw import Draw
from anaphora.settings import TrainingSettings, build
from anaphora.tasks.studies.parts import Parts
from anaphora.training.fit import fit
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder
from anaphora.training.seeding import seed_everything

DEV = 200
"""Most pictures that the bound is measured on."""
PART = "draw"


class DrawSettings(TrainingSettings):
    """What the study takes besides the settings of training."""

    hidden: int = Field(128, ge=1, description="Width of the states of both LSTMs.")
    latent: int = Field(10, ge=1, description="Random numbers that decide each stroke.")
    strokes: int = Field(8, ge=1, le=64, description="Strokes that make a picture.")
    patch: int = Field(5, ge=1, description="Filters along each side of the read and of the write window.")
    pictures: int = Field(64, ge=1, description="Pictures in a batch.")
    samples: int = Field(6, ge=1, le=64, description="New pictures that are drawn in the end.")


SETTINGS: dict[str, Any] = {
    "steps": 800,
    "lr": 3e-3,
    "warmup": 50,
    "clip": 5.0,
    "valid_every": 200,
    "save_every": 200,
    "ema": 0.0,
    "patience": 0,
    "threads": 1,
    "device": "cpu",
}


def draw(
    out: str | Path,
    *,
    corpus: str = "numerals",
    settings: Mapping[str, Any] | None = None,
    reporter: Reporter | None = None,
) -> dict[str, Any]:
    """Train `Draw` on the pictures of ``corpus`` (an embedded corpus, an ``.npz`` with X and y, a folder of pictures by label)
    and let it draw new ones.

    Returns ``bound``, the dev loss in nats a picture (an upper bound of −log p), ``independent``, that of a model whose
    pixels are drawn one by one from the mean picture, and of each new picture the canvas after every stroke and where it was
    put: ``film`` (samples, strokes, rows, columns, channels), ``windows`` (samples, strokes, 3). Training is a run folder;
    after an interruption the same call goes on.
    """
    given = {**SETTINGS, **(settings or {})}
    if "loss" in given:
        raise SettingsError(["loss cannot be given: DRAW minimises its bound."])
    s = build(DrawSettings, given, owner="draw")
    train, dev = _pictures(corpus, "train"), _pictures(corpus, "dev")[:DEV]
    asked = {"corpus": corpus, "settings": s.model_dump(mode="json"), "size": list(train.shape)}
    parts = Parts(out, "draw", asked, names=PART)
    found = parts.finished(PART)
    if found is None:
        training = {key: value for key, value in given.items() if key in TrainingSettings.model_fields}
        rows, columns, channels = train.shape[1:]
        seed_everything(s.seed, "model")
        model = Draw(
            (rows, columns, channels), hidden=s.hidden, latent=s.latent, strokes=s.strokes, patch=s.patch
        )
        with torch.no_grad():
            model.start.copy_(
                torch.logit(torch.from_numpy(_mean(train)))
            )  # strokes then have to add what is special
        going_on = RunFolder(parts[PART]).has_checkpoints()
        result = fit(
            model,
            _loss,
            _Batches(train, s.pictures, s.seed),
            out=parts[PART],
            valid=[torch.from_numpy(dev)],
            resume=going_on,
            force=not going_on,
            reporter=reporter,
            **training,
        )
        if result.stopped == "interrupted":
            raise KeyboardInterrupt
        found = _measured(model, train, dev, s)
        parts.keep(PART, found)
    return {"study": "draw", "corpus": corpus, "pictures": len(train), **found}


def _loss(model: Any, pictures: Tensor) -> Any:
    return model.loss(pictures)


class _Batches:
    """The pictures in batches, shuffled once."""

    def __init__(self, pictures: np.ndarray[Any, Any], size: int, seed: int):
        self.pictures, self.size, self.seed = torch.from_numpy(pictures), size, seed

    def __iter__(self) -> Any:
        order = np.random.RandomState(self.seed).permutation(len(self.pictures))
        return (self.pictures[order[at : at + self.size]] for at in range(0, len(order), self.size))


def _pictures(corpus: str, role: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    """``(n, rows, columns, channels)`` from 0 to 1. Files have no dev pictures of their own: their last tenth becomes that."""
    rows = open_labelled(corpus, role=role, scan="picture")
    if not rows.holds_vectors:
        raise DataError(
            f"{corpus} holds texts; DRAW learns from pictures: an .npz with X and y, or a folder of them."
        )
    found: np.ndarray[Any, np.dtype[np.floating[Any]]] = np.stack(rows.column(0))
    least, greatest = float(found.min()), float(found.max())
    if least < 0 or greatest > 255:
        raise DataError(
            f"{corpus}: its pixels go from {least:g} to {greatest:g}; give values from 0 to 1, or to 255."
        )
    found = found / (255 if greatest > 1 else 1)
    if rows.facts["form"] == "corpus":
        return found.astype(np.float32)
    if len(found) < 2:
        raise DataError(f"{corpus} holds one picture; give at least two.")
    cut = max(1, len(found) // 10)
    return (found[:-cut] if role == "train" else found[-cut:]).astype(np.float32)


def _mean(pictures: Any) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How often each pixel is ink, never quite 0 or 1."""
    found: np.ndarray[Any, np.dtype[np.float64]] = np.clip(pictures.mean(0, dtype=np.float64), 1e-3, 1 - 1e-3)
    return found


@torch.no_grad()
def _measured(model: Draw, train: Any, dev: Any, s: DrawSettings) -> dict[str, Any]:
    seed_everything(s.seed, "draw")
    device = next(model.parameters()).device
    bound = float(model.loss(torch.from_numpy(dev).to(device)).mean())
    drawing = model.sample(s.samples)
    mean = _mean(train)
    apart = -(dev * np.log(mean) + (1 - dev) * np.log(1 - mean)).reshape(len(dev), -1).sum(1).mean()
    return {
        "bound": bound,
        "independent": float(apart),
        "film": np.round(drawing.canvases.double().cpu().numpy(), 3).tolist(),
        "windows": np.round(drawing.windows.double().cpu().numpy(), 3).tolist(),
    }
