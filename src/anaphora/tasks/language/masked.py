"""What the training loop is told about the preset ``masked``: hidden symbols to be guessed from both sides."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.sending import padded
from anaphora.data.symbols import BOS
from anaphora.data.text_lines import LineBatch
from anaphora.data.text_stream import StreamBatch
from anaphora.models.language_masked import MaskedLanguage, hide
from anaphora.tasks.language.settings import LanguageSettings
from anaphora.training.objective import LossSum

ROWS = 64


class MaskedObjective:
    """−Σ log p(x_t | what is shown) over the hidden places; which they are follows from the step."""

    def __init__(self, settings: LanguageSettings, symbols: int, dev: Sequence[Any]):
        self.settings = settings
        self.metric = settings.metric
        self.greater_is_better = settings.metric == "accuracy"
        self.chance = math.log(symbols)
        self._symbols, self._dev = symbols, dev

    def loss(self, model: MaskedLanguage, batch: StreamBatch | LineBatch) -> LossSum:
        rows = batch.rows if isinstance(batch, LineBatch) else batch.targets.tolist()
        total, count, _ = _guessed(model, rows, self.settings, self._symbols)
        return LossSum(total, count)

    def evaluate(self, model: MaskedLanguage) -> dict[str, float]:
        return masked_measures(model, self._dev, self.settings, self._symbols)

    def samples(self, model: MaskedLanguage) -> list[dict[str, str]]:
        return []


@torch.no_grad()
def masked_measures(
    model: MaskedLanguage, rows: Sequence[Any], s: LanguageSettings, symbols: int
) -> dict[str, float]:
    """Loss in nats per hidden symbol and the share guessed right, in percent. The same symbols are hidden every time."""
    total, count, right = 0.0, 0, 0
    device = model.output.bias.device
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        torch.manual_seed(0)
        for part in _parts(rows, s):
            loss, hidden, correct = _guessed(model, part, s, symbols)
            total, count, right = total + float(loss), count + int(hidden), right + int(correct)
    return {"loss": total / max(1, count), "accuracy": 100.0 * right / max(1, count), "hidden": float(count)}


def _guessed(
    model: MaskedLanguage, rows: Sequence[Sequence[int]], s: LanguageSettings, symbols: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Summed loss, how many symbols were hidden, and how many of them were guessed."""
    device = model.output.bias.device
    true = padded([row[: s.context] for row in rows], device, first=BOS)
    lengths = torch.tensor([min(len(row), s.context) + 1 for row in rows], device=device)
    shown, counted = hide(true, s.masked_share, symbols)
    hidden = model.read(shown, lengths)[counted]
    logits = model.output(hidden).float()
    answers = true[counted]
    loss = F.cross_entropy(logits, answers, reduction="sum")
    return loss, counted.sum(), (logits.argmax(-1) == answers).sum()


def _parts(rows: Sequence[Any], s: LanguageSettings) -> Iterator[list[list[int]]]:
    """Lines as they are, running text in windows; some at a time."""
    if not s.lines:
        ids = np.asarray(rows[0])[1:]
        rows = [ids[at : at + s.context].tolist() for at in range(0, len(ids), s.context)]
    for at in range(0, len(rows), ROWS):
        yield [list(row) for row in rows[at : at + ROWS]]
