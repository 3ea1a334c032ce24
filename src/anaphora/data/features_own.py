"""Features of the user's own: a function of samples and their rate, or of one sequence of vectors, that makes frames."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from anaphora.data.vectors import Array
from anaphora.errors import DataError, SettingsError
from anaphora.settings.own import Part

TRIAL = 4  # seconds of a tone that a function of sound is tried with


def own_frames(part: Part, name: str, *given: Any) -> Array:
    """What the user's function makes of one input called ``name``: frames ``(time, width)``."""
    try:
        found = np.asarray(part.made()(*given), dtype=np.float32)
    except (TypeError, ValueError) as error:
        raise SettingsError([f"features = {part} failed on {name} ({error})."]) from error
    if found.ndim != 2 or 0 in found.shape:
        raise SettingsError(
            [f"features = {part} must make an array (time, width), but made {found.shape} of {name}."]
        )
    if not np.isfinite(found).all():
        raise DataError(f"features = {part} made a number that is not finite of {name}; mend one of the two.")
    return found


class OwnFeatures:
    """Frames of sound by a function of ``(samples (n,), rate)``.

    rate: samples per second that the function gets. width: numbers in a frame.
    """

    def __init__(self, part: Part, rate: int, hop: float):
        self._part, self.rate = part, rate
        tone = 0.1 * np.sin(2 * np.pi * 440 / rate * np.arange(TRIAL * rate)).astype(np.float32)
        frames = self.of(tone, f"{TRIAL} s of a tone")
        self.width = int(frames.shape[1])
        if abs(len(frames) * hop / TRIAL - 1) > 0.1:  # a window at the end may be missing
            raise SettingsError(
                [
                    f"features = {part} makes {len(frames)} frames of {TRIAL} s, one in {TRIAL / len(frames):.3g} s, but hop = "
                    f"{hop:g}, by which the times of words are computed: set hop = {TRIAL / len(frames):.3g}."
                ]
            )

    def of(self, wave: Array, name: str = "a recording") -> Array:
        """The frames ``(time, width)`` of one sound ``(n,)``."""
        return own_frames(self._part, name, wave, self.rate)


def of_vectors(features: Any) -> Callable[[Array, str], Array] | None:
    """The setting ``features`` of a classifier as a function of an array and its name; None where there is none."""
    if not isinstance(features, Part):
        return None
    return lambda x, name: own_frames(features, name, x)
