"""Sound files: WAV, FLAC and OGG as one channel of float32, read so that no header is believed."""

from __future__ import annotations

import os
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from anaphora.errors import DataError
from anaphora.files import Refused, streamed

__all__ = ["as_wave", "audio_length", "read_audio"]

Wave = np.ndarray[Any, np.dtype[np.float32]]
"""One channel of samples, (n,), in −1 … 1 for files of integers."""
AUDIO_ENDINGS = (".wav", ".flac", ".ogg")
LARGEST = 1 << 28
"""Most samples of one channel that are read from a file: a gibibyte as float32, 4½ hours at 16 kHz."""
LOUDEST = 1e12
"""Largest sample that is believed; the energy of much larger ones is no number."""
LOUD = 100.0
"""Largest sample of floats that are taken for sound from −1 to 1."""
FASTEST = 1 << 20
"""Highest rate in Hz that is believed."""
_STRETCH, _SMALL = 100, 1 << 24
"""How many times as many samples a file may become at another rate, if those are more than a few."""
_WHOLE = {"uint8": (128, 1 << 7), "int8": (0, 1 << 7), "int16": (0, 1 << 15), "int32": (0, 1 << 31)}
"""The middle and the greatest value of whole numbers in sound."""
_BEGINNINGS = (b"RIFF", b"RIFX", b"RF64", b"fLaC")
_BLOCK = 1 << 20
_STREAMED = 0x7FFF_0000
"""A WAV chunk that claims more was written to a pipe, where its length was not known: read to the end."""

_OGG_PAGE = 65_307  # bytes of the largest page


def read_audio(path: str | Path, *, rate: int | None = None) -> tuple[Wave, int]:
    """The sound of a file, its channels averaged, at ``rate`` (None: its own): samples (n,) and their rate in Hz.

    Memory is bounded by what the file really holds, and that by `LARGEST`. A `DataError` says what is wrong with a
    file that is missing, no sound, cut off, empty, or not made of numbers.

    ``path``: of the file.

    >>> import wave
    >>> with wave.open("tone.wav", "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     file.writeframes(bytes(1600))
    >>> from anaphora.data.audio.files import read_audio
    >>> samples, rate = read_audio("tone.wav", rate=16000)
    >>> samples.shape, rate
    ((1600,), 16000)
    """
    with _opened(path) as file:
        frames, own = _length(path, file)
        wave = _mono(path, file, frames)
    _check_samples(str(path), wave)
    if rate is None or rate == own:
        return wave, own
    check_stretch(str(path), frames, own, rate)
    import torch  # where the rate is the model's own, sound is read without it

    from anaphora.data.audio.resample import resample

    return resample(torch.from_numpy(wave), own, rate).numpy(), rate


def as_wave(samples: Any, name: str) -> Wave:
    """The ``samples`` (n,) of one channel from Python, as float32 (n,).

    Arrays of whole numbers with 8, 16 or 32 bits, as other libraries read them from WAV files, become −1 … 1 as those of files do;
    other numbers stay as they are, with a warning where they are far outside of it.

    Raises a `DataError`, which begins with ``name``, for several channels, and for samples that are no numbers or not finite.

    >>> from anaphora.data.audio.files import as_wave
    >>> as_wave(np.array([0, 16384, -32768], np.int16), "recording 1").tolist()
    [0.0, 0.5, -1.0]
    """
    x = np.asarray(samples)
    if x.ndim != 1 or x.dtype.kind not in "buif":
        what = f"the shape {x.shape}" if x.dtype.kind in "buif" else "no numbers"
        raise DataError(f"{name} has {what}; give one channel of samples (n,), such as the mean of several.")
    middle, full = _WHOLE.get(x.dtype.name, (0, 1)) if hasattr(samples, "dtype") else (0, 1)
    with np.errstate(over="ignore"):  # what becomes infinite is refused below
        wave = (
            x.astype(np.float32) if full == 1 else ((x.astype(np.float64) - middle) / full).astype(np.float32)
        )
    _check_samples(name, wave)
    if (loudest := float(np.abs(wave).max(initial=0.0))) > LOUD:
        warnings.warn(
            f"{name} holds samples up to {loudest:.0f}, where sound is from −1 to 1; divide those of 16 bits by 32768",
            stacklevel=2,
        )
    return wave


def check_stretch(name: str, samples: int, own: int, rate: int) -> None:
    """A `DataError` for a sound that would become far too long at another rate."""
    if samples * rate > min(LARGEST, max(_SMALL, _STRETCH * samples)) * own:
        raise DataError(f"{name} would be too long at {rate} Hz; cut it, or correct its rate of {own} Hz.")


def _check_samples(name: str, wave: Wave) -> None:
    if not np.isfinite(wave).all():
        raise DataError(f"{name} holds NaN or infinity; record or convert it again.")
    loudest = float(np.abs(wave).max(initial=0.0))
    if loudest > LOUDEST:
        raise DataError(
            f"{name} holds samples of {loudest:.0e}, where sound is from −1 to 1; correct its scale."
        )


