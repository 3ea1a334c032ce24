"""Sound as it arrives: what the encoder says of it, and the search that goes on from there.

A model hears as sound arrives where its encoder reads frames in order (recurrent layers of one direction, or Conformer layers in chunks,
under CTC or a transducer) and what is taken away from a recording needs nothing that comes later (``normalise`` is ``running`` or ``none``).
"""

from __future__ import annotations

from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor

from anaphora.data.audio.features import LogMel
from anaphora.data.audio.frames import Ear
from anaphora.data.audio.preprocessing import Running
from anaphora.data.audio.resample import ResampleStream
from anaphora.models.conformer import ConformerEncoder
from anaphora.models.ctc import CTCModel, log_probabilities
from anaphora.models.encoders import RecurrentEncoder
from anaphora.models.frontend import Framed
from anaphora.models.listener import Listener, Stacking
from anaphora.models.transducer import TransducerModel
from anaphora.search import CTCStream, Hypothesis, TransducerGreedy, TransducerStream, ctc_greedy
from anaphora.tasks.transcribe.inference.decoding import Heard, Search
from anaphora.tasks.transcribe.inference.unsaid import Sayable

FADED = 50.0
"""Frames that all utterances before count for in what sound is measured by: half as many as the training set does."""
LEAD = 0.2
"""Seconds before the first sound of an utterance at which the encoder begins."""
RECENT, RISE = 0.8, 1.5
"""Seconds that tell how loud a pause is, and how many deviations sound is louder."""
Samples = np.ndarray[Any, np.dtype[np.float32]]


def hears_as_it_arrives(estimator: Any) -> bool:
    """Whether what a model hears of a moment needs nothing that comes later."""
    model, ear = estimator.model_, estimator.ear_
    encoder = model.encoder if isinstance(model, CTCModel | TransducerModel) else None
    if not isinstance(encoder, Listener) or encoder.margin or not isinstance(ear.features, LogMel):
        return False
    if ear.features.power:  # measured by the whole recording
        return False
    front = encoder.front.front if isinstance(encoder.front, Framed) else encoder.front
    body = encoder.body
    if isinstance(body, ConformerEncoder):
        ordered = body.chunk > 0
    else:
        ordered = isinstance(body, RecurrentEncoder) and not body.reverse and not body.recurrent.bidirectional
    return isinstance(front, Stacking) and ordered and estimator.settings_.normalise in ("running", "none")


