"""Where a text ends because of what it says."""

from __future__ import annotations

from collections.abc import Sequence


class Stops:
    """Holds back what may be the beginning of a stop string, until it is one or is not.

    >>> stops = Stops(["END"])
    >>> [stops.push("a thE"), stops.push(" En"), stops.push("d."), stops.end()]
    ['a th', 'E En', 'd.', '']
    """

    def __init__(self, strings: Sequence[str]):
        self._strings, self._held = [text for text in strings if text], ""
        self.hit = False
        """Whether one of the strings was found; nothing comes after it."""

    def push(self, text: str) -> str:
        """More text; as much as is certain to come before any stop string."""
        if self.hit:
            return ""
        text = self._held + text
        places = [place for string in self._strings if (place := text.find(string)) >= 0]
        if places:
            self.hit, self._held = True, ""
            return text[: min(places)]
        keep = max((_overlap(text, string) for string in self._strings), default=0)
        self._held = text[len(text) - keep :]
        return text[: len(text) - keep]

    def end(self) -> str:
        """What was held back, at the end of the text."""
        text, self._held = self._held, ""
        return text


def _overlap(text: str, string: str) -> int:
    """How many characters at the end of ``text`` begin ``string``."""
    longest = min(len(text), len(string) - 1)
    return next((n for n in range(longest, 0, -1) if string.startswith(text[-n:])), 0)
