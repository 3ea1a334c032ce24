"""``--dry-run``: what a training would do, without doing it."""

from __future__ import annotations

import math
from typing import Any

from torch import nn

from anaphora.settings import TrainingSettings

LOOK = 2000  # rows whose lengths stand for all
_STATE_BYTES = {
    "sgd": 8,
    "adam": 16,
    "adamw": 16,
    "muon": 12,
    "ntasgd": 8,
}  # weight and gradient, and moments


def plan_training(settings: TrainingSettings, model: nn.Module, symbols: float, rows: int) -> dict[str, Any]:
    """Parameters, steps and epochs, and memory without activations, for ``rows`` rows of ``symbols`` in all."""
    per_epoch = symbols / settings.batch_tokens
    steps = math.ceil(settings.epochs * per_epoch) if settings.epochs else settings.steps
    parameters = sum(weight.numel() for weight in model.parameters())
    return {
        "symbols_per_example": round(symbols / max(rows, 1), 1),
        "parameters": parameters,
        "steps": steps,
        "epochs": settings.epochs or round(steps / max(per_epoch, 1e-9), 1),
        "memory_mb": round(parameters * _STATE_BYTES.get(settings.optimizer, 16) / 1e6, 1),
        "memory_note": "weights, gradients and optimizer; activations come on top and grow with batch_tokens",
    }
