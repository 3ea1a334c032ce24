"""``--dry-run``: what a training would do, without doing it."""

from __future__ import annotations

from typing import Any

from torch import nn

from anaphora.data.pairs import Pairs
from anaphora.data.tokenizers import PairTokenizer
from anaphora.settings import TrainingSettings

LOOK = 2000  # rows whose lengths stand for all
_STATE_BYTES = {"sgd": 8, "adam": 16, "adamw": 16}  # weight and gradient, and Adam's two moments


def plan_training(
    settings: TrainingSettings, model: nn.Module, tokenizer: PairTokenizer, pairs: Pairs, dev: Pairs
) -> dict[str, Any]:
    """Rows, vocabulary, parameters, steps and epochs, and memory without activations."""
    stride = max(1, len(pairs) // LOOK)
    rows = pairs.read(range(0, len(pairs), stride))
    sources = tokenizer.source.encode_batch([source for source, _ in rows])
    targets = tokenizer.target.encode_batch([target for _, target in rows])
    longer = [max(len(s), len(t)) + 1 for s, t in zip(sources, targets, strict=True)]
    per_epoch = sum(longer) / len(longer) * len(pairs) / settings.batch_tokens
    parameters = sum(weight.numel() for weight in model.parameters())
    return {
        "train": pairs.describe(),
        "valid": dev.describe(),
        "vocabulary": {"source": tokenizer.source.size, "target": tokenizer.target.size},
        "symbols_per_example": round(sum(longer) / len(longer), 1),
        "parameters": parameters,
        "steps": settings.steps,
        "epochs": round(settings.steps / max(per_epoch, 1e-9), 1),
        "memory_mb": round(parameters * _STATE_BYTES[settings.optimizer] / 1e6, 1),
        "memory_note": "weights, gradients and optimizer; activations come on top and grow with batch_tokens",
    }
