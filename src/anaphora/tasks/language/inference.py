"""New text from a language model, drawn symbol by symbol; and how probable given lines are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.models.rows import language_rows, read_prompt
from anaphora.search import Hypothesis, sample
from anaphora.search._hypothesis import Step
from anaphora.tasks.result import Result

Listen = Callable[[str], None]


class NextSymbol(Protocol):
    """What every language model can do: begin, and read one symbol more."""

    def start(self, rows: int, /) -> Any: ...

    def step(self, symbols: Tensor, state: Any, /) -> tuple[Tensor, Any]: ...


@torch.no_grad()
def draw(
    model: NextSymbol,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    *,
    lines: bool,
    device: torch.device,
    length: int,
    seed: int,
    n: int = 1,
    listen: Listen | None = None,
    **filters: Any,
) -> list[Hypothesis]:
    """``n`` continuations of ``prompt``, which begins with what begins every text.

    Running text goes on for ``length`` symbols; a line ends with </s>, or there. ``listen`` is called with each piece of
    the first one's text as it is drawn.
    """
    rows = language_rows(model)
    state = read_prompt(rows, prompt[:-1])
    step = without(rows.step, forbidden_symbols(lines))
    speaker = None if listen is None else _Speaker(tokenizer, prompt[1:], listen)
    (found,) = sample(
        step if speaker is None else speaker.heard(step),
        state,
        start=torch.tensor([prompt[-1]], device=device),
        eos=EOS,
        max_length=length,
        seeds=[seed],
        n=n,
        **filters,
    )
    if speaker is not None:
        speaker.say(found[0].tokens, last=True)
    return list(found)


def forbidden_symbols(lines: bool) -> list[int]:
    """What is never drawn: </s> ends a line, and running text has no end."""
    return [PAD, BOS, UNK] if lines else [PAD, BOS, UNK, EOS]


def without(step: Step, forbidden: list[int]) -> Step:
    """``step`` that never names the symbols ``forbidden``."""

    def limited(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
        log_probs, state = step(symbols, state)
        log_probs = log_probs.clone()
        log_probs[:, forbidden] = -math.inf
        return log_probs, state

    return limited


class _Speaker:
    """Tells text as it grows. What may still change (half a character) waits for the next symbol."""

    def __init__(self, tokenizer: Tokenizer, prompt: Sequence[int], listen: Listen):
        self._decode, self._listen = tokenizer.decode, listen
        self._prompt = list(prompt)
        self._told = len(self._decode(self._prompt))
        self._tokens: list[int] = []

    def heard(self, step: Step) -> Step:
        first = True

        def listening(symbols: Tensor, state: Any) -> tuple[Tensor, Any]:
            nonlocal first
            if not first:
                self._tokens.append(int(symbols[0]))
                self.say(self._tokens)
            first = False
            return step(symbols, state)

        return listening

    def say(self, tokens: Sequence[int], *, last: bool = False) -> None:
        text = self._decode([*self._prompt, *tokens])
        if not last:
            text = text.rstrip("\ufffd")
        if len(text) > self._told:
            self._listen(text[self._told :])
            self._told = len(text)


@dataclass(frozen=True)
class LineScore(Result):
    """How probable a line is: log p of all its symbols and of its end, and exp(−log p / symbols)."""

    text: str
    log_prob: float
    symbols: int

    def __str__(self) -> str:
        return f"{self.log_prob:.4f}\t{self.perplexity:.4f}\t{self.text}"

    @property
    def perplexity(self) -> float:
        """exp(−log p / symbols), at most e⁷⁰⁰."""
        return math.exp(min(700.0, -self.log_prob / max(1, self.symbols)))
