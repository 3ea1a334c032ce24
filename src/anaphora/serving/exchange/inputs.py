"""Inputs of the tasks that search or forecast, as JSON or as a file; texts and vectors are `anaphora.kinds`."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from anaphora.data.audio.files import audio_length, read_audio
from anaphora.data.audio.recordings_readers import as_item
from anaphora.data.pictures import MOST_PIXELS, as_picture
from anaphora.errors import DataError
from anaphora.kinds.doors import (
    INPUTS,
    LENGTHS,
    TEXT,
    UNLIMITED,
    Bounds,
    Doors,
    Spec,
    Tensors,
    array_of,
    content_of,
    cut_rows,
    drawn,
    from_file,
    numbers_of,
    picture_of,
    rows_of,
)
from anaphora.kinds.text import TextInputs, text_of
from anaphora.kinds.vectors import VectorInputs
from anaphora.serving.exchange.types import (
    PictureInput,
    QuestionInput,
    SentenceInput,
    SeriesInput,
    SoundInput,
)
from anaphora.serving.limits import Limits
from anaphora.web.cost import tokenizer_of

KEPT = 1 << 20
"""Characters of the texts whose length is remembered."""
A_PICTURE = 256
"""What a picture costs, in tokens."""
A_SECOND = 50
"""What a second of sound costs."""
PICTURES, QUESTIONS, RATES = "pictures", "questions", "rates"
PIXELS = [-1, -1, -1, 3]


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


class Words(Doors):
    """A sentence: a text with spaces, or its words."""

    name, unit = "words", "words"
    textual = True
    schema = SentenceInput

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> list[str]:
        return ["".join(draw.choices("aeinorst", k=draw.randint(1, 8))) for _ in range(length)]

    def from_json(self, given: Any, where: str, bounds: Bounds) -> list[str]:
        """Return the words of a text, or those that were given."""
        if isinstance(given, str):
            return bounds.text(given, where).split()
        if not isinstance(given, list) or not all(isinstance(word, str) for word in given):
            raise DataError(f"{where} is not a sentence; give a text, or a list of words.")
        bounds.check(len(given) + sum(map(len, given)), where)
        return given

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> list[str]:
        return self.from_json(text_of(content, where), where, bounds)


class Picture(Doors):
    """Pixels ``(height, width, 3)``, or the bytes of a picture file."""

    name = "picture"
    schema = PictureInput

    def __init__(self, size: tuple[int, int]):
        self._size = size

    @property
    def tensors(self) -> list[Spec]:
        return [Spec(INPUTS, "FP32", PIXELS)]

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> Any:
        return np.uint8(255 * np.abs(np.tanh(drawn(draw, (*self._size, 3)))))

    def from_json(self, given: Any, where: str, bounds: Bounds) -> Any:
        """Return the pixels of lists of numbers, or of a file in base64."""
        if isinstance(given, dict):
            return self.from_bytes(content_of(given, where), where, bounds)
        return as_picture(numbers_of(given, where), where, size=self._size)

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> Any:
        return picture_of(content, where, self._size, bounds.pixels)

    def from_row(self, row: Any, where: str, bounds: Bounds) -> Any:
        """Return the pixels of a row; numbers from 0 to 255 that came as floats, the type of the metadata, are whole again."""
        if isinstance(row, np.ndarray):
            whole = row.dtype.kind == "f" and row.size and row.max() > 1 and (row == np.floor(row)).all()
            row = row.astype(np.int64) if whole else row
        return super().from_row(row, where, bounds)

    def length(self, x: Any) -> int:
        return A_PICTURE


class Question(Doors):
    """A picture with a question about it, and answers to choose among."""

    name, unit = "question", "symbols"
    schema = QuestionInput

    def __init__(self, picture: Picture, question: TextInputs):
        self.picture, self.question = picture, question
        self._lengths = _Lengths(question.length)

    @property
    def tensors(self) -> list[Spec]:
        return [Spec(PICTURES, "FP32", PIXELS), Spec(QUESTIONS, TEXT, [-1])]

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> tuple[Any, ...]:
        return self.picture.example(draw, length), self.question.example(draw, min(length, 8), most)

    def from_json(self, given: Any, where: str, bounds: Bounds) -> tuple[Any, ...]:
        """Return the picture, the question, and choices if there are any."""
        if not isinstance(given, dict) or not {"picture", "question"} <= given.keys():
            raise DataError(f'{where} is not a question; give {{"picture": …, "question": "…"}}.')
        if unknown := given.keys() - {"picture", "question", "choices"}:
            raise DataError(f"{where} has {min(unknown)!r}, which a question does not have; leave it out.")
        picture = self.picture.from_json(given["picture"], where, bounds)
        return self.joined(picture, given["question"], given.get("choices"), where, bounds)

    def joined(
        self, picture: Any, question: Any, choices: Any, where: str, bounds: Bounds
    ) -> tuple[Any, ...]:
        """Return the picture with its question and, where there are any, choices."""
        asked = self.question.from_json(question, f"the question of {where}", bounds)
        if choices is None:
            return picture, asked
        if not isinstance(choices, list) or not all(isinstance(one, str) for one in choices):
            raise DataError(
                f"{where} has choices that are not a list of texts; give the answers to choose among."
            )
        bounds.text("\n".join(choices), f"choices of {where}")
        return picture, asked, choices

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> Any:
        raise DataError(
            f"{where} is a picture without a question; send the picture and a field question as a form."
        )

    def from_tensors(self, tensors: Tensors, bounds: Bounds) -> list[Any]:
        """Return each picture with its question."""
        pictures, questions = rows_of(tensors, PICTURES), rows_of(tensors, QUESTIONS)
        if len(pictures) != len(questions):
            raise DataError(
                f"there are {len(pictures)} pictures and {len(questions)} questions; send as many."
            )
        both = enumerate(zip(pictures, questions, strict=True), start=1)
        return [
            (
                self.picture.from_row(a, f"input {i}", bounds),
                self.question.from_row(b, f"input {i}", bounds),
            )
            for i, (a, b) in both
        ]

    def length(self, x: Any) -> int:
        return self._lengths(x[1])


class Sound(Doors):
    """Samples at the rate of training or with their own, or the bytes of a sound file."""

    name, unit = "sound", "fiftieths of a second"
    schema = SoundInput

    def __init__(self, rate: int):
        self.rate = rate

    @property
    def tensors(self) -> list[Spec]:
        shapes = [(INPUTS, "FP32", [-1, -1]), (LENGTHS, "INT64", [-1]), (RATES, "INT64", [-1])]
        return [Spec(*one) for one in shapes]

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> tuple[Any, int]:
        return 0.1 * drawn(draw, (self.rate // 2 + length * self.rate // 100,)), self.rate

    def from_json(self, given: Any, where: str, bounds: Bounds) -> tuple[Any, int]:
        """Return samples with their rate."""
        if isinstance(given, dict) and "base64" in given:
            return self.from_bytes(content_of(given, where), where, bounds)
        rate: Any = self.rate
        if isinstance(given, dict):
            if given.keys() != {"samples", "rate"}:
                raise DataError(f'{where} is not a recording; give {{"samples": […], "rate": {self.rate}}}.')
            given, rate = given["samples"], given["rate"]
        return self.sampled(given, rate, where)

    def from_tensors(self, tensors: Tensors, bounds: Bounds) -> list[Any]:
        """Return the samples of each row, at the rates that were sent."""
        if RATES not in tensors:
            return super().from_tensors(tensors, bounds)
        rows, rates = cut_rows(rows_of(tensors, INPUTS), tensors), tensors[RATES].ravel().tolist()
        if len(rates) != len(rows):
            raise DataError(f"there are {len(rows)} inputs and {len(rates)} rates; send as many.")
        both = enumerate(zip(rows, rates, strict=True), start=1)
        return [self.sampled(x, rate, f"input {i}") for i, (x, rate) in both]

    def sampled(self, given: Any, rate: Any, where: str) -> tuple[Any, int]:
        """Return samples of one channel with their rate."""
        samples = numbers_of(given, where)
        if np.ndim(samples) != 1:
            raise DataError(
                f"{where} has {np.ndim(samples)} axes; give the samples of one channel as a list."
            )
        if isinstance(rate, bool) or not isinstance(rate, int):
            raise DataError(f"{where} has the rate {rate!r}; give samples a second, a whole number.")
        as_item((samples, rate), where, self.rate)  # a rate out of bounds and NaN are errors
        return samples, rate

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> tuple[Any, int]:
        def read(path: Path) -> tuple[Any, int]:
            samples, rate = audio_length(path)  # by its head and its end: nothing is unpacked yet
            if samples > bounds.seconds * rate:
                raise DataError(
                    f"{path} has {samples / rate:,.0f} seconds, and at most {bounds.seconds:,.0f} are heard; cut it."
                )
            return read_audio(path)

        samples, rate = from_file(content, where, read)
        return samples, rate

    def length(self, x: tuple[Any, int]) -> int:
        return math.ceil(A_SECOND * len(x[0]) / x[1])


class Series(Doors):
    """Numbers ``(time, columns)``; null where a value is not known."""

    name = "series"
    schema = SeriesInput

    def __init__(self, columns: Sequence[int], least: int):
        """``columns``: how many a series may have; ``least``: steps that are enough for a forecast."""
        self._least = least
        self._columns = columns

    def example(self, draw: Random, length: int, most: int = UNLIMITED) -> Any:
        return drawn(draw, (self._least + length, self._columns[-1]))

    def from_json(self, given: Any, where: str, bounds: Bounds) -> Any:
        """Return the numbers ``(time, columns)``."""
        x = numbers_of(given, where, missing=True)
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

    def from_bytes(self, content: bytes, where: str, bounds: Bounds) -> Any:
        if not content.startswith(b"\x93NUMPY"):
            raise DataError(f"{where} is not an .npy file; send the numbers as JSON, or as .npy.")
        return self.from_json(array_of(content, where), where, bounds)


def doors_of(estimator: Any) -> Doors:
    """Return how the run of ``estimator`` reads its inputs."""
    if hasattr(estimator, "session"):
        doors: Doors = estimator.session.kinds.input
        return doors
    command, s = estimator.command, estimator.settings_
    if command == "tag":
        return estimator._reader.inputs if estimator.framewise else Words()
    if command in ("translate", "language"):
        return TextInputs(tokenizer_of(estimator))
    if command == "transcribe":
        ear = estimator.ear_
        return Sound(ear.rate) if ear.kind == "audio" else VectorInputs.unscaled(ear.width)
    if command == "forecast":
        columns = estimator.columns_
        shorter = () if s.horizon else (len(columns.others),)  # an aligned forecaster needs no targets
        return Series(sorted({len(columns.names), *shorter}), least=s.window)
    picture = Picture(estimator.size)
    return picture if command == "caption" else Question(picture, TextInputs(tokenizer_of(estimator)))


def bounds_of(estimator: Any, limits: Limits) -> Bounds:
    """Return what the server lets in of one input."""
    blank = estimator.command != "answer"
    return Bounds(limits.text, min(limits.pixels, MOST_PIXELS), limits.length / A_SECOND, blank)


def lengths_of(doors: Doors) -> Callable[[Any], int]:
    """Return what tells how long an input is; the lengths of texts are remembered."""
    return _Lengths(doors.length) if isinstance(doors, TextInputs) else doors.length


def longest_of(estimator: Any) -> int:
    """Return the longest input that the model reads whole, in the unit of its doors."""
    command, s = estimator.command, estimator.settings_
    if hasattr(estimator, "session"):
        longest: int | None = estimator.session.kinds.longest
        return UNLIMITED if longest is None else longest
    if command == "translate" or (command == "answer" and not s.history):
        return int(s.max_tokens)
    return UNLIMITED  # of a dialogue the last symbols are read
