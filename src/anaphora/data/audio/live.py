"""Sound piece by piece: from a file at its own pace, from a pipe, or from a microphone."""

from __future__ import annotations

import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np

from anaphora.data.audio.files import Wave, read_audio
from anaphora.errors import DataError

PIECE = 0.1
"""Seconds of one piece."""
FORMATS = {"s16": "<i2", "f32": "<f4", "s32": "<i4", "u8": "u1"}
"""What a raw sample may be, one channel of it."""
_HEAD = 1 << 16  # bytes in which the head of a WAV file must end
_ENDLESS = 0x7FFF0000  # bytes of samples
_TEXT = 64  # bytes that tell a text
_OTHERS = {
    b"fLaC": "a FLAC file",
    b"OggS": "an OGG file",
    b"ID3": "an MP3 file",
    b"ftyp": "an MP4 file",
    b"RF64": "a WAV file of 64 bits",
    b"RIFX": "a WAV file of another byte order",
    b"FORM": "an AIFF file",
    b"\x1aE\xdf\xa3": "a Matroska or WebM file",
}
"""First bytes of files that are not raw samples."""


@dataclass(frozen=True)
class Live:
    """Sound that is arriving: its rate in samples per second, and its pieces ``(n,)`` from −1 to 1."""

    rate: int
    pieces: Iterator[Wave]


def of_file(path: str | Path, *, real_time: bool = False) -> Live:
    """A file, as fast as it is read, or no faster than it would be spoken."""
    samples, rate = read_audio(path)
    return Live(rate, _cut(samples, rate, real_time))


def _cut(samples: Wave, rate: int, real_time: bool) -> Iterator[Wave]:
    size = max(1, round(PIECE * rate))
    began = time.monotonic()
    for at in range(0, len(samples), size):
        piece = samples[at : at + size]
        if real_time:
            time.sleep(max(0.0, began + (at + len(piece)) / rate - time.monotonic()))
        yield piece


def of_stream(stream: BinaryIO, *, rate: int, kind: str) -> Live:
    """What a program writes to a pipe: a WAV file whose end is not known yet, or raw samples of one channel at ``rate``.

    stream: open for reading bytes. kind: one of `FORMATS`; both are what the head says where there is one.
    """
    begin = _exactly(stream, 12)
    if begin[:4] == b"RIFF" and begin[8:12] == b"WAVE":
        form, size = _head(stream)
        return Live(form.rate, _decoded(_limited(stream, size), b"", form))
    for magic, what in _OTHERS.items():
        if begin.startswith(magic, 4 if magic == b"ftyp" else 0):
            raise DataError(
                f"the sound is {what}, not WAV nor raw samples; decode it first: `ffmpeg -i FILE -f wav - | anaphora listen RUN -`."
            )
    return Live(
        rate, _decoded(stream, _not_text(stream, begin, kind), _Form(rate, np.dtype(FORMATS[kind]), 1))
    )


@dataclass(frozen=True)
class _Form:
    rate: int
    kind: np.dtype[Any]
    channels: int


def _not_text(stream: BinaryIO, begin: bytes, kind: str) -> bytes:
    """The first bytes of raw samples; an error where they are a text. No sound of more than 8 bits looks like one so long."""
    if kind == "u8" or len(begin) < 12:
        return begin
    begin += _exactly(stream, _TEXT - len(begin))
    if all(32 <= byte < 127 or byte in b"\t\r\n" for byte in begin):
        raise DataError("standard input is a text, not sound; pipe a WAV file or raw samples into it.")
    return begin


def _limited(stream: BinaryIO, size: int) -> BinaryIO:
    """What a head says belongs to the samples: other chunks may follow them. Programs that do not know the end yet write a size near 2³¹ or
    2³², or none."""
    return stream if not size or size >= _ENDLESS else cast(BinaryIO, _Limited(stream, size))


class _Limited:
    def __init__(self, stream: BinaryIO, left: int):
        self._stream, self._left = stream, left

    def read1(self, size: int) -> bytes:
        found = _some(self._stream, min(size, self._left)) if self._left else b""
        self._left -= len(found)
        return found

    read = read1


