"""New text from a language model, drawn symbol by symbol; and how probable given lines are."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import Tensor, nn

from anaphora.data.growing import GrowingText
from anaphora.data.symbols import BOS, EOS, PAD, UNK
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.kinds.result import Result
from anaphora.models.rows import language_rows, read_prompt
from anaphora.models.whole import greedy_writer
from anaphora.search import Hypothesis
from anaphora.search._draws import Draws, Filters
from anaphora.search._hypothesis import Step, normalised
from anaphora.search._rows import Running
from anaphora.search._sample import drawing
from anaphora.settings.language import SampleSettings
from anaphora.training.seeding import derive

if TYPE_CHECKING:
    from anaphora.tasks.language.estimator import LanguageModel

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
    precision: str = "full",
    **filters: Any,
) -> list[Hypothesis]:
    """``n`` continuations of ``prompt``, which begins with what begins every text.

    Running text goes on for ``length`` symbols; a line ends with </s>, or there. ``listen`` is called with each piece of
    the first one's text as it is drawn.
    """
    if precision != "full":
        return [_written(model, tokenizer, prompt, lines, device, length, listen)]
    rows = language_rows(model)
    state = read_prompt(rows, prompt[:-1])
    step = without(rows.step, forbidden_symbols(lines))
    draws = Draws(prompt[-1], eos=EOS, limit=length, seed=seed, n=n, filters=Filters(**filters))
    running = Running(step, drawing(), device)
    running.join([draws], state)
    text, heard = GrowingText(tokenizer, prompt[1:]), 0
    while running.groups:
        running.advance()
        if listen is not None:
            new = draws.draws[0].tokens[heard:]
            heard += len(new)
            _tell(listen, "".join(map(text.push, new)))
    if listen is not None:
        _tell(listen, text.end())
    return [each.hypothesis() for each in draws.draws]


def _written(
    model: Any,
    tokenizer: Tokenizer,
    prompt: Sequence[int],
    lines: bool,
    device: torch.device,
    length: int,
    listen: Listen | None,
) -> Hypothesis:
    """The most probable symbols one after the other, in bfloat16 on a GPU."""
    places = len(prompt) + length
    writer = greedy_writer(model, places) if device.type == "cuda" else None
    if writer is None:
        raise AnaphoraError(
            "precision = 'bf16' needs an NVIDIA GPU, a Transformer with layer or RMS norms first and whole attention, and a text "
            f"of at most its context (it was given {places} symbols): leave it out."
        )
    text = GrowingText(tokenizer, prompt[1:])

    def heard(new: list[int]) -> None:
        if listen is not None:
            _tell(listen, "".join(text.push(symbol) for symbol in new if symbol != EOS))

    least = max(forbidden_symbols(lines)) + 1
    found, steps = writer.write(list(prompt), length, least=least, end=EOS if lines else None, heard=heard)
    if listen is not None:
        _tell(listen, text.end())
    finished = lines and found[-1:] == [EOS]
    log_prob = sum(steps)
    tokens = found[:-1] if finished else found
    return Hypothesis(
        tokens, normalised(log_prob, len(steps), 1.0), log_prob, steps, finished, [0.0] * len(steps)
    )


@torch.no_grad()
def draw_on_device(
    model: NextSymbol, begin: int, *, device: torch.device, length: int, seed: int, **filters: Any
) -> list[int]:
    """``length`` symbols of running text after ``begin``, drawn where the model is; the host reads them once, at the end.

    `draw` reads every symbol before the next step, for which a GPU waits. This is for a look at a model while it learns: the
    same seed draws another text than `draw` does, from the same distribution.
    """
    chosen = Filters(**filters)
    # the chances are made by the host, so that all kinds of GPU draw with the same ones
    chances = torch.rand(length, generator=torch.Generator().manual_seed(seed)).to(device)
    forbidden = torch.tensor(forbidden_symbols(False), device=device)
    symbol, state = torch.tensor([begin], device=device), model.start(1)
    drawn = []
    for chance in chances.unbind():
        log_probs, state = model.step(symbol, state)
        symbol = picked(log_probs[0].float().index_fill(0, forbidden, -math.inf), chance, chosen)
        drawn.append(symbol)
    return torch.cat(drawn).tolist()


def picked(log_probs: Tensor, chance: Tensor, filters: Filters) -> Tensor:
    """The symbol ``(1,)`` that ``chance``, from [0, 1), picks of those ``(V,)`` that pass the filters, without waiting for it."""
    values, order = log_probs.sort(descending=True, stable=True)
    if filters.temperature == 0:
        return order[:1]
    p = (values / filters.temperature).softmax(0)
    kept = (p > 0) & (p.cumsum(0) - p < filters.top_p) & (p >= filters.min_p * p[0])
    if filters.top_k:
        kept[filters.top_k :] = False
    mass = torch.where(kept, p, 0.0).cumsum(0)
    rank = torch.minimum((mass <= chance * mass[-1]).sum(), kept.sum() - 1)  # rounding may lead past the last
    return order.index_select(0, rank.clamp(min=0).view(1))


def _tell(listen: Listen, text: str) -> None:
    if text:
        listen(text)


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


def shown(m: LanguageModel, model: Any) -> list[dict[str, str]]:
    """A text that ``model`` writes while ``m`` is being trained, to look at."""
    s = m.settings_
    filters = {key: getattr(s, key) for key in SampleSettings.model_fields}
    seed, device = derive(s.seed, "sample"), device_of(model)
    if device.type == "cuda" and not s.lines:
        tokens = draw_on_device(model, m.begin, device=device, seed=seed, **filters)
    else:
        (drawn,) = draw(model, m.tokenizer_, [m.begin], lines=s.lines, device=device, seed=seed, **filters)
        tokens = drawn.tokens[::-1] if s.backward else drawn.tokens
    return [{"source": "", "reference": "", "output": m.tokenizer_.decode(tokens)}]


def device_of(model: Any) -> torch.device:
    """Where a model is; one that counts is on the CPU."""
    return next(model.parameters()).device if isinstance(model, nn.Module) else torch.device("cpu")
