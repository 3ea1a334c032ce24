"""The preset ``ngram``: `an.NGram` on the symbols of the tokenizer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS
from anaphora.models.classical.ngram import NGram
from anaphora.models.classical.ngram.files import ARRAYS
from anaphora.models.classical.ngram.table import BackoffTable
from anaphora.models.classical.ngram.text import Words
from anaphora.tasks.language.settings import LanguageSettings

_LN10 = float(np.log(10.0))


def fitted(s: LanguageSettings, rows: Sequence[Any], symbols: int) -> NGram:
    """Counts of the rows; running text is one row, whose first symbol only begins it."""
    model = NGram(s.order, smoothing=s.smoothing, vocab_size=symbols)
    return model.fit([np.asarray(row)[0 if s.lines else 1 :].tolist() for row in rows])


def log_probs(model: NGram, rows: Sequence[Any], *, lines: bool) -> list[np.ndarray[Any, Any]]:
    """Natural log p of every symbol: of lines with their </s>, of running text without."""
    found = []
    for row in rows:
        ids = np.asarray(row, dtype=np.int64)
        whole = np.concatenate([[BOS], ids, [EOS]]) if lines else np.concatenate([[BOS], ids[1:]])
        found.append(model.query(whole)[1:] * _LN10)
    return found


def line_log_probs(model: NGram, rows: Sequence[Sequence[int]], begin: int) -> list[np.ndarray[Any, Any]]:
    """Natural log p of the symbols of each row, given ``begin`` and those before."""
    if begin == BOS:
        return [model.query(np.array([BOS, *row]))[1:] * _LN10 for row in rows]
    found = []
    for row in rows:
        node, values = model.start(1), []
        for before, symbol in zip([begin, *row[:-1]], row, strict=True):
            scores, node = model.step(torch.tensor([before]), node)
            values.append(float(scores[0, symbol]))
        found.append(np.array(values))
    return found


def tensors(model: NGram) -> dict[str, Tensor]:
    """The table as ``model.safetensors`` holds it; log 0, which no text can have, is the lowest number there is."""
    table = model.table
    arrays = {name: torch.from_numpy(np.array(getattr(table, name))) for name in ARRAYS}
    arrays["log_prob"] = arrays["log_prob"].nan_to_num(neginf=torch.finfo(arrays["log_prob"].dtype).min)
    return {**arrays, "bounds": torch.tensor(table.bounds), "discounts": torch.tensor(model.discounts)}


def rebuilt(s: LanguageSettings, given: dict[str, Tensor]) -> NGram:
    """The model that `tensors` described."""
    arrays = {name: given[name].cpu().numpy() for name in ARRAYS}
    log_prob = arrays["log_prob"]
    arrays["log_prob"] = np.where(log_prob == np.finfo(log_prob.dtype).min, -np.inf, log_prob)
    bounds = given["bounds"].tolist()
    model = NGram(s.order, smoothing=s.smoothing, vocab_size=bounds[2] - 1)
    model._table = BackoffTable(**arrays, bounds=bounds)
    model._words = Words(bounds[2] - 1, None)
    model.discounts = [tuple(row) for row in given["discounts"].tolist()]
    return model
