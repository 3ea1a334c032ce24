"""Pictures with texts about them: captions, or questions with their answers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anaphora.data.pictures import Pixels, Size, read_picture

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