def audio_length(path: str | Path) -> tuple[int, int]:
    """How many samples (per channel) a file holds, and their rate in Hz: from its head, and whether its end is there.

    ``path``: of the file. A `DataError` where it is missing, no sound or cut off, or holds floats that are no numbers.

    >>> import wave
    >>> with wave.open("tone.wav", "wb") as file:
    ...     file.setparams((1, 2, 8000, 0, "NONE", ""))
    ...     file.writeframes(bytes(1600))
    >>> from anaphora.data.audio.files import audio_length
    >>> audio_length("tone.wav")
    (800, 8000)
    """
    with _opened(path) as file:
        frames, rate = _length(path, file)
        if file.format != "WAV":
            # A WAV file's samples are counted by its size; a compressed file has to show its last one.
            try:
                file.seek(frames - 1)
                whole = len(file.read(1)) == 1
            except RuntimeError:
                whole = False
            if not whole:
                raise _cut_off(path)
        elif file.subtype in ("FLOAT", "DOUBLE"):  # which alone can hold NaN
            _check_samples(str(path), _mono(path, file, frames))
    return frames, rate


def sound_files(folder: str | Path) -> list[Path]:
    """All sound files in a folder and the folders in it, by name, or a `DataError` when there is none."""
    found = sorted(path for path in Path(folder).rglob("*") if path.suffix.lower() in AUDIO_ENDINGS)
    if not found:
        raise DataError(f"{folder} holds no sound; put files with {', '.join(AUDIO_ENDINGS)} there.")
    return found


@contextmanager
def _opened(path: str | Path) -> Iterator[Any]:
    try:
        import soundfile
    except (ImportError, OSError):  # OSError: its library is missing
        raise DataError(
            f"{path}: reading sound needs soundfile; install it with `pip install anaphora[audio]`."
        ) from None
    try:
        with streamed(path) as raw:
            _check_head(path, raw)
            os.lseek(
                raw.fileno(), 0, os.SEEK_SET
            )  # behind the buffer of `raw`, which the library does not see
            with soundfile.SoundFile(raw.fileno(), closefd=False) as file:
                yield file
    except Refused as error:
        raise DataError(f"{path} is not a file ({error.strerror}); give a WAV, FLAC or OGG file.") from None
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file; check the path.") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}; check the path.") from None
    except soundfile.LibsndfileError as error:
        reason = error.error_string.strip().rstrip(".")
        raise DataError(f"{path} cannot be read as sound ({reason}); give a WAV, FLAC or OGG file.") from None


def _length(path: str | Path, file: Any) -> tuple[int, int]:
    frames, rate = file.frames, file.samplerate
    if frames < 1:
        raise DataError(f"{path} holds no sound; record it again or leave it out.")
    if rate > FASTEST:
        raise DataError(f"{path} says that it has {rate} samples a second; correct its rate.")
    if frames > LARGEST:
        raise DataError(
            f"{path} says that it holds {frames} samples, and more than {LARGEST} are refused; cut it."
        )
    return frames, rate


def _mono(path: str | Path, file: Any, frames: int) -> Wave:
    """All samples, block by block, so that many channels are never held at once."""
    blocks, found = [], 0
    try:
        while len(block := file.read(max(1, _BLOCK // file.channels), dtype="float32", always_2d=True)):
            blocks.append(block[:, 0].copy() if file.channels == 1 else block.mean(axis=1))
            found += len(block)
            if found > LARGEST:
                break
    except RuntimeError:
        raise _cut_off(path) from None
    if found != frames:
        raise _cut_off(path)
    return np.concatenate(blocks)


def _cut_off(path: str | Path) -> DataError:
    return DataError(f"{path} is damaged or was cut off: it does not hold what it promises; make it again.")


def _check_head(path: str | Path, file: BinaryIO) -> None:
    """A `DataError` for a file whose head or end cannot be true, in words clearer than the library's."""
    size = os.fstat(file.fileno()).st_size
    if size == 0:
        raise DataError(f"{path} is empty; give a WAV, FLAC or OGG file.")
    head = file.read(12)
    if head[:4] == b"RIFF" and head[8:] == b"WAVE":
        _check_wav(path, file, size)
    elif head[:4] == b"OggS":
        _check_ogg(path, file, size)
    elif head[:4] not in _BEGINNINGS:
        raise DataError(f"{path} is not a sound file; give a WAV, FLAC or OGG file.")


def _check_wav(path: str | Path, file: BinaryIO, size: int) -> None:
    while len(chunk := file.read(8)) == 8:
        name, claimed = chunk[:4], struct.unpack("<I", chunk[4:])[0]
        if name == b"fmt " and claimed >= 16 and len(form := file.read(16)) == 16:
            _, channels, rate, *_ = struct.unpack("<HHIIHH", form)
            if channels == 0:
                raise DataError(f"{path} says that it has no channels; record or convert it again.")
            if rate == 0:
                raise DataError(f"{path} says that it has 0 samples a second; correct its rate.")
            claimed -= 16
        elif name == b"data":
            if size - file.tell() < claimed < _STREAMED:
                raise _cut_off(path)
            return
        file.seek(claimed + claimed % 2, os.SEEK_CUR)


def _check_ogg(path: str | Path, file: BinaryIO, size: int) -> None:
    """The last page must be whole and say that it is the last."""
    file.seek(max(size - _OGG_PAGE, 0))
    tail = file.read()
    page = tail[tail.rfind(b"OggS") :]
    segments = page[27 : 27 + page[26]] if len(page) > 26 else b""
    if not segments or not page[5] & 4 or len(page) < 27 + len(segments) + sum(segments):
        raise _cut_off(path)
