"""Models and encoders of the user's own, behind the interfaces that tasks train, search and look into.

An own model is made by a function of a `Spec` and returns a plain ``nn.Module``; `docs/guides/bring-your-own.md` lists
what each task calls. What it returns is checked where it comes in, so that a mistake is one sentence about the module.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from anaphora.errors import SettingsError
from anaphora.models.ctc import CTCModel
from anaphora.models.decoders.base import Decoder, coins
from anaphora.models.forecaster import LEVELS
from anaphora.models.language import Language, Reading
from anaphora.models.memory import Memory
from anaphora.models.seq2seq import Seq2Seq
from anaphora.models.tagger import Tagger
from anaphora.nn.attention import masks


@dataclass(frozen=True)
class Spec:
    """What an own model or encoder is made for.

    ``inputs``: how many symbols there are, or the width of each input vector (channels of a picture); ``outputs``: how
    many classes, tags, symbols or columns come out; ``vocabulary``: the tokenizer, where texts are read;
    ``labels``: the names of the outputs, where they have names; ``settings``: all settings of the run.
    """

    task: str
    inputs: int
    outputs: int
    settings: Any
    vocabulary: Any = None
    labels: tuple[str, ...] = ()


def made(part: Any, spec: Spec, name: str) -> nn.Module:
    """The module that a user's class or function makes of ``spec``."""
    module = part.object(spec)
    if not isinstance(module, nn.Module):
        raise SettingsError([f"{name} = {part} must make an nn.Module, but made a {type(module).__name__}."])
    if not any(True for _ in module.parameters()):
        raise SettingsError(
            [f"{name} = {part} made a module without parameters, so there is nothing to train."]
        )
    return module


def checked(out: Any, shape: tuple[int, ...], module: nn.Module) -> Tensor:
    """``out``, or the first of a tuple, which must have this shape (−1: any length)."""
    found = out[0] if isinstance(out, tuple) else out
    name = type(module).__name__
    if not isinstance(found, Tensor):
        raise SettingsError([f"{name} must return a tensor, but returned a {type(found).__name__}."])
    fits = len(found.shape) == len(shape)
    if not fits or any(want not in (-1, have) for want, have in zip(shape, found.shape, strict=True)):
        wanted = ", ".join("any" if size == -1 else str(size) for size in shape)
        raise SettingsError([f"{name} must return a tensor ({wanted}), but returned {tuple(found.shape)}."])
    return found


def _trial(module: nn.Module, *inputs: Tensor) -> Any:
    """What the module makes of a small input, with no trace left in its mode or in random numbers."""
    training = module.training
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        found = module.eval()(*inputs)
    module.train(training)
    return found


class OwnEncoder(nn.Module):
    """Embedding, dropout, and a module with ``forward(x, lengths)`` from ``(batch, time, inputs)`` to states
    ``(batch, time, width)``; a tuple's first value counts, so that a `Recurrent` is one too."""

    def __init__(self, embedding: nn.Module, module: nn.Module, *, inputs: int, dropout: float = 0.0):
        super().__init__()
        self.embedding, self.module = embedding, module
        self.dropout = nn.Dropout(dropout)
        states = checked(_trial(module, torch.zeros(1, 2, inputs), torch.tensor([2])), (1, 2, -1), module)
        self.width = int(states.shape[2])

    def forward(self, source: Tensor, lengths: Tensor) -> Memory:
        """source ``(batch, S)`` of symbols or ``(batch, S, features)``, lengths ``(batch,)``."""
        mask = masks.padding(lengths, source.shape[1])
        x = self.dropout(self.embedding(source))
        states = checked(self.module(x, lengths), (*x.shape[:2], self.width), self.module)
        return Memory(states.masked_fill(~mask.unsqueeze(-1), 0.0), mask)


class OwnScores(nn.Module):
    """A classifier: ``forward(x, lengths)`` -> scores ``(batch, outputs)``."""

    def __init__(self, module: nn.Module, outputs: int):
        super().__init__()
        self.module, self.outputs = module, outputs

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        return checked(self.module(source, lengths), (source.shape[0], self.outputs), self.module)


