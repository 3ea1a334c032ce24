"""How the weights of a run moved while it trained, read from its film (`anaphora.training.film`)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.errors import RunError
from anaphora.probe.history import early, names_of
from anaphora.probe.trace import Trace
from anaphora.training.film import frame_weights, frames
from anaphora.training.run import RunFolder

__all__ = ["film"]

MOST_PARTS = 8
BINS = 60
MOST_SIZE = 768
"""Singular values that are computed at most: of a matrix with so many rows or columns."""


def film(*runs: str | Path) -> Trace:
    """How the weights moved while ``runs`` (their folders) trained, as a `Trace` of tables; every record names its ``run``.

        moved       step, part, norm ‖W‖, away ‖W − W₀‖ from the first frame W₀, moved ‖W − W₀‖ / ‖W₀‖ (None of a part that began
                    at 0); part ``all`` is the whole model
        spread      when (initial or last: the last frame), part, value, density: the histogram of its weights on the same bins
        singular    when, matrix, rank, value: the singular values of the largest matrix

    The fact ``last`` has the step of each run's last frame; ``early`` is as `history` has it.

    Raises a `RunError` where a run has no film.

    >>> from anaphora.probe.film import film
    >>> model = torch.nn.Linear(2, 1)
    >>> done = an.fit(model, torch.nn.MSELoss(), [(torch.ones(4, 2), torch.ones(4, 1))], steps=3, out="runs/line")
    >>> sorted(film("runs/line").tables)
    ['moved', 'singular', 'spread']
    """
    if not runs:
        raise RunError("name at least one run folder.")
    names = names_of([Path(run) for run in runs])
    tables: dict[str, list[dict[str, Any]]] = {"moved": [], "spread": [], "singular": []}
    last = {
        name: _read(name, RunFolder.open(Path(run)), tables) for name, run in zip(names, runs, strict=True)
    }
    return Trace({}, {}, {"runs": names, "last": last, "early": early(names, runs)}, tables)


def _read(name: str, run: RunFolder, tables: dict[str, list[dict[str, Any]]]) -> int:
    """Add what the frames of a run show to the tables, and return the step of the last one."""
    steps = frames(run)
    if len(steps) < 2:
        raise RunError(
            f"{name} has no film of its training: it is fitted in one go, was not evaluated yet, or has film = 0 or too small for its weights."
        )
    first = _floats(frame_weights(run, steps[0]))
    parts = _parts(list(first))
    last: Mapping[str, Tensor] = first
    for step in steps:  # one frame in memory at a time, besides the first
        now = first if step == steps[0] else _floats(frame_weights(run, step))
        if now.keys() != first.keys() or any(now[key].shape != first[key].shape for key in now):
            raise RunError(f"{name}: its frames are of different models; train it again.")
        for part, keys in parts.items():
            norm = _norm([now[key] for key in keys])
            away = _norm([now[key] - first[key] for key in keys])
            begun = _norm([first[key] for key in keys])
            record = {"part": part, "norm": norm, "away": away, "moved": away / begun if begun else None}
            tables["moved"].append({"run": name, "step": step, **record})
        last = now
    for part, keys in parts.items():
        _spread(name, part, [first[key] for key in keys], [last[key] for key in keys], tables["spread"])
    _singular(name, first, last, tables["singular"])
    return steps[-1]


def _floats(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.float() for name, value in tensors.items() if value.is_floating_point()}


def _parts(names: list[str]) -> dict[str, list[str]]:
    """The weights by the part of the model they belong to, as deep as gives a few parts; ``all`` has them all."""
    best: dict[str, list[str]] = {}
    for depth in range(1, 6):
        found: dict[str, list[str]] = {}
        for name in names:
            found.setdefault(".".join(name.split(".")[:-1][:depth]) or name, []).append(name)
        if len(found) > MOST_PARTS and best:
            break
        best = found
    most = dict(sorted(best.items(), key=lambda one: one[0])[:MOST_PARTS])
    return {"all": names, **most}


def _norm(tensors: list[Tensor]) -> float:
    return float(torch.stack([t.double().square().sum() for t in tensors]).sum().sqrt()) if tensors else 0.0


def _spread(
    name: str, part: str, first: list[Tensor], last: list[Tensor], rows: list[dict[str, Any]]
) -> None:
    begun = torch.cat([t.flatten() for t in first]).numpy()
    ended = torch.cat([t.flatten() for t in last]).numpy()
    edge = float(np.quantile(np.abs(np.concatenate([begun, ended])), 0.999)) or 1.0
    edges = np.linspace(-edge, edge, BINS + 1)
    for when, values in (("initial", begun), ("last", ended)):
        counts, _ = np.histogram(values, edges)
        density = counts / max(len(values), 1) / (edges[1] - edges[0])
        for left, right, height in zip(edges[:-1], edges[1:], density, strict=True):
            middle = float(left + right) / 2
            rows.append({"run": name, "when": when, "part": part, "value": middle, "density": float(height)})


def _singular(
    name: str, first: Mapping[str, Tensor], last: Mapping[str, Tensor], rows: list[dict[str, Any]]
) -> None:
    matrices = {k: v for k, v in first.items() if v.dim() == 2 and 2 <= min(v.shape) <= MOST_SIZE}
    if not matrices:
        return
    chosen = max(matrices, key=lambda key: min(matrices[key].shape) * 10**6 + matrices[key].numel())
    for when, tensors in (("initial", first), ("last", last)):
        for rank, value in enumerate(torch.linalg.svdvals(tensors[chosen].double()).tolist(), start=1):
            rows.append({"run": name, "when": when, "matrix": chosen, "rank": rank, "value": value})
