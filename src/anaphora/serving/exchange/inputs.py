"""One input of each kind, as JSON or as a file. No text of a client is ever taken for the name of a file."""

from __future__ import annotations

import base64
import binascii
import math
import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from anaphora.data.audio.files import audio_length, read_audio
from anaphora.data.audio.recordings_readers import as_item
from anaphora.data.pictures import MOST_PIXELS, as_picture, read_picture
from anaphora.data.sources.arrays import as_sequence
from anaphora.errors import DataError
from anaphora.files.arrays import load_npy
from anaphora.files.writing import scratch_folder, write_new
from anaphora.serving.exchange.types import (
    PictureInput,
    QuestionInput,
    SentenceInput,
    SeriesInput,
    SoundInput,
    TextInput,
    VectorsInput,
)
from anaphora.serving.limits import Limits
from anaphora.web.cost import tokenizer_of

UNLIMITED = 1 << 62
KEPT = 1 << 20
"""Characters of the texts whose length is remembered."""
A_PICTURE = 256
"""What a picture costs, in tokens."""
A_SECOND = 50
"""What a second of sound costs."""


class Reader(ABC):
    """How a run reads one input.

    ``most``: the longest input that the model reads whole, in ``unit``. The server's own bounds are looked at before anything is
    unpacked or cut into symbols: ``characters`` of a text, ``pixels`` of a picture, ``seconds`` of sound.
    """

    kind: str
    unit = "steps"
    most: int = UNLIMITED
    characters = pixels = UNLIMITED
    seconds: float = UNLIMITED
    json: Any
    """The type of one input as JSON."""

    @abstractmethod
    def read(self, given: Any, where: str) -> Any:
        """An input as ``predict`` takes it; a `DataError` that begins with ``where``."""

    @abstractmethod
    def upload(self, content: bytes, where: str) -> Any:
        """An input out of the content of a file."""

    @abstractmethod
    def example(self, draw: Random, length: int) -> Any:
        """Some input of about this length."""

    def length(self, x: Any) -> int:
        """How long an input is, in ``unit``."""
        return len(x)

    def bounded(self, text: str, where: str) -> str:
        """The text, where it has no more characters than one may have."""
        if len(text) > self.characters:
            raise DataError(
                f"{where} has {len(text):,} characters, and at most {self.characters:,} are read; make it shorter."
            )
        return text


class _Lengths:
    """The lengths of the texts that were read last: whether one is too long, what it costs, and which ones are equally long is
    asked one after the other. Texts above `KEPT` characters together are forgotten, and long ones never kept."""

    def __init__(self, symbols: Callable[[str], int]):
        self._symbols = symbols
        self._known: OrderedDict[str, int] = OrderedDict()
        self._characters = 0
        self._changing = threading.Lock()

    def __call__(self, text: str) -> int:
        found = self._known.get(text)
        if found is None:
            found = self._symbols(text)
            if len(text) <= KEPT // 8:
                with self._changing:
                    self._keep(text, found)
        return found

    def _keep(self, text: str, length: int) -> None:
        if text not in self._known:
            self._known[text] = length
            self._characters += len(text)
            while self._characters > KEPT:
                self._characters -= len(self._known.popitem(last=False)[0])


