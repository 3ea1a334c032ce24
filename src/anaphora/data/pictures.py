"""One picture, from a file or from Python, as pixels of the size that a model sees."""

from __future__ import annotations

import io
import os
import stat
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from anaphora.errors import DataError
from anaphora.files import clause, read_bytes

if TYPE_CHECKING:
    from PIL import Image

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
