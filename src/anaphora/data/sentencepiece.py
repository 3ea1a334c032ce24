"""Models of sentencepiece (``.model``, ``.spm``) without its package: the file is read here, and `tokenizers` cuts the texts."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models

from anaphora.data.charsmap import CharsMap

NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = 1, 2, 3, 4, 5, 6
_UNIGRAM, _BPE = 1, 2
_NOWHERE = "\uffff<unk>\uffff"
"""How the unknown piece is spelled inside the engine: as no text is, so that no text is taken for it."""
SPACE = "▁"
_SPACES = re.compile(" {2,}")


@dataclass(frozen=True)
class Piece:
    text: str
    score: float
    kind: int


@dataclass(frozen=True)
class SentencePieces:
    """What a file says: pieces in the order of their ids, how to cut a text into them, and how to prepare it before."""

    pieces: tuple[Piece, ...]
    unigram: bool
    charsmap: bytes
    prefix: bool
    """Whether a text begins with a space."""
    single_spaces: bool
    byte_fallback: bool

    @classmethod
    def parse(cls, data: bytes) -> SentencePieces:
        """A ValueError where ``data`` is no such file, or one whose way of cutting is unknown here."""
        pieces: list[Piece] = []
        trainer: dict[int, Any] = {}
        normalizer: dict[int, Any] = {}
        for number, value in _fields(data):
            if number == 1:
                one = dict(_fields(_bytes(value)))
                score = struct.unpack("<f", one[2])[0] if 2 in one else 0.0
                pieces.append(Piece(_bytes(one.get(1, b"")).decode("utf-8"), score, int(one.get(3, NORMAL))))
            elif number == 2:
                trainer = dict(_fields(_bytes(value)))
            elif number == 3:
                normalizer = dict(_fields(_bytes(value)))
        kind = int(trainer.get(3, _UNIGRAM))
        problem = ""
        if not pieces:
            problem = "it has no pieces"
        elif kind not in (_UNIGRAM, _BPE):
            problem = f"its model_type is {kind}, and unigram (1) and bpe (2) are read"
        elif trainer.get(24):
            problem = "it puts spaces after words (treat_whitespace_as_suffix), which is not read"
        elif not normalizer.get(5, 1):
            problem = "it does not escape spaces, which is not read"
        elif sum(piece.kind == UNKNOWN for piece in pieces) != 1:
            problem = "it does not have one unknown piece"
        if problem:
            raise ValueError(problem)
        return cls(
            tuple(pieces),
            kind == _UNIGRAM,
            _bytes(normalizer.get(2, b"")),
            bool(normalizer.get(3, 1)),
            bool(normalizer.get(4, 1)),
            bool(trainer.get(35, 0)),
        )

    @property
    def unknown(self) -> int:
        """Which piece stands for what has none."""
        return next(i for i, piece in enumerate(self.pieces) if piece.kind == UNKNOWN)

    def engine(self) -> tuple[Engine, list[int]]:
        """What cuts a `prepared` text, and for each of its ids the number of the piece in the file. Control symbols are no pieces of
        a text, however it is spelled."""
        used = [
            i
            for i, piece in enumerate(self.pieces)
            if piece.kind in (NORMAL, USER, UNKNOWN) or (piece.kind == BYTE and self.byte_fallback)
        ]
        spelled = [_NOWHERE if self.pieces[i].kind == UNKNOWN else self.pieces[i].text for i in used]
        if len(set(spelled)) < len(spelled):
            raise ValueError("two of its pieces are spelled alike")
        return Engine(self._unigram(used, spelled) if self.unigram else self._bpe(used, spelled)), used

    def _unigram(self, used: list[int], spelled: list[str]) -> models.Model:
        normal = [piece.score for piece in self.pieces if piece.kind == NORMAL]
        greatest = max(normal, default=0.0)
        scores = [
            # a symbol of the user's is always taken: it gets more than any pieces in its place could
            len(piece.text) * greatest - 0.1 if piece.kind == USER else piece.score
            for piece in (self.pieces[i] for i in used)
        ]
        vocabulary = list(zip(spelled, scores, strict=True))
        return models.Unigram(vocabulary, used.index(self.unknown), self.byte_fallback)

    def _bpe(self, used: list[int], spelled: list[str]) -> models.Model:
        if any(self.pieces[i].kind == USER for i in used):
            raise ValueError("a model of byte pairs with symbols of the user's is not read")
        numbers = {text: i for i, text in enumerate(spelled)}
        scored: list[tuple[float, int, int, str, str]] = []
        for text, i in zip(spelled, used, strict=True):
            if self.pieces[i].kind != NORMAL:
                continue
            for cut in range(1, len(text)):
                left, right = text[:cut], text[cut:]
                if left in numbers and right in numbers:
                    scored.append((-self.pieces[i].score, numbers[left], numbers[right], left, right))
        merges = [(left, right) for *_, left, right in sorted(scored)]
        return models.BPE(
            numbers, merges, unk_token=_NOWHERE, fuse_unk=True, byte_fallback=self.byte_fallback
        )

    def prepared(self, text: str) -> str:
        """``text`` as it is cut: characters rewritten, spaces written as ``▁``. `tokenizers` rewrites whole graphemes, and
        so loses some marks; this is what sentencepiece does."""
        if self._map is not None:
            text = self._map(text)
        if self.single_spaces:
            text = _SPACES.sub(" ", text).lstrip(" ")
        if not text:
            return ""
        text = (SPACE if self.prefix else "") + text.replace(" ", SPACE)
        return text.rstrip(SPACE) if self.single_spaces else text

    @cached_property
    def _map(self) -> CharsMap | None:
        return CharsMap(self.charsmap) if self.charsmap else None


def _fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a protobuf message, each ``(number, value)``: a number, or bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        if kind == 2:
            size, at = _varint(data, at)
        elif kind in (1, 5):
            size = 8 if kind == 1 else 4
        else:
            raise ValueError(f"it is no message of protobuf (a field of the type {kind})")
        if at + size > len(data):
            raise ValueError("it is cut off")
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise ValueError("it is cut off")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("it is no message of protobuf (a number without an end)")


def _bytes(value: Any) -> bytes:
    if not isinstance(value, bytes):
        raise ValueError("it is no model of sentencepiece")
    return value
