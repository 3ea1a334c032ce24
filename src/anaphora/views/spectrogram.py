"""What was heard: the sound's spectrogram, the words where they were found, and what CTC said at each moment."""

from __future__ import annotations

from typing import Any

import numpy as np

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Trace
from anaphora.views.captions import said
from anaphora.views.heard import Heard, Word
from anaphora.views.lines import Line
from anaphora.views.states import proof

TITLE = "Spectrogram, words and CTC posteriors"
SOUND = "Above: time to the right, frequency (or feature) upwards, the colour how strong."
WORDS = "Under it the words where they were found, each with a line as long as its confidence."
SYMBOLS = "Below: the probability of the likeliest symbols over the same time; the blank is usually high, and symbols are short spikes."
READING = f"{SOUND} {WORDS} {SYMBOLS}"
CAUTION = (
    "CTC is free to say a symbol late, or early if it has heard what follows: a word's start and end are when the model "
    "was sure, not when the sound began and ended. Colours are scaled to the part that is shown."
)
MOST_SECONDS, MOST_SYMBOLS = 60.0, 20
FAINT = 0.02
"""A symbol that is never more probable than this has no line."""


def spectrogram(trace: Trace, *, start: float = 0.0, seconds: float = 12.0, symbols: int = 12) -> Heard:
    """`seconds` of the sound from `start` on, and the `symbols` likeliest symbols besides the blank."""
    if not 0 < seconds <= MOST_SECONDS:
        raise AnaphoraError(f"seconds must be above 0 and at most {MOST_SECONDS:g}, not {seconds:g}.")
    if not 1 <= symbols <= MOST_SYMBOLS:
        raise AnaphoraError(f"symbols must be from 1 to {MOST_SYMBOLS}, not {symbols}.")
    values = np.asarray(trace.array("spectrogram", "frame", "feature"), np.float32)
    frame = _positive(trace, "frame_seconds")
    whole = len(values) * frame
    if not len(values) or not 0 <= start < whole:
        raise AnaphoraError(
            f"The recording has {whole:.2f} seconds; start must lie within, not at {start:g}."
        )
    first, end = int(start / frame), min(start + seconds, whole)
    shown = values[first : max(first + 1, int(np.ceil(end / frame - 1e-6)))]
    words = [
        Word(str(w["word"]), float(w["start"]), float(w["end"]), _confidence(w))
        for w in trace.tables.get("words", [])
        if float(w["end"]) > start + 1e-6 and float(w["start"]) < end - 1e-6
    ]
    lines = _posteriors(trace, start, end, symbols) if "posteriors" in trace.arrays else []
    notes = [] if lines else ["the model has no CTC outputs, so there are no posteriors"]
    if start > 0 or end < whole:
        notes.append(
            f"from {start:.2f} to {end:.2f} of {whole:.2f} seconds; start and seconds show another part"
        )
    notes += proof(trace)
    reading = " ".join([SOUND, *[WORDS] * bool(words), *[SYMBOLS] * bool(lines)])
    hertz = [float(f) for f in trace.facts.get("frequencies", [])]
    hertz = hertz if len(hertz) == values.shape[1] else []
    return Heard(
        TITLE, said(trace), shown, first * frame, frame, words, lines, hertz, notes, reading, CAUTION
    )


def _posteriors(trace: Trace, start: float, end: float, symbols: int) -> list[Line]:
    posteriors = np.asarray(trace.array("posteriors", "time", "symbol"), np.float64)
    step = _positive(trace, "posterior_seconds")
    times = (
        np.arange(len(posteriors)) + 0.5
    ) * step  # a posterior stands in the middle of what it was made of
    inside = (times >= start) & (times <= end)
    part = posteriors[inside]
    blank = int(trace.facts.get("blank", 0))
    if not len(part):
        return []
    most = part.max(0)
    order = [int(s) for s in np.argsort(-most, kind="stable") if int(s) != blank and most[s] >= FAINT][
        :symbols
    ]
    names = trace.tokens["symbol"]
    return [
        Line("blank" if s == blank else _spelled(names[s]), times[inside].tolist(), part[:, s].tolist())
        for s in (blank, *order)
    ]


def _spelled(symbol: str) -> str:
    return "space" if symbol == " " else symbol


def _positive(trace: Trace, name: str) -> float:
    value = trace.facts.get(name)
    if not isinstance(value, (int, float)) or not 0 < value < 1e6:
        raise AnaphoraError(
            f"The trace does not say how long a step is: facts[{name!r}] must be seconds above 0."
        )
    return float(value)


def _confidence(row: dict[str, Any]) -> float | None:
    value = row.get("confidence")
    return None if value is None else float(value)
