"""What the training loop needs for language models: the loss, the dev measures and the samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.data.batches.padded import padded
from anaphora.data.batches.stream import LineBatch, StreamBatch
from anaphora.data.symbols import BOS, PAD
from anaphora.models.language import Carried, Language, Reading, TransformerBody
from anaphora.models.language_masked import MaskedLanguage, hide
from anaphora.models.language_passes import (
    has_large_output,
    is_written_out,
    states,
    written_out_loss,
)
from anaphora.native.derived import derived
from anaphora.native.following import following, observed
from anaphora.native.graphs import can_capture
from anaphora.nn.embedding import MANY, Output, aligned_logits
from anaphora.nn.mixture import MixtureOutput
from anaphora.nn.transformer.lean import is_lean, lean_stack
from anaphora.ops.attention import quickest_attention
from anaphora.ops.softmax_loss import output_loss, summed_loss
from anaphora.settings.language import LanguageSettings
from anaphora.settings.own import Part
from anaphora.training.objective import LossSum
from anaphora.training.own import no_own_loss, own_loss, summed
from anaphora.training.replay import Replayed

Measure = Callable[[Language], dict[str, float]]
Show = Callable[[Language], list[dict[str, str]]]


class LanguageObjective:
    """Negative log probability of the text, −Σ_t log p(x_t | x_<t), and penalties on the states where they are set.

    Of running text each stream's state is carried from batch to batch, without its gradient: truncated
    back-propagation through time. What is carried goes into every checkpoint.
    """

    greater_is_better = False

    def __init__(self, settings: LanguageSettings, symbols: int, *, measure: Measure, show: Show):
        self.settings = settings
        self.metric = settings.metric
        self.chance = math.log(symbols)
        self._measure, self._show = measure, show
        self._carried: dict[tuple[int, int], Any] = {}
        self._windowed: _Windowed | None = None
        self._own_loss = own_loss(settings)

    def loss(self, model: Language, batch: StreamBatch | LineBatch) -> LossSum:
        device = next(model.parameters()).device
        inputs, targets = batch.tensors(device)
        if isinstance(batch, StreamBatch) and model.body.context and self._own_loss is None:
            self._windowed = self._way(model, device)
            # one that is written out sees to it itself, where it is captured: the host would be late for each replay
            written_out = self._windowed is not None and self._windowed.written_out
            order = nullcontext() if written_out else quickest_attention(inputs.shape[1], device)
            with order:
                loss = window_loss if self._windowed is None else self._windowed.loss
                return LossSum(loss(model, inputs, targets), batch.symbols)
        before = None
        if isinstance(batch, StreamBatch) and not batch.fresh:
            before = self._carried.get(batch.share)
        hidden, reading = model.read(inputs, before)
        if isinstance(batch, StreamBatch):
            self._carried[batch.share] = _detached(reading.carried)
        if self._own_loss is None:
            total = cross_entropy(model, hidden, targets)
        else:
            total = summed(self._own_loss, model.output(hidden), targets, targets != PAD)
        return LossSum(total + batch.symbols * self._penalty(hidden, reading), batch.symbols)

    @property
    def captured(self) -> bool:
        """Whether a step is replayed from captured graphs of torch.compile, which overwrite what the last one left."""
        return self._windowed is not None

    def _way(self, model: Language, device: torch.device) -> _Windowed | None:
        """Return how the loss of windows is computed on a GPU, chosen again once the model has changed; None: by its modules."""
        own = isinstance(self.settings.model, Part)
        if device.type != "cuda" or self.settings.compile == "off" or own or not model.training:
            return None
        if following() is not None:
            return None
        model.body.prepare(self.settings.context)  # a table made while compiling would be compiled twice
        # A captured graph of kernels hands out its memory once: one part of a batch at a time, one process.
        alone = self.settings.accumulate == 1 and not torch.distributed.is_initialized()
        return derived(
            model,
            partial(_windowed, model, device, alone),
            key=("loss of windows", alone, can_capture(device)),
            reads="attributes",
        )

    def _penalty(self, hidden: Tensor, reading: Reading) -> Tensor | float:
        s, y = self.settings, reading.states
        penalty: Tensor | float = 0.0
        if s.activation_penalty:
            penalty = penalty + s.activation_penalty * hidden.float().pow(2).mean()
        if s.temporal_penalty and y.shape[1] > 1:
            penalty = penalty + s.temporal_penalty * (y[:, 1:] - y[:, :-1]).float().pow(2).mean()
        return penalty

    def evaluate(self, model: Language) -> dict[str, float]:
        return self._measure(model)

    def samples(self, model: Language) -> list[dict[str, str]]:
        """A text drawn from the model as it is now: from noise to words to sentences."""
        return self._show(model)

    def state_dict(self) -> dict[str, Tensor]:
        """What is carried, by part of the batch."""
        return {
            f"{index}/{of}/{number}": tensor
            for (index, of), carried in self._carried.items()
            for number, tensor in enumerate(carried.states if isinstance(carried, Carried) else [carried])
        }

    def load_state_dict(self, tensors: Mapping[str, Tensor]) -> None:
        for share, parts in _shares(tensors).items():
            self._carried[share] = _carried_of(parts)

    def load_shares(self, tensors: Mapping[str, Tensor], indices: Sequence[int], of: int) -> None:
        """The shares ``indices`` of ``of`` out of all those there were, of another number: row r of the batch is row
        r // n of share r mod n."""
        shares = _shares(tensors)
        before = max(of for _, of in shares)
        parts = [shares[index, before] for index in range(before) if (index, before) in shares]
        for index in indices:
            mine = [_merged([part[i] for part in parts])[..., index::of, :] for i in range(len(parts[0]))]
            if mine[0].shape[-2]:
                self._carried[index, of] = _carried_of(mine)