class Text(Reader):
    """A text."""

    kind, unit = "text", "symbols"
    json = TextInput

    def __init__(
        self,
        symbols: Callable[[str], int],
        most: int = UNLIMITED,
        *,
        empty: bool = True,
        words: Sequence[str] = "abcdefgh",
    ):
        self._symbols = _Lengths(symbols)
        self.most, self._empty, self._words = most, empty, words

    def example(self, draw: Random, length: int) -> str:
        return " ".join(draw.choices(self._words, k=max(1, min(length, self.most // 4))))

    def read(self, given: Any, where: str) -> str:
        if not isinstance(given, str):
            raise DataError(f"{where} is not a text; give texts in quotes.")
        if not self._empty and not given.strip():
            raise DataError(f"{where} is empty; give at least one symbol.")
        return self.bounded(given, where)

    def upload(self, content: bytes, where: str) -> str:
        try:
            text = content.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where} is not UTF-8 text (byte {error.start + 1}); save it as UTF-8."
            ) from None
        return self.read(text.removesuffix("\n").removesuffix("\r"), where)

    def length(self, x: str) -> int:
        return self._symbols(x)


class Words(Reader):
    """A sentence: a text with spaces, or its words."""

    kind, unit = "words", "words"
    json = SentenceInput

    def example(self, draw: Random, length: int) -> list[str]:
        return ["".join(draw.choices("aeinorst", k=draw.randint(1, 8))) for _ in range(length)]

    def read(self, given: Any, where: str) -> list[str]:
        if isinstance(given, str):
            return self.bounded(given, where).split()
        if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
            raise DataError(f"{where} is not a sentence; give a text, or a list of words.")
        characters = len(given) + sum(map(len, given))
        if characters > self.characters:
            raise DataError(
                f"{where} has {characters:,} characters, and at most {self.characters:,} are read; make it shorter."
            )
        return given

    def upload(self, content: bytes, where: str) -> list[str]:
        return self.read(Text(len).upload(content, where), where)


class Vectors(Reader):
    """Numbers ``(time, features)``, or a picture ``(rows, columns, channels)`` for models of pictures as arrays."""

    kind = "vectors"
    json = VectorsInput

    def __init__(self, scan: str, shape: tuple[int, ...], most: int = UNLIMITED, *, pixels: bool = False):
        """``shape``: of a step ``(features,)``, or of a whole picture; ``pixels``: it holds whole numbers up to 255."""
        self._scan, self._shape, self.most, self._pixels = scan, shape, most, pixels

    def example(self, draw: Random, length: int) -> Any:
        shape = self._shape if len(self._shape) > 1 else (min(length, self.most), *self._shape)
        found = _drawn(draw, shape)
        return (np.rint(255 * np.abs(np.tanh(found))) if self._pixels else found).astype(np.float32)

    def read(self, given: Any, where: str) -> Any:
        return as_sequence(_numbers(given, where), where, scan=self._scan)

    def upload(self, content: bytes, where: str) -> Any:
        if content.startswith(b"\x93NUMPY"):
            return as_sequence(_array(content, where), where, scan=self._scan)
        return as_sequence(_seen(content, where, None, self.pixels), where, scan=self._scan)


class Picture(Reader):
    """Pixels ``(height, width, 3)``, or the bytes of a picture file."""

    kind = "picture"
    json = PictureInput

    def __init__(self, size: tuple[int, int]):
        self._size = size

    def example(self, draw: Random, length: int) -> Any:
        return np.uint8(255 * np.abs(np.tanh(_drawn(draw, (*self._size, 3)))))

    def read(self, given: Any, where: str) -> Any:
        if isinstance(given, dict):
            return self.upload(_content(given, where), where)
        return as_picture(_numbers(given, where), where, size=self._size)

    def upload(self, content: bytes, where: str) -> Any:
        return _seen(content, where, self._size, self.pixels)

    def length(self, x: Any) -> int:
        return A_PICTURE


class Question(Reader):
    """A picture with a question about it, and answers to choose among."""

    kind = "question"
    unit = "symbols"
    json = QuestionInput

    def __init__(self, picture: Picture, question: Text):
        self.picture, self.question = picture, question
        self.most = question.most

    def example(self, draw: Random, length: int) -> tuple[Any, ...]:
        return self.picture.example(draw, length), self.question.example(draw, min(length, 8))

    def read(self, given: Any, where: str) -> tuple[Any, ...]:
        if not isinstance(given, dict) or not {"picture", "question"} <= given.keys():
            raise DataError(f'{where} is not a question; give {{"picture": …, "question": "…"}}.')
        if unknown := given.keys() - {"picture", "question", "choices"}:
            raise DataError(f"{where} has {min(unknown)!r}, which a question does not have; leave it out.")
        return self.joined(
            self.picture.read(given["picture"], where), given["question"], given.get("choices"), where
        )

    def joined(self, picture: Any, question: Any, choices: Any, where: str) -> tuple[Any, ...]:
        """The picture with its question and, where there are any, choices."""
        asked = self.question.read(question, f"the question of {where}")
        if choices is None:
            return picture, asked
        if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
            raise DataError(
                f"{where} has choices that are not a list of texts; give the answers to choose among."
            )
        self.question.bounded("\n".join(choices), f"choices of {where}")
        return picture, asked, choices

    def upload(self, content: bytes, where: str) -> Any:
        raise DataError(
            f"{where} is a picture without a question; send the picture and a field question as a form."
        )

    def length(self, x: Any) -> int:
        return self.question.length(x[1])


class Sound(Reader):
    """Samples at the rate of training or with their own, or the bytes of a sound file."""

    kind, unit = "sound", "fiftieths of a second"
    json = SoundInput

    def __init__(self, rate: int):
        self.rate = rate

    def example(self, draw: Random, length: int) -> tuple[Any, int]:
        return 0.1 * _drawn(draw, (self.rate // 2 + length * self.rate // 100,)), self.rate

    def read(self, given: Any, where: str) -> tuple[Any, int]:
        if isinstance(given, dict) and "base64" in given:
            return self.upload(_content(given, where), where)
        rate: Any = self.rate
        if isinstance(given, dict):
            if given.keys() != {"samples", "rate"}:
                raise DataError(f'{where} is not a recording; give {{"samples": […], "rate": {self.rate}}}.')
            given, rate = given["samples"], given["rate"]
        return self.sampled(given, rate, where)

    def sampled(self, given: Any, rate: Any, where: str) -> tuple[Any, int]:
        """Samples of one channel with their rate."""
        samples = _numbers(given, where)
        if np.ndim(samples) != 1:
            raise DataError(
                f"{where} has {np.ndim(samples)} axes; give the samples of one channel as a list."
            )
        if isinstance(rate, bool) or not isinstance(rate, int):
            raise DataError(f"{where} has the rate {rate!r}; give samples a second, a whole number.")
        as_item((samples, rate), where, self.rate)  # a rate out of bounds and NaN are errors
        return samples, rate

    def upload(self, content: bytes, where: str) -> tuple[Any, int]:
        def read(path: Path) -> tuple[Any, int]:
            samples, rate = audio_length(path)  # by its head and its end: nothing is unpacked yet
            if samples > self.seconds * rate:
                raise DataError(
                    f"{path} has {samples / rate:,.0f} seconds, and at most {self.seconds:,.0f} are heard; cut it."
                )
            return read_audio(path)

        samples, rate = _from_file(content, where, read)
        return samples, rate

    def length(self, x: tuple[Any, int]) -> int:
        return math.ceil(A_SECOND * len(x[0]) / x[1])


class Series(Reader):
    """Numbers ``(time, columns)``; null where a value is not known."""

    kind = "series"
    json = SeriesInput

    def __init__(self, columns: Sequence[int], least: int):
        """``columns``: how many a series may have; ``least``: steps that are enough for a forecast."""
        self._least = least
        self._columns = columns

    def example(self, draw: Random, length: int) -> Any:
        return _drawn(draw, (self._least + length, self._columns[-1]))

    def read(self, given: Any, where: str) -> Any:
        x = _numbers(given, where, missing=True)
        if x.ndim not in (1, 2) or 0 in x.shape:
            raise DataError(
                f"{where} has the shape {x.shape}; a series has (time, columns) with at least one step."
            )
        x = x.reshape(-1, 1) if x.ndim == 1 else x
        if x.shape[1] not in self._columns:
            known = " or ".join(map(str, self._columns))
            raise DataError(
                f"{where} has {x.shape[1]} columns, and the model was trained on {known}; give the same."
            )
        return x

    def upload(self, content: bytes, where: str) -> Any:
        if not content.startswith(b"\x93NUMPY"):
            raise DataError(f"{where} is not an .npy file; send the numbers as JSON, or as .npy.")
        return self.read(_array(content, where), where)


def reader_for(estimator: Any, limits: Limits) -> Reader:
    """How the run of ``estimator`` reads its inputs, within the limits of the server."""
    reader = _reader_for(estimator)
    for one in (reader, *((reader.picture, reader.question) if isinstance(reader, Question) else ())):
        one.characters, one.pixels = limits.text, min(limits.pixels, MOST_PIXELS)
        one.seconds = limits.length / A_SECOND
    return reader


def _reader_for(estimator: Any) -> Reader:
    command, s = estimator.command, estimator.settings_
    if command in ("classify", "embed"):
        inputs = estimator.inputs_
        if inputs.kind == "vectors":
            shape = (*inputs.size, len(inputs.mean)) if inputs.size else (len(inputs.mean),)
            return Vectors(
                getattr(s, "scan", "rows"),
                shape,
                UNLIMITED if inputs.size else getattr(estimator, "_longest", s.max_tokens),
                pixels=inputs.fit is not None,
            )
        if inputs.kind == "ngrams":
            return Text(len)
        return _text(tokenizer_of(estimator), s.max_tokens)
    if command == "tag":
        return Vectors("rows", (len(estimator._reader.inputs.mean),)) if estimator.framewise else Words()
    if command == "translate":
        return _text(tokenizer_of(estimator), s.max_tokens)
    if command == "language":
        return _text(tokenizer_of(estimator))
    if command == "transcribe":
        return (
            Sound(estimator.ear_.rate)
            if estimator.ear_.kind == "audio"
            else Vectors("rows", (estimator.ear_.width,))
        )
    if command == "forecast":
        columns = estimator.columns_
        shorter = () if s.horizon else (len(columns.others),)  # an aligned forecaster needs no targets
        return Series(sorted({len(columns.names), *shorter}), least=s.window)
    picture = Picture(estimator.size)
    if command == "caption":
        return picture
    longest = UNLIMITED if s.history else s.max_tokens  # of a dialogue the last symbols are read
    return Question(picture, _text(tokenizer_of(estimator), longest, empty=False))


def _drawn(draw: Random, shape: tuple[int, ...]) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Numbers as those of training: their mean 0, their spread 1."""
    return np.random.default_rng(draw.getrandbits(32)).normal(size=shape)


def _text(tokenizer: Any, most: int = UNLIMITED, *, empty: bool = True) -> Text:
    """Texts whose length is counted in symbols of ``tokenizer``."""
    spelled = [tokenizer.decode([symbol]).strip() for symbol in range(min(tokenizer.size, 300))]
    words = [word for word in spelled if word.isalnum()] or ["a", "b"]
    return Text(lambda text: len(tokenizer.encode(text)), most, empty=empty, words=words)


def _numbers(given: Any, where: str, *, missing: bool = False) -> Any:
    """An array of numbers, never of texts; with ``missing`` null is NaN."""
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


def _content(given: dict[str, Any], where: str) -> bytes:
    text = given.get("base64")
    if given.keys() != {"base64"} or not isinstance(text, str):
        raise DataError(f'{where} is not a file; give {{"base64": "…"}}.')
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        raise DataError(f"{where} is not base64; encode the bytes of the file.") from None


def _from_file(content: bytes, where: str, read: Callable[[Path], Any]) -> Any:
    """What ``read`` makes of a file with this content; its errors name the input instead of the file."""
    with scratch_folder() as folder:
        path = Path(folder) / "input"
        write_new(path, content)
        try:
            return read(path)
        except DataError as error:
            raise DataError(str(error).replace(str(path), where)) from None


def _seen(content: bytes, where: str, size: tuple[int, int] | None, most: int) -> Any:
    return _from_file(content, where, lambda path: read_picture(path, size=size, most=most))


def _array(content: bytes, where: str) -> Any:
    def read(path: Path) -> Any:
        try:
            return load_npy(path)
        except (OSError, ValueError, EOFError) as error:
            reason = str(error).splitlines()[0] if str(error) else "it ends too early"
            raise DataError(f"{where} is not an .npy file of numbers ({reason}).") from None

    return _from_file(content, where, read)
