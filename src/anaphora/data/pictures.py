"""Pictures: files and arrays as pixels of one size, lists of pictures with texts, and pictures to be asked about."""

from __future__ import annotations

import hashlib
import io
import os
import stat
import struct
import warnings
import zlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from anaphora.data.sources.roles import text_problem
from anaphora.errors import DataError
from anaphora.files import clause, read_bytes

if TYPE_CHECKING:
    from PIL import Image

# Pictures as PNG files, written with the standard library alone.

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


# One picture, from a file or from Python, as pixels of the size that a model sees.

Pixels = np.ndarray[Any, np.dtype[np.uint8]]
"""``(height, width, 3)``, red, green and blue from 0 to 255."""
Size = tuple[int, int]
"""Height and width."""
FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
"""What is read; Pillow knows more, some of which starts other programs."""
PICTURE_ENDINGS = (".png", ".jpg", ".jpeg", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
MOST_PIXELS = 1 << 26
"""Pixels of the largest picture that is unpacked (256 MiB): what keeps memory bounded."""
MOST_BYTES = 1 << 28
GREY = 128
_TOO_LARGE = "it would unpack to more than {} million pixels; make the picture smaller."
_MISSING = "reading pictures needs Pillow; install it with `pip install anaphora[image]`."


def read_picture(path: str | Path, *, size: Size | None, most: int = MOST_PIXELS) -> Pixels:
    """The picture in a file, ``(height, width, 3)``, or a `DataError` in one sentence.

    It is turned as its EXIF data say, what is transparent becomes white, of a film the first frame is taken; then it
    is scaled (bilinear, every pixel counts) until it just fits into ``size``, and centred on grey: nothing is cut off
    and nothing distorted. Without a ``size`` it stays as large as it is. One of more than ``most`` pixels is not unpacked.
    """
    _check_file(path)
    try:
        from PIL import Image, ImageOps, UnidentifiedImageError
    except ImportError:
        raise DataError(f"{path}: {_MISSING}") from None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Pillow warns of what is checked here
            # from memory: of a file Pillow takes as much memory as a damaged head asks for
            content = io.BytesIO(read_bytes(path, most=MOST_BYTES))
            with Image.open(content, formats=FORMATS) as image:
                if size is not None:  # a large JPEG is unpacked at a fraction of its size
                    image.draft("RGB", (max(size), max(size)))
                if image.width * image.height > most:
                    raise DataError(_TOO_LARGE.format(most // 10**6))
                return _fitted(_in_colour(ImageOps.exif_transpose(image)), size)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    except Image.DecompressionBombError:
        raise DataError(f"{path}: {_TOO_LARGE.format(most // 10**6)}") from None
    except UnidentifiedImageError:
        raise DataError(
            f"{path} is not a picture that can be read; give {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."
        ) from None
    except MemoryError:
        raise
    except Exception as error:  # a damaged file makes Pillow's many readers fail in as many ways
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0].rstrip(".")
        raise DataError(f"{path} is damaged ({reason[:80]}); make it again or leave it out.") from None


def as_picture(value: Any, where: str, *, size: Size) -> Pixels:
    """An array ``(height, width)`` of greys or ``(height, width, 1, 3 or 4)``, whole numbers from 0 to 255 or fractions
    from 0 to 1, treated as `read_picture` treats a file."""
    try:
        x = np.asarray(value)
        numbers = x.dtype.kind in "buif"
    except (TypeError, ValueError):
        numbers = False
    if not numbers or x.ndim not in (2, 3) or 0 in x.shape or (x.ndim == 3 and x.shape[2] not in (1, 3, 4)):
        raise DataError(
            f"{where} is not a picture; give a path, or an array (height, width, 3) of numbers from 0 to 255."
        )
    if x.shape[0] * x.shape[1] > MOST_PIXELS:
        raise DataError(f"{where}: {_TOO_LARGE.format(MOST_PIXELS // 10**6)}")
    x = _to_bytes(x, where)
    if x.ndim == 2 or x.shape[2] == 1:
        x = np.repeat(x.reshape(*x.shape[:2], 1), 3, axis=2)
    if x.shape == (*size, 3):
        return np.ascontiguousarray(x)
    try:
        from PIL import Image
    except ImportError:
        raise DataError(f"{where}: {_MISSING}") from None
    return _fitted(_in_colour(Image.fromarray(np.ascontiguousarray(x))), size)


def _check_file(path: str | Path) -> None:
    try:
        facts = os.stat(path)
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such picture; check the path.") from None
    except (OSError, ValueError) as error:
        reason = clause(error) if isinstance(error, OSError) else str(error).lower()
        raise DataError(f"{path} cannot be read: {reason}.") from None
    if not stat.S_ISREG(facts.st_mode):
        raise DataError(f"{path} is not a file; give the path of a picture.")
    if facts.st_size == 0:
        raise DataError(f"{path} is empty; make the picture again or leave it out.")
    if facts.st_size > MOST_BYTES:
        raise DataError(f"{path} has more than {MOST_BYTES >> 20} MiB; make the picture smaller.")


def _to_bytes(x: np.ndarray[Any, Any], where: str) -> Pixels:
    """Fractions of white or whole numbers as bytes."""
    if x.dtype == np.uint8:
        return x
    most = 1 if x.dtype.kind in "bf" else 255
    if not (np.isfinite(x).all() and x.min() >= 0 and x.max() <= most):
        raise DataError(
            f"{where} holds numbers outside 0 to {most}; pixels are whole numbers up to 255, or fractions up to 1."
        )
    found: Pixels = np.rint(x.astype(np.float64) * (255 // most)).astype(np.uint8)
    return found


def _in_colour(image: Image.Image) -> Image.Image:
    """The same in red, green and blue, whatever it was in."""
    from PIL import Image

    if image.mode.startswith("I"):  # sixteen bits, of which the upper eight are kept
        deep = np.asarray(image).astype(np.int64)
        image = Image.fromarray((deep.clip(0, 65535) >> 8).astype(np.uint8))
    if image.mode == "F":
        raise DataError("it holds measurements instead of colours; save it with 8 bits per colour.")
    if image.mode in ("RGBA", "LA", "PA", "La", "RGBa") or "transparency" in image.info:
        clear = image.convert("RGBA")
        white = Image.new("RGBA", clear.size, (255, 255, 255, 255))
        image = Image.alpha_composite(white, clear)
    return image.convert("RGB")


def _fitted(image: Image.Image, size: Size | None) -> Pixels:
    """Scaled until it just fits into ``size``, in the middle of grey; as it is without one."""
    from PIL import Image

    if size is None:
        return np.array(image)
    height, width = size
    scale = min(height / image.height, width / image.width)
    tall, wide = max(1, round(image.height * scale)), max(1, round(image.width * scale))
    if image.size != (wide, tall):
        image = image.resize((wide, tall), Image.Resampling.BILINEAR)
    out = np.full((height, width, 3), GREY, dtype=np.uint8)
    top, left = (height - tall) // 2, (width - wide) // 2
    out[top : top + tall, left : left + wide] = np.asarray(image)
    return out


# Pictures with texts about them: captions, or questions with their answers.

KEPT_BYTES = 1 << 30
"""Of so many bytes of pixels the pictures stay in memory; those beyond are read again when they are wanted."""
Texts = tuple[str, ...]
"""One row about a picture: a caption, or a question, its answer and perhaps its kind."""


class PictureList:
    """``len(pictures)``, ``load(i)`` for the pixels of picture i and ``texts[i]`` for the rows about it.

    ``facts`` say where they come from; `describe` adds their number and fingerprint.
    """

    def __init__(self, size: Size, facts: dict[str, Any], *, kept_bytes: int = KEPT_BYTES):
        self.size, self.facts = size, facts
        self.texts: list[list[Texts]] = []
        self._pixels: list[Pixels | None] = []
        self._paths: list[Path | None] = []
        self._room = kept_bytes
        self._digest = hashlib.sha256(repr(size).encode())

    def add(self, pixels: Pixels, texts: Sequence[Texts], path: Path | None = None) -> None:
        """One more picture; without a ``path`` to read it from again it is kept in any case."""
        self._digest.update(pixels.tobytes())
        for row in texts:
            # Lengths first: what a text holds can then not be mistaken for the end of it.
            self._digest.update(repr([(len(text), text) for text in row]).encode())
        kept = path is None or pixels.nbytes <= self._room
        self._room -= pixels.nbytes if kept else 0
        self._pixels.append(pixels if kept else None)
        self._paths.append(path)
        self.texts.append(list(texts))

    def __len__(self) -> int:
        return len(self.texts)

    def load(self, index: int) -> Pixels:
        """Picture ``index`` as ``(height, width, 3)``."""
        pixels = self._pixels[index]
        if pixels is None:
            path = self._paths[index]
            assert path is not None
            pixels = read_picture(path, size=self.size)
        return pixels

    def take(self, chosen: Sequence[int], facts: dict[str, Any]) -> PicturePart:
        """The pictures at ``chosen`` with all their texts, so that no picture is in two parts."""
        return PicturePart(self, [int(i) for i in chosen], facts)

    @property
    def rows(self) -> int:
        """How many texts there are about all pictures together."""
        return sum(map(len, self.texts))

    def describe(self) -> dict[str, Any]:
        """What was read, as JSON; `anaphora.data.opening` takes it to read the same again."""
        counts = {"rows": self.rows, "pictures": len(self), "size": list(self.size)}
        return {**self.facts, **counts, "sha256": self._digest.hexdigest()}


class PicturePart(PictureList):
    """Some pictures of a whole, with all that is said about them."""

    def __init__(self, whole: PictureList, chosen: Sequence[int], facts: dict[str, Any]):
        super().__init__(whole.size, facts)
        self._whole, self._chosen = whole, list(chosen)
        self.texts = [whole.texts[i] for i in self._chosen]

    def load(self, index: int) -> Pixels:
        return self._whole.load(self._chosen[index])

    def describe(self) -> dict[str, Any]:
        return {**self.facts, "rows": self.rows, "pictures": len(self), "of": self._whole.describe()}


# Questions about pictures as they are given from Python: with what was said before, and the answers to choose among.


def given_picture(picture: Any, number: int, size: Size) -> Pixels:
    """The pixels of input ``number``, a path or an array."""
    if isinstance(picture, str | Path):
        return read_picture(picture, size=size)
    return as_picture(picture, f"input {number}", size=size)


class Row(NamedTuple):
    """A question about a picture; rows with the same ``key`` are about the same one."""

    key: Any
    pixels: Pixels
    question: str
    choices: tuple[int, ...] = ()
    """Numbers of the answers to choose among; all of them if none is named."""


def spoken(turns: Sequence[tuple[str, str]], question: str, history: int) -> str:
    """The question after the last ``history`` turns (question, answer) of the dialogue."""
    before = [f"{asked} {answer}" for asked, answer in turns[len(turns) - min(history, len(turns)) :]]
    return " ".join([*before, question])


def rows_of(inputs: Iterable[Any], size: Size, answers: Sequence[str], history: int = 0) -> list[Row]:
    """Pairs ``(picture, question)`` or triples ``(picture, question, choices)`` from Python; a picture that is given again
    is read once. A question may also be a dialogue: a list that ends with it, after (question, answer) pairs."""
    if isinstance(inputs, str | Path):
        raise DataError("predict takes a list of pairs (picture, question): write [(picture, question)].")
    rows: list[Row] = []
    seen: dict[Any, Pixels] = {}
    held = list(inputs)  # so that no array is freed and its identity given to another
    for number, given in enumerate(held, start=1):
        where = f"input {number}"
        if not isinstance(given, tuple | list) or len(given) not in (2, 3):
            raise DataError(f"{where} is not a pair of a picture and a question; give (picture, question).")
        picture, question, *rest = given
        if isinstance(question, list | tuple):
            question = _dialogue(question, history, where)
        if not isinstance(question, str):
            raise DataError(f"{where} is not a pair of a picture and a question; give (picture, question).")
        if problem := text_problem(question):
            raise DataError(f"{where} has {problem} for a question; ask something.")
        named = isinstance(picture, str | Path)
        key = str(picture) if named else id(picture)
        if key not in seen:
            seen[key] = given_picture(picture, number, size)
        try:
            choices = listed_choices(rest[0], answers) if rest else ()
        except DataError as error:
            raise DataError(f"{where}: {error}") from None
        rows.append(Row(key, seen[key], question, choices))
    return rows


def _dialogue(given: Sequence[Any], history: int, where: str) -> str:
    """``[(question, answer), …, question]`` as it is read."""
    if not history:
        raise DataError(
            f"{where} is a dialogue, but the model was trained on single questions; train with history."
        )
    *turns, last = given if given else ("",)
    pairs = [turn for turn in turns if isinstance(turn, tuple | list) and len(turn) == 2]
    if len(pairs) < len(turns) or not isinstance(last, str):
        raise DataError(
            f"{where}: a dialogue is a list of (question, answer) pairs and a question in the end."
        )
    return spoken([(str(question), str(answer)) for question, answer in pairs], last, history)


def listed_choices(given: Any, answers: Sequence[str]) -> tuple[int, ...]:
    """The numbers of the answers that are named: ``a|b|c`` or a list."""
    names = [name.strip() for name in given.split("|")] if isinstance(given, str) else list(given)
    names = [name for name in names if name]
    if len(set(names)) < 2:
        raise DataError("there must be at least two different answers to choose among; write them a|b|c.")
    for name in names:
        if name not in answers:
            raise DataError(
                f"the model has learned no answer {str(name)[:40]!r}; leave it out of the choices."
            )
    return tuple(answers.index(name) for name in names)


def among(scores: Any, choices: Sequence[Sequence[int]]) -> Any:
    """``scores`` ``(rows, answers)`` with −∞ for the answers that a row does not let the model choose."""
    found = scores.copy()
    for number, few in enumerate(choices):
        if few:
            others = np.ones(scores.shape[1], dtype=bool)
            others[list(few)] = False
            found[number, others] = -np.inf
    return found
