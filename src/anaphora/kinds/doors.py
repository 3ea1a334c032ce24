"""The ways in from outside: JSON, files and tensors. No text of a client is ever taken for the name of a file.

Python's own way in is a method of its own (`InputKind.from_python`), so that a value from Python, which may name a file, and one from a
client, which may not, never meet.
"""

from __future__ import annotations

import base64
import binascii
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, NamedTuple

import numpy as np

from anaphora.data.pictures import read_picture
from anaphora.errors import DataError
from anaphora.files.arrays import load_npy
from anaphora.files.writing import scratch_folder, write_new

UNLIMITED = 1 << 62
INPUTS, LENGTHS, TEXT = "inputs", "lengths", "BYTES"
"""The tensor of the inputs, that of their lengths, and the datatype of texts, as the Open Inference Protocol calls it."""
Numbers = np.ndarray[Any, Any]
Tensors = Mapping[str, Numbers]
"""By name; texts (and files, as bytes) are objects."""


@dataclass(frozen=True)
class Bounds:
    """How much of one input is let in, looked at before anything is unpacked or cut into symbols."""

    characters: int = UNLIMITED
    pixels: int = UNLIMITED
    seconds: float = UNLIMITED
    blank: bool = True
    """Whether a text may have nothing in it."""

    def text(self, text: str, where: str) -> str:
        """Return the text, where it has no more characters than it may have."""
        self.check(len(text), where)
        return text

    def check(self, characters: int, where: str) -> None:
        """Raise a `DataError` where so many characters are more than are let in."""
        if characters > self.characters:
            raise DataError(
                f"{where} has {characters:,} characters, and at most {self.characters:,} are read; make it shorter."
            )


class Spec(NamedTuple):
    """A tensor as the metadata of a run name it; −1 is any size."""

    name: str
    datatype: str
    shape: list[int]


class Doors(ABC):
    """How one input comes in from outside; every door gives what ``predict`` takes, or a `DataError` that begins with ``where``."""

    name: ClassVar[str]
    unit: ClassVar[str] = "steps"
    textual: ClassVar[bool] = False
    """Whether an input is a text, or words."""
    schema: ClassVar[Any]
    """The type of one input as JSON."""

    @abstractmethod
    def from_json(self, given: Any, where: str, bounds: Bounds) -> Any:
        """Return an input that came as JSON."""

    @abstractmethod
    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> Any:
        """Return an input out of the content of a file."""

    @property
    def tensors(self) -> list[Spec]:
        """The tensors that `from_tensors` takes."""
        if self.textual:
            return [Spec(INPUTS, TEXT, [-1])]
        return [Spec(INPUTS, "FP32", [-1, -1, -1]), Spec(LENGTHS, "INT64", [-1])]

    def from_tensors(self, tensors: Tensors, bounds: Bounds) -> list[Any]:
        """Return the inputs of a request that came as tensors."""
        rows = cut_rows(rows_of(tensors, INPUTS), tensors)
        return [self.from_row(row, f"input {i}", bounds) for i, row in enumerate(rows, start=1)]

    def from_row(self, row: Any, where: str, bounds: Bounds) -> Any:
        """Return an input that was a row of a tensor: a text, the bytes of a file, or numbers."""
        if isinstance(row, bytes):
            return self.from_bytes(row, where, bounds)
        if isinstance(row, str) != self.textual:
            raise DataError(
                f"{where} is {'a text' if isinstance(row, str) else 'numbers'}, and this run reads {self.name}."
            )
        return self.from_json(row, where, bounds)

    @abstractmethod
    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> Any:
        """Return some input of about this length, of which at most ``most`` is read."""

    def length(self, x: Any) -> int:
        """Return how long an input is, in ``unit``."""
        return len(x)


def rows_of(tensors: Tensors, name: str) -> list[Any]:
    """Return the rows of a tensor: texts (or files, as bytes), or arrays."""
    if name not in tensors:
        raise DataError(f"the input {name!r} is missing.")
    held = tensors[name]
    if held.dtype.kind == "O":
        found: list[Any] = held.ravel().tolist()
        return found
    if held.ndim < 2:
        raise DataError(
            f"the input {name!r} has the shape {list(held.shape)}; its first axis counts the inputs."
        )
    return list(held)


def cut_rows(rows: list[Any], tensors: Tensors) -> list[Any]:
    """Return the rows, each as long as the tensor of lengths says."""
    if LENGTHS not in tensors:
        return rows
    lengths = tensors[LENGTHS].ravel()
    if lengths.dtype.kind not in "iu" or len(lengths) != len(rows):
        raise DataError(
            f"there are {len(rows)} inputs and {len(lengths)} lengths; send as many whole numbers."
        )
    if not all(isinstance(x, np.ndarray) and 1 <= n <= len(x) for x, n in zip(rows, lengths, strict=True)):
        raise DataError("lengths must be from 1 to the second axis of inputs.")
    return [row[:length] for row, length in zip(rows, lengths, strict=True)]


def numbers_of(given: Any, where: str, *, missing: bool = False) -> Numbers:
    """Return an array of numbers, never of texts; with ``missing`` null is NaN."""
    if isinstance(given, np.ndarray):
        return given
    if not isinstance(given, list):
        raise DataError(f"{where} is not a list of numbers; give numbers in brackets.")
    try:
        x = np.asarray(given, dtype=np.float64 if missing else None)
    except (TypeError, ValueError, OverflowError):
        raise DataError(f"{where} does not hold numbers in equal rows; give one row per step.") from None
    if x.dtype.kind not in "iuf" or 0 in x.shape:
        raise DataError(f"{where} does not hold numbers in equal rows; give one row per step.")
    return x


def content_of(given: dict[str, Any], where: str) -> bytes:
    """Return the bytes of a file that came in base64."""
    text = given.get("base64")
    if given.keys() != {"base64"} or not isinstance(text, str):
        raise DataError(f'{where} is not a file; give {{"base64": "…"}}.')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{where} is not base64; encode the bytes of the file.") from None


def from_file(content: bytes, where: str, read: Callable[[Path], Any]) -> Any:
    """Return what ``read`` makes of a file with this content; its errors name the input instead of the file."""
    with scratch_folder() as folder:
        path = Path(folder) / "input"
        write_new(path, content)
        try:
            return read(path)
        except DataError as error:
            raise DataError(str(error).replace(str(path), where)) from None


def picture_of(content: bytes, where: str, size: tuple[int, int] | None, most: int) -> Numbers:
    """Return the pixels of a picture file."""
    found: Numbers = from_file(content, where, lambda path: read_picture(path, size=size, most=most))
    return found


def array_of(content: bytes, where: str) -> Numbers:
    """Return the numbers of an ``.npy`` file."""

    def read(path: Path) -> Any:
        try:
            return load_npy(path)
        except (OSError, ValueError, EOFError) as error:
            reason = str(error).splitlines()[0] if str(error) else "it ends too early"
            raise DataError(f"{where} is not an .npy file of numbers ({reason}).") from None

    found: Numbers = from_file(content, where, read)
    return found


def drawn(draw: Random, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return numbers as those of training: their mean 0, their spread 1."""
    return np.random.default_rng(draw.getrandbits(32)).normal(size=shape)