def _head(stream: BinaryIO) -> tuple[_Form, int]:
    """What the head of a WAV file says of its samples, and of their number of bytes; the next byte of ``stream`` is the first sample's."""
    form, read = None, 12
    while True:
        chunk = _exactly(stream, 8)
        if len(chunk) < 8:
            raise DataError("the sound ends inside its head; give a whole WAV file, or raw samples.")
        name, size = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"data":
            break
        read += 8 + size
        if read > _HEAD:
            raise DataError("the head of the WAV file does not end; give another file, or raw samples.")
        content = _exactly(stream, size + size % 2)
        if name == b"fmt " and len(content) >= 16:
            tag, channels, rate, _, _, bits = struct.unpack("<HHIIHH", content[:16])
            form = _form(tag, channels, rate, bits, content)
    if form is None:
        raise DataError(
            "the head of the WAV file does not say what its samples are; give another file, or raw samples."
        )
    return form, size


def _form(tag: int, channels: int, rate: int, bits: int, content: bytes) -> _Form:
    if tag == 0xFFFE and len(content) >= 26:  # extensible: the real tag stands further on
        tag = struct.unpack("<H", content[24:26])[0]
    names = {(1, 8): "u8", (1, 16): "s16", (1, 32): "s32", (3, 32): "f32"}
    if (tag, bits) not in names or not 1 <= channels <= 64 or not 1000 <= rate <= 384_000:
        raise DataError(
            f"the head of the WAV file asks for {channels} channels of {bits} bits (kind {tag}) at {rate} Hz, which is not read "
            "from a pipe; give 16 bits, such as `arecord -f S16_LE`."
        )
    return _Form(rate, np.dtype(FORMATS[names[tag, bits]]), channels)


def _decoded(stream: BinaryIO, begin: bytes, form: _Form) -> Iterator[Wave]:
    each = form.kind.itemsize * form.channels
    size = max(1, round(PIECE * form.rate)) * each
    held = begin
    while True:
        more = _some(stream, size)
        held += more
        whole = len(held) // each * each
        content, held = held[:whole], held[whole:]
        if content:
            yield _samples(content, form)
        if not more:
            return


def _samples(content: bytes, form: _Form) -> Wave:
    found = np.frombuffer(content, form.kind).astype(np.float32)
    if form.kind.kind == "i":
        found = found / np.float32(2 ** (8 * form.kind.itemsize - 1))
    elif form.kind.kind == "u":
        found = (found - 128) / np.float32(128)
    elif not np.isfinite(found).all():
        raise DataError("a sample is not a finite number; give numbers from −1 to 1.")
    mixed: Wave = found if form.channels == 1 else found.reshape(-1, form.channels).mean(1)
    return mixed


def _some(stream: BinaryIO, size: int) -> bytes:
    """What has arrived, up to ``size`` bytes; nothing at the end."""
    read = getattr(stream, "read1", stream.read)
    found: bytes = read(size)
    return found


def _exactly(stream: BinaryIO, size: int) -> bytes:
    """``size`` bytes, fewer only at the end."""
    found = b""
    while len(found) < size and (more := _some(stream, size - len(found))):
        found += more
    return found


def of_microphone(rate: int) -> Live:
    """The default microphone, until the program is stopped."""
    try:
        import sounddevice  # type: ignore[import-not-found, import-untyped, unused-ignore]
    except (ImportError, OSError):
        raise DataError(
            "a microphone needs the package sounddevice; install it with `pip install sounddevice`, or pipe sound in: "
            "`arecord -f S16_LE -r 16000 | anaphora listen RUN -`."
        ) from None

    def pieces() -> Iterator[Wave]:
        try:
            with sounddevice.InputStream(rate, channels=1, dtype="float32") as stream:
                while True:
                    yield stream.read(round(PIECE * rate))[0][:, 0].copy()
        except sounddevice.PortAudioError as error:
            raise DataError(
                f"the microphone cannot be read at {rate} Hz ({str(error).rstrip('.')}); connect one, or choose another --rate."
            ) from None

    return Live(rate, pieces())
