"""Traces of sound and pictures made by hand, with answers that are known: where the peak is, which word, which class."""

from __future__ import annotations

import numpy as np

from anaphora.probe.ctc import probe_ctc
from anaphora.probe.trace import Array, Trace

EVIL = "<img src=x onerror=alert(1)>"


def scene(rows=32, columns=48):
    """A grey picture with a red square in its left upper quarter and a blue one in the right lower quarter."""
    picture = np.full((rows, columns, 3), 200, np.uint8)
    picture[4:12, 6:18] = (220, 30, 30)
    picture[20:28, 30:42] = (30, 60, 220)
    return picture


def seen(words=("a", "red", "square"), *, peaks=((0, 0), (0, 1), (2, 3)), grid=(3, 4), share=0.7, **facts):
    """For each word `share` of the attention at its peak (row, column), the rest evenly elsewhere."""
    attention = np.full((len(words), grid[0] * grid[1]), (1 - share) / (grid[0] * grid[1] - 1))
    for number, (row, column) in enumerate(peaks):
        attention[number, row * grid[1] + column] = share
    arrays = {
        "picture": Array(("row", "column", "channel"), scene()),
        "attention": Array(("output", "place"), attention.astype(np.float32)),
    }
    return Trace({"output": list(words)}, arrays, {"grid": list(grid), "max_difference": 1e-7, **facts})


def looked(labels=("7", "1", "3"), **facts):
    """Three glimpses, (6, 4), (24, 16) and (40, 30), after which the model is surer of the first class each time."""
    arrays = {
        "picture": Array(("row", "column", "channel"), scene()[..., :1]),
        "glimpses": Array(
            ("step", "coordinate"), np.array([[6, 4, 8], [24, 16, 8], [40, 30, 8]], np.float32)
        ),
        "beliefs": Array(
            ("step", "label"), np.array([[0.4, 0.4, 0.2], [0.6, 0.3, 0.1], [0.9, 0.05, 0.05]], np.float32)
        ),
    }
    return Trace({"label": list(labels)}, arrays, dict(facts))


def heard(words=("hello", "you"), *, frames=100, features=20, **facts):
    """One second whose only energy is at frame 50, feature 5 (from 0); posteriors of 40 ms that spell a, then b."""
    sound = np.zeros((frames, features), np.float32)
    sound[50, 5] = 8.0
    path = [0] * 5 + [1] * 3 + [0] * 7 + [2] * 4 + [0] * 6
    logits = np.zeros((len(path), 4))
    logits[np.arange(len(path)), path] = 5.0
    trace = probe_ctc(logits, [1, 2], symbols=["-", "a", "b", " "])
    trace.arrays["spectrogram"] = Array(("frame", "feature"), sound)
    spans = [(0.2, 0.32, 0.97), (0.6, 0.76, 0.5)]
    trace.tables["words"] = [
        {"word": word, "start": start, "end": end, "confidence": sure}
        for word, (start, end, sure) in zip(words, spans, strict=True)
    ]
    trace.facts |= {"frame_seconds": 0.01, "posterior_seconds": 0.04, **facts}
    return trace
