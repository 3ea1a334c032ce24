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
    steps, epochs = settings.steps, 0.0
    if settings.epochs:
        counted = math.ceil(settings.epochs * per_epoch)
        steps = max(settings.min_steps, counted)
        steps = min(steps, settings.max_steps or steps)
        epochs = settings.epochs if steps == counted else 0.0
    parameters = sum(weight.numel() for weight in model.parameters())
    return {
        "symbols_per_example": round(symbols / max(rows, 1), 1),
        "parameters": parameters,
        "steps": steps,
        "epochs": epochs or round(steps / max(per_epoch, 1e-9), 1),
        "memory_mb": round(parameters * _STATE_BYTES.get(settings.optimizer, 16) / 1e6, 1),
        "memory_note": "weights, gradients and optimizer; activations come on top and grow with batch_tokens",
    }
