"""Pictures as PNG files, written with the standard library alone."""

from __future__ import annotations

import struct
import zlib
from typing import Any

import numpy as np

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_TRUE_COLOUR = 2


def png_bytes(pixels: np.ndarray[Any, np.dtype[np.uint8]]) -> bytes:
    """The bytes of a PNG file of ``pixels`` ``(height, width, 3)``, red, green and blue from 0 to 255."""
    height, width, channels = pixels.shape
    if channels != 3 or pixels.dtype != np.uint8:
        raise ValueError(f"pixels must be uint8 (height, width, 3), not {pixels.dtype} {pixels.shape}")
    # Every line begins with the number of its filter; 0 leaves the bytes as they are.
    lines = np.zeros((height, 1 + 3 * width), dtype=np.uint8)
    lines[:, 1:] = pixels.reshape(height, -1)
    header = struct.pack(">IIBBBBB", width, height, 8, _TRUE_COLOUR, 0, 0, 0)
    data = zlib.compress(lines.tobytes(), 6)
    return _SIGNATURE + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
