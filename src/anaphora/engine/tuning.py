"""Where each GPU backend is the fastest: known for the H200, measured once for other GPUs by ``anaphora doctor --tune``.

A measurement is a file in the cache folder, named after the GPU, its driver, torch and this library: a change of any of
them makes it void. Where nothing was measured :func:`thresholds` is None, and cuDNN is preferred for the cells it has.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product
from pathlib import Path

import torch

from anaphora._version import __version__
from anaphora.files import parse_json
from anaphora.native import cache as kernel_cache
from anaphora.native.cuda import driver_version

NO_LIMIT = 1 << 40  # more units than any layer has


@dataclass(frozen=True)
class Region:
    """Layers of more than ``hidden`` units whose state has more than ``cells`` numbers, batch times units."""

    hidden: int
    cells: int

    def holds(self, hidden: int, batch: int) -> bool:
        return hidden > self.hidden and batch * hidden > self.cells


EVERYWHERE, NOWHERE = Region(0, 0), Region(NO_LIMIT, NO_LIMIT)


@dataclass(frozen=True)
class Thresholds:
    """Where one backend is faster than another on a GPU. The defaults were measured on an NVIDIA H200 with
    ``benchmarks/recurrence_gpu.py``."""

    triton_over_persistent: Region = Region(512, 80_000)
    persistent_over_cudnn: Region = EVERYWHERE
    triton_over_cudnn: Region = EVERYWHERE
    triton_over_graph: Region = EVERYWHERE  # CUDA graphs of torch operations


H200 = Thresholds()
KNOWN = {"NVIDIA H200": H200}


@dataclass(frozen=True)
class Measurement:
    """Milliseconds of an LSTM forward and backward by each backend that can serve."""

    hidden: int
    batch: int
    dtype: str
    times: Mapping[str, float]


def thresholds(device: torch.device) -> Thresholds | None:
    """Which backend to prefer on this GPU; None where nothing is known of it."""
    if device.type != "cuda":
        return None
    return _thresholds(device.index if device.index is not None else torch.cuda.current_device())


@cache
def _thresholds(index: int) -> Thresholds | None:
    return read(key_of(index)) or KNOWN.get(torch.cuda.get_device_name(index))


# ---------------------------------------------------------------------- fitting
def fit(found: Sequence[Measurement]) -> Thresholds:
    """The thresholds by which the least time is lost, over all that was measured."""
    return Thresholds(
        triton_over_persistent=fit_region(found, "triton", "persistent"),
        persistent_over_cudnn=fit_region(found, "persistent", "cudnn"),
        triton_over_cudnn=fit_region(found, "triton", "cudnn"),
        triton_over_graph=fit_region(found, "triton", "cuda_graph"),
    )


def fit_region(found: Sequence[Measurement], one: str, other: str) -> Region:
    """Where ``one`` should be preferred to ``other``; of equally good regions the largest.

    Where they never ran on the same layer it is everywhere or nowhere: wherever ``one`` can serve and was measured.
    """
    pairs = [(m, m.times[one], m.times[other]) for m in found if {one, other} <= m.times.keys()]
    if not pairs:
        return EVERYWHERE if any(one in m.times for m in found) else NOWHERE
    limits = product(
        sorted({0, *(m.hidden for m, _, _ in pairs)}), sorted({0, *(m.hidden * m.batch for m, _, _ in pairs)})
    )
    regions = [Region(*limit) for limit in limits]
    # A region beyond all that was measured would be a guess.
    regions = [r for r in regions if any(r.holds(m.hidden, m.batch) for m, _, _ in pairs)]

    def lost(region: Region) -> float:
        """How many times the best time is taken too much, summed over all layers."""
        total = 0.0
        for m, mine, theirs in pairs:
            chosen = mine if region.holds(m.hidden, m.batch) else theirs
            total += chosen / min(mine, theirs) - 1
        return total

    return min([*regions, NOWHERE], key=lost)


# ---------------------------------------------------------------------- the cache
def key_of(index: int) -> dict[str, str]:
    """What a measurement depends on."""
    return {
        "gpu": torch.cuda.get_device_name(index),
        "torch": str(torch.__version__),
        "driver": str(driver_version()),
        "anaphora": __version__,
    }


def path_of(key: Mapping[str, str]) -> Path:
    digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
    return kernel_cache.folder() / f"tuning-{digest}.json"


def read(key: Mapping[str, str]) -> Thresholds | None:
    """What was measured and kept; None where there is nothing, or nothing sound."""
    try:
        document = parse_json(kernel_cache.read(path_of(key)) or b"")
        if document["key"] != key:
            return None
        regions = {name: Region(**limits) for name, limits in document["thresholds"].items()}
        if any(type(n) is not int or n < 0 for r in regions.values() for n in (r.hidden, r.cells)):
            return None
        return Thresholds(**regions)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(key: Mapping[str, str], found: Thresholds, measurements: Sequence[Measurement]) -> Path:
    """Put it where :func:`thresholds` looks, from now on and in this process too."""
    path = path_of(key)
    document = {
        "key": dict(key),
        "thresholds": asdict(found),
        "measurements": [asdict(m) for m in measurements],
    }
    handle, beside = tempfile.mkstemp(dir=path.parent, prefix=".building-")
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
    os.replace(beside, path)
    _thresholds.cache_clear()
    return path
