"""Whisper (Radford et al. 2022): an encoder that always hears 30 s, and a decoder with a prompt."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from anaphora.data.audio.preprocessing import LEAST_MEL as LEAST
from anaphora.data.audio.preprocessing import RANGE
from anaphora.data.symbols import BOS
from anaphora.errors import DataError
from anaphora.models.decoders import TransformerDecoder
from anaphora.models.memory import Memory
from anaphora.nn import inside
from anaphora.nn.attention import masks
from anaphora.nn.transformer import DecoderCache


class WhisperFront(nn.Module):
    """Two convolutions of width 3, the second of which steps over every second frame, over ``most`` frames: what a recording
    lacks is silence, which is heard like all else."""

    factor = 2

    def __init__(self, features: int, width: int, most: int):
        super().__init__()
        self.most, self.width = most, width
        self.first = nn.Conv1d(features, width, 3, padding=1)
        self.second = nn.Conv1d(width, width, 3, stride=2, padding=1)

    def places(self, frames: int) -> int:
        """How many annotations there are, whatever is heard."""
        return (self.most + 1) // 2

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """x ``(batch, time, features)``, lengths ``(batch,)`` -> ``(batch, most/2, width)``, all of it real."""
        if x.shape[1] > self.most:
            raise DataError(
                f"the model hears {self.most} frames at a time, not {x.shape[1]}; set window to {self.most / 100:g} s, or less."
            )
        real = masks.padding(lengths, x.shape[1])
        quiet = silence(x, real).view(-1, 1, 1)
        x = torch.where(real.unsqueeze(-1), x, quiet)
        x = torch.cat((x, quiet.expand(-1, self.most - x.shape[1], x.shape[2])), 1).transpose(1, 2)
        x = F.gelu(self.second(F.gelu(self.first(x)))).transpose(1, 2)
        return x, torch.full_like(lengths, x.shape[1])


def silence(frames: Tensor, real: Tensor) -> Tensor:
    """What a silent frame holds beside ``frames`` ``(batch, time, bins)``, of which those ``real`` ``(batch, time)`` count:
    ``(batch,)``, the lowest value in reach of each row's greatest."""
    lowest = torch.finfo(frames.dtype).min
    greatest = frames.masked_fill(~real.unsqueeze(-1), lowest).amax((1, 2))
    return (greatest - RANGE / 4).clamp_min(LEAST)


@dataclass(frozen=True)
class Begun:
    """The state of a decoder that has read its prompt, and the logits ``(rows, symbols)`` of what follows."""

    cache: DecoderCache
    logits: Tensor

    def select(self, rows: Tensor) -> Begun:
        return Begun(self.cache.select(rows), self.logits.index_select(0, rows))


class PromptedDecoder(TransformerDecoder):
    """A Transformer's decoder that reads a ``prompt`` of symbols after <s>, before its first own one; -1 there is the most
    probable of ``languages`` after <s>. The symbols ``never`` (and at the beginning ``never_first``) are not written.

    Seen from outside <s> stands for the whole prompt. A step gives log p of what may be written, as it was with the rest.
    """

    normalised = True

    def __init__(
        self,
        *parts: Any,
        prompt: Sequence[int] = (),
        languages: Sequence[int] = (),
        never: Sequence[int] = (),
        never_first: Sequence[int] = (),
        **options: Any,
    ):
        super().__init__(*parts, **options)
        self.prompt, self.languages = tuple(prompt), tuple(languages)
        self.never, self.never_first = list(never), list(never_first)
        if self.places is not None:
            self.places -= len(self.prompt) + 1

    def begun(self, memory: Memory) -> Tensor:
        """<s> and the prompt of every row, ``(batch, 1 + prompt)``."""
        rows = memory.mask.shape[0]  # len would fix it where a graph is traced
        begin = torch.full((rows, 1), BOS, device=memory.mask.device)
        found = [begin]
        for symbol in self.prompt:
            one = torch.full_like(begin, symbol) if symbol >= 0 else self._language(begin, memory)
            found.append(one)
        return torch.cat(found, 1)

    def before_first(self, memory: Memory) -> tuple[DecoderCache, Tensor]:
        """The state before the last symbol of <s> and the prompt is read, and that symbol ``(batch,)``: what an exported model
        begins with."""
        begun = self.begun(memory)
        state = super().start(memory)
        for symbols in begun[:, :-1].unbind(1):
            _, state = super().step(symbols, state)
        return state, begun[:, -1]

    def next_log_probs(self, symbols: Tensor, state: DecoderCache) -> tuple[Tensor, DecoderCache]:
        """A step after the prompt: log p of all symbols, −∞ for those that are never written."""
        logits, state = super().step(symbols, state)
        log_probs = logits.float().log_softmax(-1)
        if self.never:
            log_probs[:, self.never] = -torch.inf
        return log_probs, state

    @torch.no_grad()
    def _language(self, begin: Tensor, memory: Memory) -> Tensor:
        choices = torch.tensor(self.languages, device=begin.device)
        with inside.record():  # what this pass sees is no part of what is written
            scores = super().forced(begin, memory)[:, -1]  # (batch, symbols)
        return choices[scores[:, choices].argmax(1)].unsqueeze(1)

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        begin = self.begun(memory)
        logits = super().forced(torch.cat((begin, target_in[:, 1:]), 1), memory)
        return logits[:, begin.shape[1] - 1 :]

    def start(self, memory: Memory) -> Begun:  # type: ignore[override]
        state, logits = super().start(memory), torch.empty(0)
        for symbols in self.begun(memory).unbind(1):
            logits, state = super().step(symbols, state)
        return Begun(state, logits)

    def step(self, symbols: Tensor, state: Begun | DecoderCache) -> tuple[Tensor, DecoderCache]:
        if not isinstance(state, Begun):
            return self.next_log_probs(symbols, state)
        log_probs = state.logits.float().log_softmax(-1)
        if hidden := self.never + self.never_first:
            log_probs[:, hidden] = -torch.inf
        return log_probs, state.cache
