"""What ``anaphora listen`` writes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from anaphora.cli.output import say
from anaphora.data.audio.live import Live
from anaphora.tasks.transcribe.inference.updates import Update
from anaphora.tasks.transcribe.inference.words import Word


def listen(
    model: Any, sound: Live, options: Mapping[str, Any], *, endpoint: float, every: float, as_json: bool
) -> None:
    """Hear ``sound`` to its end, or until Ctrl-C, and write down what is said."""
    _rehearse(model.listening(sound.rate, endpoint=endpoint, every=every, **options), sound.rate)
    session = model.listening(sound.rate, endpoint=endpoint, every=every, **options)
    page = _Page(as_json)
    try:
        for piece in sound.pieces:
            update = session.push(piece)
            if update is not None:
                page.show(update)
    except KeyboardInterrupt:
        pass  # what was said until then counts
    whole = session.finish()
    page.end(whole.words, session.report())


def _rehearse(session: Any, rate: int) -> None:
    """Kernels are compiled and loaded at their first use, which would delay the first words by seconds."""
    noise = np.random.default_rng(1).standard_normal(rate).astype(np.float32)
    for piece in np.array_split(0.01 * noise, 4):
        session.push(piece)
    session.finish()


class _Page:
    """Lines of finished utterances; on a terminal the current one below them."""

    def __init__(self, as_json: bool):
        self._as_json = as_json
        self._live = not as_json and sys.stdout.isatty()
        self._line: list[str] = []
        self._given = 0

    def show(self, update: Update) -> None:
        self._given += len(update.stable)
        if self._as_json:
            if update.stable or update.partial:
                found = {
                    "stable": _listed(update.stable),
                    "partial": _listed(update.partial),
                    "ended": update.ended,
                }
                self._write(json.dumps({"type": "words", **found}, ensure_ascii=False) + "\n")
            return
        self._line += [word.word for word in update.stable]
        if self._live:
            self._write("\r\x1b[K" + " ".join([*self._line, *(word.word for word in update.partial)]))
        if update.ended:
            self._write(("" if self._live else " ".join(self._line)) + "\n")
            self._line = []

    def end(self, words: Sequence[Word], report: dict[str, Any]) -> None:
        if self._as_json:
            text = " ".join(word.word for word in words)
            final = {"type": "final", "text": text, "words": _listed(words), **report}
            self._write(json.dumps(final, ensure_ascii=False) + "\n")
            return
        rest = [*self._line, *(word.word for word in words[self._given :])]
        if rest:
            self._write(("\r\x1b[K" if self._live else "") + " ".join(rest) + "\n")
        say(_sentence(report))

    def _write(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()


def _listed(words: Sequence[Word]) -> list[dict[str, Any]]:
    return [vars(word) for word in words]


def _sentence(report: dict[str, Any]) -> str:
    if report["real_time_factor"] is None:
        return "There was no sound."
    parts = [
        f"{report['seconds']:.1f} s of sound took {report['work']:.1f} s of work (real-time factor {report['real_time_factor']:.3f})"
    ]
    for name, said in (("shown", "shown"), ("certain", "certain")):
        if name in report:
            values = report[name]
            parts.append(
                f"words were {said} {values['mean']:.2f} s after their end (95 %: {values['p95']:.2f} s)"
            )
    return "; ".join(parts) + "."
