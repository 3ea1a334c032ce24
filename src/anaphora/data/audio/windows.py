"""Long recordings in windows that overlap: what each says of its middle is put together.

Frames are normalised over the whole recording before it is cut, so windows and whole see the same numbers. Half an
overlap on either side of a window is context only. Frames that a convolution sees from such a place lie inside the
window as long as half the overlap is at least its reach, so there the result is that of the whole recording; recurrent
layers and self-attention see further, and their result is nearly that of the whole.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Window:
    """Frames ``start`` … ``end`` of a recording, of which ``first`` … ``last`` are this window's own."""

    start: int
    end: int
    first: int
    last: int


def cut(frames: int, window: int, overlap: int, factor: int, margin: int = 0) -> list[Window]:
    """Windows of at most ``window`` frames, neighbours sharing ``overlap``; one window where the whole fits.

    All places are multiples of ``factor``, so that a subsampled frame is the same frame in every window. The windows'
    own parts follow each other without a gap. Of a model that leaves ``margin`` frames out at both ends of what it hears, neighbours share
    at least four times as many: else those would be heard in no window.
    """
    window = max(window // factor, 1) * factor
    half = max(overlap // 2 // factor, -(-2 * margin // factor)) * factor
    step = window - 2 * half
    if frames <= window or step <= 0:
        return [Window(0, frames, 0, frames)]
    windows, start = [], 0
    while start + window < frames:
        windows.append(Window(start, start + window, start + half if start else 0, start + window - half))
        start += step
    return [*windows, Window(start, frames, start + half, frames)]