class FrameStream:
    """What the encoder says of one recording, for the pieces of sound as they arrive; see `hears_as_it_arrives`: log p ``(frames, symbols)``
    of CTC, annotations ``(frames, width)`` of a transducer."""

    def __init__(self, model: CTCModel | TransducerModel, ear: Ear, rate: int):
        features = cast(LogMel, ear.features)
        self._model, self._encoder = model, model.encoder
        self._resampled, self._sound = ResampleStream(rate, features.rate), features.stream()
        self._normalised = ear.usual.running() if ear.usual is not None else None
        self._device = next(model.parameters()).device
        self._held = torch.zeros(0, features.width)
        self._together = self._encoder.factor * getattr(self._encoder.body, "chunk", 1)
        self._state: Any = None
        self._hop = ear.settings.hop
        self._lead = round(LEAD / self._hop)
        self._waiting = False
        self._quiet, self._floor = 0, -np.inf
        self._recent: Any = np.zeros(0)  # how loud the last frames were
        self.skipped = 0
        """Frames of the encoder that were left out since this was set to 0."""

    def end_utterance(self, *, silent: bool) -> None:
        """Another voice may follow. After silence the encoder waits for what is louder than it, and begins from scratch shortly before, as
        in a recording of training: in a long pause it would hear words. Where nothing tells what is a pause, it goes on."""
        if self._normalised is not None:
            self._normalised.fade(FADED)
            self._waiting = silent
            self._floor = float(np.quantile(self._recent, 0.1)) if len(self._recent) else -np.inf

    def push(self, samples: Samples) -> Tensor:
        """More sound ``(n,)``."""
        found = self._sound.push(self._resampled.push(torch.from_numpy(samples)))
        return self._read(found, final=False)

    def finish(self) -> Tensor:
        """What was waiting for more."""
        rest = self._resampled.finish()
        found = [self._sound.push(rest)] if len(rest) else []
        return self._read(torch.cat((*found, self._sound.finish())), final=True)

    @torch.no_grad()
    def _read(self, frames: Tensor, *, final: bool) -> Tensor:
        before = len(self._held)
        if self._normalised is not None and len(frames):
            frames = torch.from_numpy(self._normalised(frames.numpy()))
            self._note(self._normalised)
        frames = torch.cat((self._held, frames))
        if self._waiting:
            frames = self._awaited(frames, before)
            if self._waiting:
                return self._said(torch.zeros(1, 0, self._encoder.width, device=self._device))
        whole = len(frames) if final else len(frames) // self._together * self._together
        frames, self._held = frames[:whole], frames[whole:]
        if not whole:
            return self._said(torch.zeros(1, 0, self._encoder.width, device=self._device))
        x, _ = self._encoder.front(frames[None].to(self._device), torch.tensor([whole], device=self._device))
        body = self._encoder.body
        if isinstance(body, ConformerEncoder):
            y, self._state = body.further(x, self._state)
        else:
            recurrent = cast(RecurrentEncoder, body)
            y, self._state = recurrent.recurrent(recurrent.embedding(x), None, self._state)
        return self._said(y)

    @property
    def quiet(self) -> float:
        """Seconds since the last sound; 0 where nothing tells what is silence."""
        return self._quiet * self._hop

    def _note(self, frames: Running) -> None:
        sounding = frames.sounding
        self._recent = np.concatenate((self._recent, frames.levels))[-round(RECENT / self._hop) :]
        last = np.flatnonzero(sounding)
        self._quiet = len(sounding) - 1 - int(last[-1]) if len(last) else self._quiet + len(sounding)

    def _awaited(self, frames: Tensor, before: int) -> Tensor:
        """The frames from shortly before the first one that sounds; none while there is none. ``before`` of them had come already."""
        assert self._normalised is not None
        sounding: list[int] = []
        if len(frames) > before:
            louder = self._normalised.levels >= self._floor + RISE
            sounding = np.flatnonzero(self._normalised.sounding & louder).tolist()
        self._waiting = not sounding
        first = before + sounding[0] if sounding else len(frames)
        gone = max(0, first - self._lead) // self._encoder.factor * self._encoder.factor
        self.skipped += gone // self._encoder.factor
        frames = frames[gone:]
        if not self._waiting:
            self._state = None
            return frames
        self._held = frames
        return frames[:0]

    def _said(self, annotations: Tensor) -> Tensor:
        if isinstance(self._model, CTCModel):
            frames = self._model.frames
            return log_probabilities(frames.weighed(frames.linear(annotations)))[0].cpu()
        return annotations[0]


class Searching(Protocol):
    """A search that goes on whenever frames arrive: `CTCStream`, `TransducerStream`, `TransducerGreedy`, `GreedyFrames`."""

    def push(self, frames: Tensor, /) -> None:
        """More frames ``(n, width)``."""

    def best(self, n_best: int | None = 1) -> list[Hypothesis]:
        """The best hypotheses of all so far."""

    def certain(self) -> tuple[list[int], list[str] | None]:
        """The symbols, and in a search for words the words, that no later frame can change."""


class GreedyFrames:
    """The best path of CTC, `ctc_greedy`, over frames as they arrive."""

    def __init__(self) -> None:
        self._read: list[Tensor] = []

    def push(self, frames: Tensor) -> None:
        if len(frames):
            self._read.append(frames)

    def best(self, n_best: int | None = 1) -> list[Hypothesis]:
        return list(ctc_greedy(torch.cat(self._read)[None])[0]) if self._read else []

    def certain(self) -> tuple[list[int], None]:
        found = self.best()
        return (list(found[0].tokens) if found else []), None


def searching(model: CTCModel | TransducerModel, s: Search) -> Searching:
    """The search that ``s`` describes, for frames as they arrive; a transducer's is for symbols."""
    if isinstance(model, TransducerModel):
        sayable = Sayable(model, s.never)
        if s.width == 1:
            return TransducerGreedy(sayable)
        return TransducerStream(sayable, width=max(s.width, s.n_best))
    if s.lexicon is None:
        return GreedyFrames() if s.width == 1 else CTCStream(width=max(s.width, s.n_best))
    # As `search_frames` asks for one: prefixes with the same future beside the best of them are never needed.
    return CTCStream(width=max(s.width, s.n_best), per_node=s.n_best, **s.words)


def heard_of(hypothesis: Hypothesis, frames: list[Tensor], model: Any) -> Heard:
    """What tells where in the sound the symbols of a hypothesis are."""
    return Heard([hypothesis], torch.cat(frames) if isinstance(model, CTCModel) else None)
