"""Language models that go on learning from the text they judge: dynamic evaluation and a neural cache.

Dynamic evaluation (Krause et al. 2018): each segment s_i is judged, then the weights move along its gradient, and back
towards those of training, θ₀:

    θ ← θ − η·∇L(s_i)/(√v + ε) + λ·(θ₀ − θ),    v = the mean of the squared gradients of s_1 … s_i

The cache (Grave et al. 2017) remembers the last n states h_i that entered the output layer, each with the symbol y_i that
followed it:

    p(y | x_≤t) = (1 − λ)·p_model(y) + λ·Σ_i softmax_i(θ·h_t·h_i)·[y_i = y],    t − n ≤ i < t

No symbol is judged with the help of itself or of a later one. The text is read once, from its beginning to its end.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.errors import SettingsError
from anaphora.models.language import Carried, Language
from anaphora.settings.language import ScoreOptions

EPSILON = 1e-5
DIVERGED = 5  # times the loss of a uniform guess
BLOCK = 256  # places that look into the cache together

Row = Sequence[int] | np.ndarray[Any, Any]


@dataclass(frozen=True)
class Segment:
    """Symbols that are judged together: those of ``row`` from place ``first`` on, of which the ones from ``counted`` on are
    new. ``table`` is the symbol before them, and they."""

    row: int
    table: np.ndarray[Any, Any]
    counted: int
    fresh: bool  # nothing is carried into it


def segments(
    rows: Sequence[Row], begins: Sequence[int], *, context: int | None, steps: int
) -> Iterator[Segment]:
    """The rows in order, in pieces of ``steps`` symbols; for a model with a ``context``, in windows of so many symbols that
    go on by ``steps``, at most by half of them."""
    for number, row in enumerate(rows):
        whole = np.concatenate([[begins[number]], np.asarray(row, dtype=np.int64)])
        seen, length = 0, len(whole) - 1
        step = steps if context is None else min(steps, context - context // 2)
        while seen < length:
            last = min(length, seen + step)
            first = seen if context is None else max(0, last - context)
            yield Segment(number, whole[first : last + 1], seen - first, context is not None or seen == 0)
            seen = last


def adapted_log_probs(
    model: Language, rows: Sequence[Row], begins: Sequence[int], options: ScoreOptions
) -> list[np.ndarray[Any, Any]]:
    """log p of each symbol of each row, given those before it and what ``options`` let the model learn from them.

    ``begins``: the symbol before each row. ``model`` is in evaluation mode, and has its own weights again afterwards.

            adapted_log_probs(model, [ids[1:]], [ids[0]], ScoreOptions(dynamic=1e-4, cache=1000))
    """
    device = next(model.parameters()).device
    # on the device, so that a GPU is not waited for after every segment
    found: list[list[Tensor]] = [[] for _ in rows]
    cache = Cache(options) if options.cache else None
    learner = Dynamic(model, options) if options.dynamic else None
    carried: Any = None
    steps = options.dynamic_steps if learner else BLOCK
    with learner.lent() if learner else contextlib.nullcontext():
        for one in segments(rows, begins, context=model.body.context, steps=steps):
            symbols = torch.from_numpy(one.table)[None].to(device)
            with torch.set_grad_enabled(learner is not None):
                hidden, reading = model.read(symbols[:, :-1], None if one.fresh else carried)
                carried = _detached(reading.carried)
                new, targets = hidden[0, one.counted :], symbols[0, 1 + one.counted :]
                scores = model.output(new).float()
                log_probs = -F.cross_entropy(scores, targets, reduction="none")
            if learner is not None:
                learner.learn(-log_probs.mean())
            judged = log_probs.detach()
            if cache is not None:
                judged = cache.mixed(judged, new.detach().float(), targets)
            found[one.row].append(judged.double())
    judged_rows = [torch.cat(parts).cpu().numpy() if parts else np.zeros(0) for parts in found]
    if learner is not None and any(map(len, judged_rows)):
        _check_learning(np.concatenate(judged_rows), options, math.log(scores.shape[-1]))
    return judged_rows


def _check_learning(log_probs: np.ndarray[Any, Any], options: ScoreOptions, guess: float) -> None:
    """A `SettingsError` where dynamic evaluation has made the model far worse than a uniform ``guess``."""
    loss = -float(log_probs.mean())
    if not math.isfinite(loss) or loss > DIVERGED * guess:
        raise SettingsError(
            [
                f"dynamic = {options.dynamic:g} is too large: with it the loss is {loss:.3g} nats per symbol, where a guess has {guess:.3g}; "
                "lower it, such as to 0.0003."
            ]
        )


def _detached(carried: Any) -> Any:
    return (
        Carried(tuple(state.detach() for state in carried.states))
        if isinstance(carried, Carried)
        else carried
    )


class Dynamic:
    """Moves a model's weights along the gradients of what it has judged."""

    def __init__(self, model: Language, options: ScoreOptions):
        self.parameters: list[Tensor] = [p for p in model.parameters() if p.requires_grad]
        self.first = [p.detach().clone() for p in self.parameters]
        self.squares = [torch.zeros_like(p) for p in self.parameters]
        self.rate, self.decay, self.count = options.dynamic, options.dynamic_decay, 0

    @contextlib.contextmanager
    def lent(self) -> Iterator[None]:
        """Inside, the weights move; after it they are as they were."""
        try:
            yield
        finally:
            with torch.no_grad():
                torch._foreach_copy_(self.parameters, self.first)

    def learn(self, loss: Tensor) -> None:
        """One step along the gradient of ``loss``, a mean per symbol."""
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        self.count += 1
        with torch.no_grad():
            squares = torch._foreach_mul(gradients, gradients)
            torch._foreach_lerp_(self.squares, squares, 1 / self.count)
            lengths = torch._foreach_sqrt(self.squares)
            torch._foreach_add_(lengths, EPSILON)
            if self.decay:
                torch._foreach_lerp_(self.parameters, self.first, self.decay)
            torch._foreach_addcdiv_(self.parameters, gradients, lengths, value=-self.rate)


