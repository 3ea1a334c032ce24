"""How much is taken from one file. Each limit is an environment variable, named in the message that refuses."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass

from anaphora.errors import SettingsError

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_DEFAULT_BYTES = 1 << 34
_DEFAULT_RATIO = 100
SMALL = 1 << 28
"""Bytes that may be unpacked whatever the ratio: real data of many zeros are packed a thousandfold."""
BYTES, RATIO = "ANAPHORA_MAX_BYTES", "ANAPHORA_MAX_RATIO"


@dataclass(frozen=True)
class Limits:
    """``bytes`` of one file in memory or unpacked, and how many times its packed size a file may unpack to."""

    bytes: int
    ratio: int

    def unpacked(self, packed: int) -> int:
        """Most bytes that a file of ``packed`` bytes may unpack to."""
        return min(self.bytes, max(SMALL, self.ratio * packed))

    def excess(self, size: int, packed: int | None = None) -> str | None:
        """A clause that refuses ``size`` bytes (unpacked from ``packed``), or None where they are within the limits."""
        if size > self.bytes:
            return f"it holds {human(size)}, more than the {human(self.bytes)} that are read; split it, or set {BYTES}"
        if packed is not None and size > self.unpacked(packed):
            return (
                f"it unpacks to {human(size)} or more, over {self.ratio} times its size; "
                f"unpack it yourself if you trust it, or set {RATIO}"
            )
        return None


def limits() -> Limits:
    """The limits as the environment sets them: at most 16 GiB, and no more than the machine's memory."""
    return Limits(
        _read(BYTES, min(_DEFAULT_BYTES, _memory())),
        _read(RATIO, _DEFAULT_RATIO),
    )


def human(size: int) -> str:
    """``3221225472`` → ``3.0 GiB``."""
    value, unit = float(size), "bytes"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if value < 1024:
            break
        value, unit = value / 1024, larger
    return f"{value:.0f} bytes" if unit == "bytes" else f"{value:.1f} {unit}"


def _read(name: str, default: int) -> int:
    text = os.environ.get(name, "").upper().replace(" ", "").removesuffix("B").removesuffix("I")
    if not text:
        return default
    unit = text[-1] if text[-1] in _UNITS else ""
    number = text.removesuffix(unit)
    if not (number.isascii() and number.isdigit() and 0 < len(number) < 16):
        raise SettingsError([f"{name}={os.environ[name]!r} is not a number; write {name}=8G, for example."])
    return int(number) * _UNITS[unit]


@functools.cache
def _memory() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return _DEFAULT_BYTES
