"""SentencePiece models: their files, their normalisation, and the pieces of a text."""

from __future__ import annotations

import base64
import json
import re
import struct
from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Any

from tokenizers import Tokenizer as Engine
from tokenizers import models

from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.data.tokenizers.vocabularies import Numbering
from anaphora.errors import DataError
from anaphora.files.schemas import checked

# The rules by which a model of sentencepiece rewrites characters: a trie of what is replaced, and a table of
# replacements.

_VALUE = (1 << 31) - 1
_LABEL = (1 << 31) | 0xFF


class CharsMap:
    """``data``: the size of a trie of Darts, the trie, and texts that end in a zero byte, as the files hold them.

    At every place the longest known beginning is replaced; a character without one stays. A ValueError where ``data`` are no
    such rules.
    """

    def __init__(self, data: bytes):
        size = int.from_bytes(data[:4], "little")
        if len(data) < 8 or size % 4 or 4 + size > len(data):
            raise ValueError("its rules for characters are cut off")
        self._units = array("I", data[4 : 4 + size])
        self._texts = data[4 + size :]

    def __call__(self, text: str) -> str:
        """``text`` rewritten."""
        if text.isascii() and self._ascii is not None:
            return text.translate(self._ascii)
        given, at, found = text.encode("utf-8"), 0, bytearray()
        while at < len(given):
            length, value = self._longest(given, at)
            if length:
                found += self._replacement(value)
            else:
                length = _width(given[at])
                found += given[at : at + length]
            at += length
        return found.decode("utf-8", errors="replace")

    def _longest(self, given: bytes, at: int) -> tuple[int, int]:
        """How many bytes from ``at`` on are known together, and where their replacement begins; 0 for none."""
        units, best = self._units, (0, 0)
        node = _offset(units[0])
        for length, byte in enumerate(given[at : at + 64], 1):
            node ^= byte
            if node >= len(units) or units[node] & _LABEL != byte:
                break
            unit = units[node]
            node ^= _offset(unit)
            if unit >> 8 & 1 and node < len(units):
                best = length, units[node] & _VALUE
        return best

    def _replacement(self, value: int) -> bytes:
        end = self._texts.find(b"\0", value)
        if end < 0:
            raise ValueError("its rules for characters are damaged")
        return self._texts[value:end]

    @cached_property
    def _ascii(self) -> dict[int, str] | None:
        """What becomes of each ASCII character, where that does not depend on the one after it."""
        found: dict[int, str] = {}
        for one in range(128):
            for other in range(128):
                if self._longest(bytes((one, other)), 0)[0] == 2:
                    return None
            length, value = self._longest(bytes((one,)), 0)
            if length:
                found[one] = self._replacement(value).decode("utf-8")
        return found


def _offset(unit: int) -> int:
    return (unit >> 10) << ((unit & (1 << 9)) >> 6)


def _width(first: int) -> int:
    """Bytes of the character that begins with this one."""
    return 1 if first < 0xC0 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4


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


# A tokenizer that cuts with a model of sentencepiece and numbers the pieces as a vocabulary beside it does.

OWN = len(SPELLINGS)
_CODE = re.compile(r">>[^<>]*<<")
_BYTE = re.compile(r"<0x([0-9A-F]{2})>")