def _shares(tensors: Mapping[str, Tensor]) -> dict[tuple[int, int], list[Tensor]]:
    """What `LanguageObjective.state_dict` named, by share, in order."""
    found: dict[tuple[int, int], dict[int, Tensor]] = {}
    for key, tensor in tensors.items():
        index, of, number = map(int, key.split("/"))
        found.setdefault((index, of), {})[number] = tensor
    return {share: [parts[number] for number in sorted(parts)] for share, parts in found.items()}


def _carried_of(parts: list[Tensor]) -> Any:
    """States ``(layers, rows, hidden)``, or the last symbols."""
    return Carried(tuple(parts)) if parts[0].is_floating_point() else parts[0]


def _merged(shares: list[Tensor]) -> Tensor:
    """The rows (last axis but one) of shares i = 0, 1, … taken in turn: row r of the whole is row r // n of share r mod n."""
    rows = sum(share.shape[-2] for share in shares)
    whole = shares[0].new_empty((*shares[0].shape[:-2], rows, shares[0].shape[-1]))
    for index, share in enumerate(shares):
        whole[..., index :: len(shares), :] = share
    return whole


class _Windowed(NamedTuple):
    """A compiled or captured form of `window_loss`; ``written_out``: with passes of our own."""

    loss: Callable[[Language, Tensor, Tensor], Tensor]
    written_out: bool = False


def _windowed(model: Language, device: torch.device, alone: bool) -> _Windowed | None:
    """Return the quickest form of `window_loss` for this model; None where someone sees its parts at work."""
    if observed(model) is not None:
        return None
    if alone and is_written_out(model) and can_capture(device):
        return _Windowed(Replayed(unrolled_loss, model), written_out=True)
    if type(model.body) is TransformerBody and is_lean(model.body.stack):
        compiled = torch.compile(lean_loss, dynamic=False)
        return _Windowed(Replayed(compiled, model) if alone else compiled)
    mode = "reduce-overhead" if alone else "default"
    return _Windowed(torch.compile(window_loss, dynamic=False, mode=mode))


def window_loss(model: Language, inputs: Tensor, targets: Tensor) -> Tensor:
    """The summed loss of windows ``(rows, time)`` that carry nothing; one function, so that it can be compiled."""
    return cross_entropy(model, model.read(inputs)[0], targets)


def lean_loss(model: Language, inputs: Tensor, targets: Tensor) -> Tensor:
    """What `window_loss` gives of a stack that `is_lean`, by kernels of our own where autocast computes in bfloat16."""
    kind = inputs.device.type
    if not torch.is_autocast_enabled(kind) or torch.get_autocast_dtype(kind) != torch.bfloat16:
        return window_loss(model, inputs, targets)
    hidden = model.towards_output(lean_stack(model.body.stack, model.body.enter(inputs)))
    output = model.output
    if type(output) is not Output or output.symbols < MANY:
        return cross_entropy(model, hidden, targets)
    return output_loss(hidden.flatten(0, 1), output.matrix, output.bias, targets.flatten(), PAD)


def unrolled_loss(model: Language, inputs: Tensor, targets: Tensor) -> Tensor:
    """What `window_loss` gives of a model that `is_written_out`, with passes of our own where autocast computes in bfloat16."""
    kind = inputs.device.type
    if not torch.is_autocast_enabled(kind) or torch.get_autocast_dtype(kind) != torch.bfloat16:
        return window_loss(model, inputs, targets)
    with quickest_attention(inputs.shape[1], inputs.device):
        if has_large_output(model):
            return written_out_loss(model, inputs, targets, PAD)
        return cross_entropy(model, states(model, inputs), targets)


def cross_entropy(model: Language, hidden: Tensor, targets: Tensor) -> Tensor:
    """−Σ log p(target) over ``(rows, time)``; PAD is no target."""
    if isinstance(model.output, MixtureOutput):
        return -model.output.log_prob(hidden, targets, ignored=PAD).sum()
    logits = aligned_logits(model.output, hidden).flatten(0, 1)
    symbols = getattr(model.output, "symbols", None)
    return summed_loss(logits, targets.flatten(), ignored=PAD, symbols=symbols)


def _detached(carried: Any) -> Any:
    """Without gradient; numbers that are none would be handed on for ever, so they become zeros."""
    if isinstance(carried, Carried):
        return Carried(tuple(s.detach().nan_to_num(0.0, 0.0, 0.0) for s in carried.states))
    return carried


ROWS = 64


class MaskedObjective:
    """−Σ log p(x_t | what is shown) over the hidden places; which they are follows from the step."""

    def __init__(self, settings: LanguageSettings, symbols: int, dev: Sequence[Any]):
        no_own_loss(settings, "the preset masked guesses hidden symbols by its own loss")
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
    hidden = model.read(shown, lengths, true)[counted]
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