class OwnTagger(Tagger):
    """A tagger: ``forward(words, lengths)`` from ``(batch, time)``, or frames ``(batch, time, features)``, to scores ``(batch, time, tags)``."""

    def __init__(self, module: nn.Module, tags: int, *, rules: tuple[Tensor, Tensor, Tensor]):
        super().__init__(module, nn.Identity(), rules=rules)  # type: ignore[arg-type]
        self.tags = tags

    def forward(self, source: Tensor, lengths: Tensor) -> Tensor:
        words = source if source.dim() == 2 or source.is_floating_point() else source[..., 0]
        return checked(self.encoder(words, lengths), (*words.shape[:2], self.tags), self.encoder).float()


class _AsItIs(nn.Module):
    """In the place of an output layer: the module's logits are the output."""

    def __init__(self, symbols: int):
        super().__init__()
        self.symbols = self.width = self.out_features = symbols

    def forward(self, x: Tensor) -> Tensor:
        return x


@dataclass(frozen=True)
class Prefix:
    """What was written so far ``(rows, length)``, and what was read, where something was."""

    symbols: Tensor
    memory: Memory | None = None

    def select(self, rows: Tensor) -> Prefix:
        memory = self.memory
        if memory is not None:
            memory = Memory(memory.annotations.index_select(0, rows), memory.mask.index_select(0, rows))
        return Prefix(self.symbols.index_select(0, rows), memory)

    def after(self, symbols: Tensor) -> Prefix:
        return Prefix(torch.cat((self.symbols, symbols[:, None]), 1), self.memory)


def _refuse_foresight(logits: Tensor, changed: Tensor, module: nn.Module) -> None:
    """``changed``: the logits after the last symbol was exchanged, which no earlier place may notice."""
    if not torch.allclose(logits[:, :-1], changed[:, :-1], atol=1e-5):
        raise SettingsError(
            [f"{type(module).__name__} sees symbols that it has to predict: place t may look back only."]
        )


class OwnBody(nn.Module):
    """A language model: ``forward(symbols)`` from ``(rows, time)`` to logits of each next symbol
    ``(rows, time, symbols)``, place t looking back only. Windows of ``context`` symbols are read from their start."""

    def __init__(self, module: nn.Module, symbols: int, context: int):
        super().__init__()
        self.module, self.width, self.context = module, symbols, context
        trial = torch.arange(4).remainder(symbols).repeat(2, 1)
        trial[1, -1] = (trial[1, -1] + 1) % symbols
        logits = checked(_trial(module, trial), (2, 4, symbols), module)
        _refuse_foresight(logits[:1], logits[1:], module)

    def read(self, symbols: Tensor, carried: Any = None) -> Reading:
        return Reading(checked(self.module(symbols), (*symbols.shape, self.width), self.module), None)

    def prepare(self, length: int) -> None:
        """Nothing is made ahead for windows of this length."""

    def start(self, rows: int) -> Prefix:
        device = next(self.parameters()).device
        return Prefix(torch.zeros(rows, 0, dtype=torch.long, device=device))

    def step(self, symbols: Tensor, carried: Prefix) -> tuple[Tensor, Prefix]:
        prefix = Prefix(carried.after(symbols).symbols[:, -self.context :])
        return self.read(prefix.symbols).states[:, -1], prefix


def own_language(module: nn.Module, symbols: int, context: int) -> Language:
    """The module as a language model."""
    return Language(OwnBody(module, symbols, context), _AsItIs(symbols))  # type: ignore[arg-type]


class OwnReader(nn.Module):
    """The encoder of an own encoder-decoder: ``encode(source, lengths)`` (of pictures ``encode(images)``) -> annotations
    ``(batch, S, width)``."""

    def __init__(self, module: nn.Module, *, pictures: bool = False):
        super().__init__()
        self.module, self.pictures = module, pictures

    def forward(self, source: Tensor, lengths: Tensor | None = None) -> Memory:
        encode: Any = self.module.encode
        places = -1 if self.pictures else source.shape[1]
        found = encode(source) if self.pictures else encode(source, lengths)
        states = checked(found, (source.shape[0], places, -1), self.module)
        if lengths is None or self.pictures:
            return Memory(states, states.new_ones(states.shape[:2], dtype=torch.bool))
        return Memory(states, masks.padding(lengths, places))


