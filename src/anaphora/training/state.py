"""The state of a training as one value: what a checkpoint holds, and all that a resumed run needs.

No random generator is part of it: every random number of a step follows from the seed and the step (`seeding`).
"""

from __future__ import annotations

import json
import math
import platform
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora._version import __version__
from anaphora.native.c import compiler
from anaphora.settings import TrainingSettings
from anaphora.training.journal import plain
from anaphora.training.step import Outcome


@dataclass
class Standing:
    """Everything that is counted from step to step."""

    step: int = 0
    symbols: int = 0
    skipped: int = 0  # steps left out in a row
    best: dict[str, Any] | None = None  # {"step", "value", "metrics"}
    metrics: dict[str, float] = field(default_factory=dict)  # of the last evaluation
    ranked: list[dict[str, Any]] = field(default_factory=list)  # {"step", "value"} of the best, best first
    # since the last line of metrics.jsonl
    total: float = 0.0
    count: float = 0.0
    norms: float = 0.0
    steps: int = 0
    clipped: int = 0

    def add(self, outcome: Outcome) -> None:
        self.symbols += int(outcome.count)
        self.total += outcome.loss * outcome.count
        self.count += outcome.count
        self.norms += outcome.norm
        self.steps += 1
        self.clipped += outcome.clipped

    def rank(self, value: float, sign: int, most: int) -> None:
        """Put an evaluation of this step among the ``most`` best; of equal ones the earlier is the better."""
        finite = [{"step": self.step, "value": value}] if math.isfinite(value) else []
        ranked = sorted(self.ranked + finite, key=lambda one: (-sign * one["value"], one["step"]))
        self.ranked = ranked[:most]

    def noted(self) -> dict[str, Any]:
        """Everything as JSON; a measure that is not a finite number is null."""
        return {**vars(self), "metrics": plain(self.metrics), "best": plain(self.best)}

    @classmethod
    def of(cls, noted: Mapping[str, Any]) -> Standing:
        """What `noted` gave."""
        found = cls(**noted)
        found.metrics = _measures(found.metrics)
        if found.best is not None:
            found.best = {**found.best, "metrics": _measures(found.best["metrics"])}
        return found

    def line(self, epoch: int, lr: float) -> dict[str, Any]:
        """The line for metrics.jsonl; the sums start again at zero."""
        line = {
            "step": self.step,
            "epoch": epoch,
            "symbols": self.symbols,
            "loss": self.total / max(1.0, self.count),
            "lr": lr,
            "grad_norm": self.norms / max(1, self.steps),
            "clipped": self.clipped / max(1, self.steps),
        }
        self.total = self.count = self.norms = 0.0
        self.steps = self.clipped = 0
        return line


def _measures(noted: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else value for name, value in noted.items()}


@dataclass(frozen=True)
class TrainingState:
    """A training between two steps. Tensors are not copied: save the state before the next step changes them."""

    standing: dict[str, Any]
    progress: dict[str, Any]  # evaluations without improvement, halvings of the learning rate
    health: dict[str, Any]
    scale: dict[str, Any]  # of the loss, for fp16
    batches: dict[str, Any]  # the position in the data
    journals: dict[str, Any]  # by journal: how many bytes it has, and their hash
    made_with: dict[str, Any]
    settings: dict[str, Any]
    tensors: Mapping[str, Mapping[str, Tensor]]  # by part: model, optimizer, and where used ema, objective
    exported: bytes | None  # the run's model.safetensors, so that it can be put back on resume
    own: dict[str, Any] = field(
        default_factory=dict
    )  # what own callbacks and optimizers keep besides tensors

    @property
    def step(self) -> int:
        return int(self.standing["step"])

    def edited(self, now: TrainingState) -> list[str]:
        """Clauses that name the settings that were changed between this state and ``now``."""
        return changes(self.settings, now.settings)

    def same_batches(self, now: TrainingState) -> bool:
        """Whether batches are cut as they were: no setting of the task was changed, nor their size."""
        cutting = now.settings.keys() - TrainingSettings.model_fields.keys() | {"batch_tokens"}
        return not any(
            name in self.settings and self.settings[name] != now.settings[name] for name in cutting
        )

    def carried(self, rank: int | None, device: torch.device) -> dict[str, Tensor]:
        """What the objective of process ``rank`` (None: of all of them) carried from step to step."""
        return {
            name.partition("/")[2]: value.to(device)
            for name, value in self.tensors.get("objective", {}).items()
            if rank is None or name.startswith(f"{rank}/")
        }


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """Clauses that name what differs between two dicts; names that ``before`` does not have are left out."""
    now = json.loads(json.dumps(now))

    def word(value: Any) -> str:
        return str(value).lower() if isinstance(value, bool) else str(value)

    return [
        f"{name} was {word(before[name])} and is {word(value)}"
        for name, value in now.items()
        if name in before and before[name] != value
    ]


def made_with(device: torch.device, world: int, precision: str) -> dict[str, Any]:
    """What the exact numbers depend on in addition to seed and settings."""
    return {
        "anaphora": __version__,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else str(device),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "compiler": Path(compiler() or "none").name,  # of the recurrence kernels; without one torch loops run
        "threads": torch.get_num_threads(),
        "world": world,
        "precision": precision,
    }
