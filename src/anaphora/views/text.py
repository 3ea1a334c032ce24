"""Text that is safe to show anywhere: nothing hidden, nothing that steers a terminal or turns a line round."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"  # spelling needs them in Persian, Hindi and many others


def visible(text: str) -> str:
    """`text` with control, direction and other unseen characters spelled out: ESC becomes ␛, U+202E ``\\u202e``."""
    return "".join(char if _is_plain(char) else _spelled(char) for char in text)


def _is_plain(char: str) -> bool:
    return char in _JOINERS or unicodedata.category(char) not in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def _spelled(char: str) -> str:
    code = ord(char)
    if char == "\n":
        return "↵"
    if code < 0x20:
        return chr(0x2400 + code)
    if code == 0x7F:
        return "␡"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def columns(text: str) -> int:
    """How many columns of a terminal `text` takes: East Asian wide characters two, combining marks none."""
    return sum(_columns(char) for char in text)


def _columns(char: str) -> int:
    if unicodedata.combining(char) or char in _JOINERS:
        return 0
    return 2 if unicodedata.east_asian_width(char) in "WF" else 1


def clip(text: str, most: int) -> str:
    """`text` cut to `most` columns, with … where something is missing."""
    if columns(text) <= most:
        return text
    if most <= 0:
        return ""
    kept, used = [], 1
    for char in text:
        used += _columns(char)
        if used > most:
            break
        kept.append(char)
    return "".join(kept) + "…"


def pad(text: str, width: int, *, right: bool = False) -> str:
    """`text` clipped and filled to exactly `width` columns; `right` puts it at the right edge."""
    text = clip(text, width)
    gap = " " * (width - columns(text))
    return gap + text if right else text + gap


def wrap(text: str, width: int) -> list[str]:
    """Lines of at most `width` columns, broken between words."""
    lines: list[str] = []
    for word in text.split():
        word = clip(word, width)
        if lines and columns(lines[-1]) + 1 + columns(word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines


_NARROW = set("iljtfrI.,'|!:;·()[]/ ")
_BROAD = set("mwMWQOGD@%—…▁")


def ems(text: str) -> float:
    """About how wide `text` is in a sans-serif font, in units of the font size; rather too much than too little."""
    total = 0.0
    for char in text:
        if _columns(char) == 2:
            total += 1.0
        elif _columns(char) == 1:
            total += 0.36 if char in _NARROW else 0.9 if char in _BROAD else 0.68 if char.isupper() else 0.6
    return total


def shorten(text: str, most: float) -> str:
    """`text` cut to about `most` ems."""
    if ems(text) <= most:
        return text
    while text and ems(text) > most - 0.9:
        text = text[:-1]
    return text + "…"


def fold(text: str, width: float) -> list[str]:
    """Lines of at most about `width` ems, broken between words."""
    lines: list[str] = []
    for word in visible(text).split():
        if lines and ems(lines[-1] + " " + word) <= width:
            lines[-1] += " " + word
        else:
            lines.append(word)
    return lines