class OwnDecoder(Decoder):
    """The decoder of an own encoder-decoder: ``decode(target, annotations, mask)`` -> logits ``(batch, T, symbols)``, place
    t looking back only. Step by step all that was written is read again."""

    def __init__(self, module: nn.Module, symbols: int):
        super().__init__()
        self._module = [module]  # the encoder has its weights
        self.symbols = symbols

    def forced(self, target_in: Tensor, memory: Memory) -> Tensor:
        module: Any = self._module[0]
        logits = module.decode(target_in, memory.annotations, memory.mask)
        return checked(logits, (*target_in.shape, self.symbols), module)

    def sampled(self, target_in: Tensor, memory: Memory, teacher_forcing: float) -> Tensor:
        """In two passes, as the Transformer's decoder does."""
        with torch.no_grad():
            chosen = self.forced(target_in, memory).argmax(-1)
        own = torch.cat((target_in[:, :1], chosen[:, :-1]), 1)
        return self.forced(torch.where(coins(target_in, teacher_forcing), target_in, own), memory)

    def start(self, memory: Memory) -> Prefix:
        rows = memory.annotations.shape[0]
        return Prefix(torch.zeros(rows, 0, dtype=torch.long, device=memory.mask.device), memory)

    def step(self, symbols: Tensor, state: Prefix) -> tuple[Tensor, Prefix]:
        state = state.after(symbols)
        assert state.memory is not None
        return self.forced(state.symbols, state.memory)[:, -1], state


def own_seq2seq(module: nn.Module, symbols: int, *, pictures: bool = False) -> Seq2Seq:
    """A module with ``encode`` and ``decode`` as an encoder-decoder."""
    for name in ("encode", "decode"):
        if not callable(getattr(module, name, None)):
            raise SettingsError(
                [f"{type(module).__name__} has no {name}; an own model of this task needs one."]
            )
    decoder = OwnDecoder(module, symbols)
    if not pictures:
        encoder = OwnReader(module)
        trial = torch.arange(4).remainder(symbols).repeat(2, 1)
        trial[1, -1] = (trial[1, -1] + 1) % symbols
        training = module.training
        module.eval()
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            memory = encoder(torch.ones(2, 2, dtype=torch.long), torch.tensor([2, 2]))
            logits = decoder.forced(trial, memory)
        module.train(training)
        _refuse_foresight(logits[:1], logits[1:], module)
    return Seq2Seq(OwnReader(module, pictures=pictures), decoder)


class OwnFrames(CTCModel):
    """A transcriber by CTC: ``forward(frames, lengths)`` -> scores ``(batch, places, symbols)``, symbol 0 the blank, or
    these and how many places of each row are real ``(batch,)``."""

    def __init__(self, module: nn.Module, symbols: int):
        super().__init__(module, nn.Identity())  # type: ignore[arg-type]
        self.symbols = symbols

    def forward(self, x: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        found: Any = self.encoder(x, lengths)
        places = -1 if isinstance(found, tuple) else x.shape[1]
        scores = checked(found, (x.shape[0], places, self.symbols), self.encoder)
        return scores, (found[1] if isinstance(found, tuple) else lengths)


class OwnForecast(nn.Module):
    """A forecaster: ``forward(x, lengths)`` from ``(batch, time, features)`` to the next values ``(batch, horizon, targets)``
    or, where targets are aligned, to ``(batch, time, targets)``."""

    errors: Tensor

    def __init__(self, module: nn.Module, *, targets: int, horizon: int, aligned: bool):
        super().__init__()
        self.module, self.targets, self.horizon, self.aligned = module, targets, horizon, aligned
        self.register_buffer("errors", torch.zeros(LEVELS, horizon, targets))

    def forward(self, x: Tensor, future: Tensor, lengths: Tensor | None = None) -> Tensor:
        """As `Forecaster.forward`; columns known in advance are seen in the window alone."""
        steps = x.shape[1] if self.aligned else self.horizon
        out = checked(self.module(x, lengths), (x.shape[0], steps, self.targets), self.module)
        return out.unsqueeze(2 if self.aligned else 1)


class OwnAnswers(nn.Module):
    """An answerer: ``forward(images, question, lengths)``, a picture for each question, -> scores ``(batch, answers)``."""

    def __init__(self, module: nn.Module, answers: int):
        super().__init__()
        self.module, self.output = module, _AsItIs(answers)

    def forward(self, images: Tensor, which: Tensor, question: Tensor, lengths: Tensor) -> Tensor:
        scores = self.module(images[which], question, lengths)
        return checked(scores, (question.shape[0], self.output.symbols), self.module)
