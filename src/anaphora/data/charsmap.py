"""The rules by which a model of sentencepiece rewrites characters: a trie of what is replaced, and a table of replacements."""

from __future__ import annotations

from array import array
from functools import cached_property

_VALUE = (1 << 31) - 1
_LABEL = (1 << 31) | 0xFF


class CharsMap:
    """``data``: the size of a trie of Darts, the trie, and texts that end in a zero byte, as the files hold them.

    At every place the longest known beginning is replaced; a character without one stays. A ValueError where ``data`` are no
    such rules.
    """

    def __init__(self, data: bytes):
        size = int.from_bytes(data[:4], "little")
        if len(data) < 8 or size % 4 or 4 + size > len(data):
            raise ValueError("its rules for characters are cut off")
        self._units = array("I", data[4 : 4 + size])
        self._texts = data[4 + size :]

    def __call__(self, text: str) -> str:
        """``text`` rewritten."""
        if text.isascii() and self._ascii is not None:
            return text.translate(self._ascii)
        given, at, found = text.encode("utf-8"), 0, bytearray()
        while at < len(given):
            length, value = self._longest(given, at)
            if length:
                found += self._replacement(value)
            else:
                length = _width(given[at])
                found += given[at : at + length]
            at += length
        return found.decode("utf-8", errors="replace")

    def _longest(self, given: bytes, at: int) -> tuple[int, int]:
        """How many bytes from ``at`` on are known together, and where their replacement begins; 0 for none."""
        units, best = self._units, (0, 0)
        node = _offset(units[0])
        for length, byte in enumerate(given[at : at + 64], 1):
            node ^= byte
            if node >= len(units) or units[node] & _LABEL != byte:
                break
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(units):
                best = length, units[node] & _VALUE
        return best

    def _replacement(self, value: int) -> bytes:
        end = self._texts.find(b"\0", value)
        if end < 0:
            raise ValueError("its rules for characters are damaged")
        return self._texts[value:end]

    @cached_property
    def _ascii(self) -> dict[int, str] | None:
        """What becomes of each ASCII character, where that does not depend on the one after it."""
        found: dict[int, str] = {}
        for one in range(128):
            for other in range(128):
                if self._longest(bytes((one, other)), 0)[0] == 2:
                    return None
            length, value = self._longest(bytes((one,)), 0)
            if length:
                found[one] = self._replacement(value).decode("utf-8")
        return found


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


def _width(first: int) -> int:
    """Bytes of the character that begins with this one."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
