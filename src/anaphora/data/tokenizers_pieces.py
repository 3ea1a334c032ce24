"""A tokenizer that cuts with a model of sentencepiece and numbers the pieces as a vocabulary beside it does."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.data.sentencepiece import BYTE, SPACE, SentencePieces
from anaphora.data.symbols import BOS, EOS, PAD, SPELLINGS, UNK
from anaphora.data.tokenizers import Tokenizer, sound_text
from anaphora.errors import DataError
from anaphora.files.schemas import checked

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
