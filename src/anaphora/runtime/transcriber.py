"""A transcriber out of its graphs: CTC over frames, or a decoder with attention, alone or with CTC beside it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from anaphora.data.audio.preprocessing import cut
from anaphora.data.audio.warping import tracts
from anaphora.data.batches.pooled import in_order
from anaphora.data.symbols import BOS, EOS
from anaphora.data.tokenizers.vocabularies import Around
from anaphora.errors import DataError, SettingsError
from anaphora.files import parse_json
from anaphora.runtime import ctc
from anaphora.runtime.folder import Exported, OnnxGraph
from anaphora.runtime.ruled import FirstSteps, RuledSteps
from anaphora.runtime.searching import Stepping, beam, named_when_not_finite
from anaphora.runtime.sound import Ear, Frames
from anaphora.runtime.stored import stored_tokenizer
from anaphora.runtime.writer import Encoder, Output, best_of, check_n_best, outputs_of
from anaphora.search._hypothesis import NBest, different, widths
from anaphora.search._plan import Plan
from anaphora.settings.search import HF_BEAM, USUAL

BATCH = 16_384
"""Frames that are read together; results do not depend on it."""
PLAIN = 8
"""Width of a beam unless set."""
MOST_VOICES = 15


class Transcriber:
    """`predict` and `search` of an exported `an.Transcriber`, without lexicon and language model."""

    def __init__(self, exported: Exported, *, threads: int = 0):
        self.preset, facts = exported.preset, exported.facts
        try:
            learnt = parse_json(exported.text("learnt.json"))
            self.tokenizer = stored_tokenizer(exported)
            self.ear = Ear(
                learnt["kind"],
                int(learnt["rate"]),
                int(learnt["features"]),
                facts["sound"],
                learnt.get("usual"),
            )
            self._prompted = _Prompted.of(facts.get("prompted"))
            self._factor, self._weight = int(facts["factor"]), float(facts["ctc_weight"])
            self._never = [int(symbol) for symbol in facts.get("never", ())]
            self._voices = int(facts.get("voices", 1))
            if not 1 <= self._voices <= MOST_VOICES:
                raise ValueError(f"{self._voices} voices are not heard")
            if not all(0 <= symbol < self.tokenizer.size for symbol in self._never):
                raise ValueError(f"it has no symbols {self._never}")
        except (LookupError, TypeError, ValueError, AttributeError, DataError) as error:
            raise exported.damaged(error) from None
        self._frames = OnnxGraph(exported, threads=threads) if "model" in exported.graphs else None
        self._encoder = None if self._frames is not None else Encoder(exported, threads=threads)

    def predict(self, inputs: Iterable[Any], *, details: bool = False, **options: Any) -> list[Any]:
        """The text of each recording: a file, samples ``(n,)`` at the rate of training (or pairs of samples and their rate), or
        frames ``(time, features)``; ``beam`` is the width of the search (1 is greedy), ``window`` and ``overlap`` the seconds
        in which long recordings are read."""
        return best_of(self.search(inputs, **options), details)

    def search(
        self,
        inputs: Iterable[Any],
        /,
        *,
        n_best: int = 1,
        beam: int = 0,
        window: float = 30.0,
        overlap: float = 8.0,
        **others: Any,
    ) -> list[list[Output]]:
        """The ``n_best`` texts of each recording with their scores, best first."""
        for key in others:
            raise SettingsError(
                [
                    f"{key} cannot be asked of an exported Transcriber; it takes beam, n_best, window and overlap."
                ]
            )
        check_n_best(n_best)
        if beam and n_best > beam:
            raise SettingsError([f"n_best = {n_best} needs a beam at least as wide, not {beam}."])
        if not 0 <= overlap < window:
            raise SettingsError([f"overlap = {overlap:g} must be less than window = {window:g}."])
        if isinstance(inputs, str | Path):
            raise DataError("predict takes a list of recordings: write [recording] for a single one.")
        if not isinstance(inputs, Iterable):
            raise DataError(f"predict takes a list of recordings, not a {type(inputs).__name__}.")
        voices = tracts(self._voices)
        heard = [
            self.ear.hear(one, number, tract)
            for number, one in enumerate(inputs, start=1)
            for tract in voices
        ]
        spans = (round(window / self.ear.hop), round(overlap / self.ear.hop))
        width = beam or max(PLAIN, n_best)
        if self._frames is not None:
            read = self._log_probs(heard, *spans, self.ear.margin)
            wholes = [_mean(read[at : at + len(voices)]) for at in range(0, len(read), len(voices))]
            for log_probs in wholes:
                log_probs[:, self._never] = -np.inf

            def searched(rows: list[int], wide: int) -> list[NBest]:
                return [self._labels(wholes[i], wide) for i in rows]

            count = len(wholes)
        else:
            for number, x in enumerate(heard, start=1):
                if len(cut(len(x), *spans, self._factor)) > 1:
                    raise DataError(
                        f"input {number} is longer than window = {window:g} s; cut it, or raise window."
                    )

            def searched(rows: list[int], wide: int) -> list[NBest]:
                return named_when_not_finite(lambda some: self._written(some, wide), [heard[i] for i in rows])

            count = len(heard)
        wide = widths(width) if width > 1 else (1,)
        found = different(searched, count, n_best, wide, lambda h: self._text(h.tokens))
        return outputs_of(found, self._text)

    def _text(self, tokens: Sequence[int]) -> str:
        return self.tokenizer.normalized(self.tokenizer.decode(tokens))

    def _labels(self, log_probs: Frames, width: int) -> NBest:
        return ctc.greedy(log_probs) if width == 1 else ctc.prefix_beam(log_probs, width, width)

    def _log_probs(self, heard: Sequence[Frames], window: int, overlap: int, margin: int) -> list[Frames]:
        """log p ``(frames, symbols)`` of each recording, put together of its windows."""
        assert self._frames is not None
        windows = [cut(len(x), window, overlap, self._factor, margin) for x in heard]
        parts = [x[w.start : w.end] for x, of in zip(heard, windows, strict=True) for w in of]
        read: list[Any] = [None] * len(parts)
        for rows in in_order(parts, BATCH):
            table, lengths = _padded([parts[i] for i in rows])
            found = self._frames(frames=table, lengths=lengths)
            for i, row, real in zip(rows, found["log_probs"], found["places"].tolist(), strict=True):
                read[i] = row[:real]
        each = iter(read)
        joined = []
        for number, of in enumerate(windows, start=1):
            kept = []
            for w in of:
                begin, end = (w.first - w.start) // self._factor, -(-(w.last - w.start) // self._factor)
                kept.append(next(each)[begin:end])
            joined.append(np.concatenate(kept))
            if np.isnan(joined[-1]).any():
                raise DataError(
                    f"input {1 + (number - 1) // self._voices}: the prediction is not a finite number; are its values far too large?"
                )
        return joined

    def _written(self, heard: Sequence[Frames], wide: int) -> list[NBest]:
        assert self._encoder is not None
        found: list[Any] = [None] * len(heard)
        prompted = self._prompted
        options = USUAL if prompted is None else USUAL.model_copy(update=HF_BEAM)
        plan = Plan(options, EOS, wide, wide)
        for rows in in_order(heard, BATCH):
            table, lengths = _padded([heard[i] for i in rows])
            state, others = self._encoder(frames=table, lengths=lengths)
            places = others["places"].tolist()
            limits = [real + 10 for real in places]
            steps: Stepping = self._encoder.steps
            if self._never:
                steps = RuledSteps(steps, Around(never=tuple(self._never)), limits, scaled=False)
            if prompted is None:
                nbests = beam(steps, state, plan, start=BOS, limits=limits)
            else:
                steps = FirstSteps(steps, prompted.never_first)
                limits = [min(limit, prompted.places) for limit in limits]
                nbests = beam(steps, state, plan, start=others["start"].tolist(), limits=limits)
            for place, (i, nbest) in enumerate(zip(rows, nbests, strict=True)):
                ranked = list(nbest)
                if "frame_log_probs" in others:
                    ranked = self._rescored(ranked, others["frame_log_probs"][place, : places[place]])
                found[i] = NBest(ranked)
        return found

    def _rescored(self, nbest: list[Any], log_probs: Frames) -> list[Any]:
        """Ranked by w · log p_ctc(y | x) + (1 − w) · log p_attention(y | x)."""
        w = self._weight
        scores = [w * ctc.log_prob(log_probs, h.tokens) + (1 - w) * h.log_prob for h in nbest]
        order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
        return [replace(nbest[i], score=scores[i]) for i in order]


@dataclass(frozen=True)
class _Prompted:
    """Of a decoder that reads a prompt: how many symbols it has room for behind it, and which may not come first."""

    places: int
    never_first: list[int]

    @classmethod
    def of(cls, facts: Any) -> _Prompted | None:
        return None if facts is None else cls(int(facts["places"]), [int(i) for i in facts["never_first"]])


def _mean(log_probs: Sequence[Frames]) -> Frames:
    """The logarithm of the mean probability of several ``(frames, symbols)``."""
    if len(log_probs) == 1:
        return log_probs[0]
    found: Frames = (np.logaddexp.reduce(log_probs) - np.log(len(log_probs))).astype(np.float32)
    return found


def _padded(rows: Sequence[Frames]) -> tuple[Any, Any]:
    """Frames ``(batch, time, features)`` filled up with zeros, and lengths ``(batch,)``."""
    lengths = np.array([len(x) for x in rows], dtype=np.int64)
    table = np.zeros((len(rows), max(1, int(lengths.max())), rows[0].shape[1]), dtype=np.float32)
    for place, x in zip(table, rows, strict=True):
        place[: len(x)] = x
    return table, lengths