class PieceTokenizer(Tokenizer):
    """``data``: the file of sentencepiece; ``vocabulary``: the pieces by their id (Marian's ``vocab.json`` has another order
    than the file, and pieces of both sides); ``numbering``: where our special symbols are among them.

    ``whole``: pieces that stand in a text as they are spelled (T5's ``<extra_id_0>``). ``codes``: a text may begin with a
    language, ``>>fr<<``. What else is spelled like a special symbol is text.
    """

    def __init__(
        self,
        data: bytes,
        vocabulary: Sequence[str],
        numbering: Numbering,
        *,
        whole: Sequence[str] = (),
        codes: bool = False,
    ):
        try:
            model = SentencePieces.parse(data)
            self._engine, used = model.engine()
            model.prepared("é")  # so that damaged rules are found at once
        except (ValueError, LookupError, TypeError) as error:
            raise DataError(f"The model of sentencepiece cannot be read: {error}.") from None
        if len(vocabulary) > numbering.size:
            raise DataError(f"The tokenizer has {len(vocabulary)} symbols, but the model {numbering.size}.")
        self.data, self.vocabulary, self.numbering = data, list(vocabulary), numbering
        self.whole, self.codes, self._model = tuple(whole), codes, model
        self._places = {piece: i for i, piece in enumerate(vocabulary)}
        ours = numbering.numbers
        unknown = numbering.special[UNK]
        self._numbers = [
            UNK if i == model.unknown else ours[self._places.get(model.pieces[i].text, unknown or 0)]
            for i in used
        ]
        if unknown is None:
            raise DataError("The vocabulary has no unknown symbol.")
        self._cut = re.compile("(" + "|".join(map(re.escape, self.whole)) + ")") if whole else None
        self._drops_space = model.prefix
        kept = {model.pieces[i].text for i in range(len(model.pieces)) if model.pieces[i].kind == BYTE}
        self._raw_bytes = {
            piece: bytes([int(found[1], 16)]) for piece in kept if (found := _BYTE.fullmatch(piece))
        }
        rest = numbering.order[OWN:]
        spellings = [vocabulary[i] if i is not None and i < len(vocabulary) else "" for i in rest]
        self._spell([*SPELLINGS, *spellings], "tokenizers", False, False)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        cut = [self._parts(sound_text(text)) for text in texts]
        flat = [self._model.prepared(part) for parts in cut for part in parts if isinstance(part, str)]
        found = iter(self._engine.encode_batch_fast(flat, add_special_tokens=False))
        return [
            [
                symbol
                for part in parts
                for symbol in (
                    [part] if isinstance(part, int) else [self._numbers[i] for i in next(found).ids]
                )
            ]
            for parts in cut
        ]

    def _parts(self, text: str) -> list[str | int]:
        """Texts to be cut into pieces, and symbols that stand as they are."""
        parts: list[str | int] = []
        if self.codes and (code := _CODE.match(text)):
            parts, text = [self._number(code[0])], text[code.end() :]
        if self._cut is None:
            return [*parts, text]
        for place, part in enumerate(self._cut.split(text)):
            parts.append(self._number(part) if place % 2 else part)
        return parts

    def _number(self, piece: str) -> int:
        place = self._places.get(piece)
        return UNK if place is None else self.numbering.numbers[place]

    def decode(self, ids: Sequence[int]) -> str:
        found = b"".join(
            self._raw_bytes.get(spelling) or spelling.encode()
            for spelling in (
                "<unk>" if i == UNK else self._spellings[i]
                for i in takewhile(lambda i: i != EOS, ids)
                if i not in (PAD, BOS)
            )
            if spelling not in self.whole
        )
        text = found.decode("utf-8", errors="replace").replace(SPACE, " ")
        return text.removeprefix(" ") if self._drops_space else text

    def normalized(self, text: str) -> str:
        return self.decode(self.encode(text))

    def to_json(self) -> str:
        facts = {
            "own": "sentencepiece",
            "lowercase": False,
            "raw": False,
            "size": self.numbering.size,
            "special": list(self.numbering.special),
            "whole": list(self.whole),
            "codes": self.codes,
            "vocabulary": self.vocabulary,
            "model": base64.b64encode(self.data).decode(),
        }
        return json.dumps(facts, ensure_ascii=False)

    @classmethod
    def from_json_facts(cls, found: Mapping[str, Any], most: int) -> PieceTokenizer:
        """What `to_json` wrote, with at most so many symbols; a ValueError, LookupError or TypeError where it is not that."""
        size = checked(int, found["size"])
        if not 0 < size <= most:
            raise ValueError(f"size: {size} symbols are too many")
        ids = checked(tuple[int | None, int | None, int | None, int | None], found["special"])
        return cls(
            base64.b64decode(checked(str, found["model"]), validate=True),
            checked(list[str], found["vocabulary"]),
            Numbering(size, ids),
            whole=checked(list[str], found["whole"]),
            codes=checked(bool, found["codes"]),
        )
