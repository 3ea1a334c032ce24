"""A language model beside a decoder: whatever the user gives as ``lm``, over the symbols that the decoder writes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.data.symbols import UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import DataError, SettingsError
from anaphora.settings.own import Part


@dataclass(frozen=True)
class Renumbered:
    """A `LanguageModel` of lines asked in a decoder's symbols: ``table`` has its own symbol for each of those."""

    model: Any
    table: Tensor

    def start(self, rows: int) -> Any:
        return self.model.start(rows)

    def step(self, symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        weight = (
            next(self.model.model_.parameters(), None) if isinstance(self.model.model_, nn.Module) else None
        )
        table = self.table if weight is None else self.table.to(weight.device)
        log_probs, state = self.model.step(table[symbols.to(table.device)], state)
        return log_probs.index_select(1, table.to(log_probs.device)), state


def symbol_model(lm: str, tokenizer: Tokenizer) -> Part:
    """What ``lm`` names or holds, as an object with ``start(rows)`` and ``step(symbols, state)`` over these symbols."""
    thing = lm.made() if isinstance(lm, Part) else _loaded(lm)
    if getattr(thing, "command", None) == "language":
        thing = _renumbered(thing, tokenizer, lm)
    for name in ("start", "step"):
        if not callable(getattr(thing, name, None)):
            raise SettingsError(
                [f"lm = {lm} has no {name}; give an object with start(rows) and step(symbols, state)."]
            )
    return Part(lm if isinstance(lm, Part) else f"anaphora:LanguageModel.load({lm!r})", thing)


def _loaded(run: str) -> Any:
    from anaphora.tasks.load import load

    if not Path(run).is_dir():
        raise DataError(f"lm = {run}: there is no such run folder; give that of a LanguageModel.")
    found = load(run)
    if found.command != "language":
        raise DataError(f"lm = {run} is a {type(found).__name__}, not a LanguageModel; give the run of one.")
    return found


def _renumbered(lm: Any, tokenizer: Tokenizer, name: str) -> Any:
    lm._check_one_way("lm")
    own: Tokenizer = lm.tokenizer_
    if not lm.settings_.lines or lm.settings_.backward:
        raise DataError(
            f"lm = {name} must be a model of lines (lines = true) that reads forwards; train such a one."
        )
    if own.spellings == tokenizer.spellings:
        return lm
    if own.kind != tokenizer.kind or own.kind not in ("char", "word"):
        raise DataError(
            f"lm = {name} has other symbols than the model that writes; train it with the same: "
            "LanguageModel(tokenizer=…, lines=True)."
        )
    ids = {spelling: i for i, spelling in enumerate(own.spellings)}
    return Renumbered(lm, torch.tensor([ids.get(spelling, UNK) for spelling in tokenizer.spellings]))