class Cache:
    """The last ``cache`` states and the symbols that followed them."""

    def __init__(self, options: ScoreOptions):
        self.size, self.flatness, self.weight = options.cache, options.cache_flatness, options.cache_weight
        self.states: Tensor | None = None  # (places, width)
        self.symbols: Tensor | None = None  # (places,)

    def mixed(self, log_probs: Tensor, states: Tensor, targets: Tensor) -> Tensor:
        """log p ``(places,)`` of the targets with the cache's share; then the cache holds them, too."""
        parts = [
            self._mixed(*some)
            for some in zip(*(torch.split(one, BLOCK) for one in (log_probs, states, targets)), strict=True)
        ]
        return torch.cat(parts)

    def _mixed(self, log_probs: Tensor, states: Tensor, targets: Tensor) -> Tensor:
        kept = states[:0] if self.states is None else self.states
        names = targets[:0] if self.symbols is None else self.symbols
        keys, values = torch.cat((kept, states)), torch.cat((names, targets))  # (kept + places, width)
        now = torch.arange(len(kept), len(keys), device=states.device)[:, None]
        then = torch.arange(len(keys), device=states.device)
        seen = (then < now) & (then >= now - self.size)  # (places, kept + places)
        scores = (self.flatness * states @ keys.T).masked_fill(~seen, -math.inf)
        shares = scores.softmax(-1).nan_to_num(0.0)  # the very first place sees nothing
        share = (shares * (values == targets[:, None])).sum(-1)
        self.states, self.symbols = keys[-self.size :], values[-self.size :]
        mixed = torch.logaddexp(
            log_probs + math.log1p(-self.weight), share.clamp(min=1e-30).log() + math.log(self.weight)
        )
        return torch.where(seen.any(-1), mixed, log_probs)
