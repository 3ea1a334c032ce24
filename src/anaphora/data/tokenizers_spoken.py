"""The tokenizer of a published recogniser that writes pieces of words: every text begins with a space."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from anaphora.data.symbols import EOS, SPELLINGS
from anaphora.data.tokenizers_own import EngineTokenizer
from anaphora.data.vocabularies import single_spaced
from anaphora.files import parse_json


class SpokenTokenizer(EngineTokenizer):
    """Whisper's: special symbols are no part of a text, and the space before its first word is not written."""

    def _spell(self, spellings: list[str], kind: str, lowercase: bool, raw: bool) -> None:
        theirs = self.numbering.order[len(SPELLINGS) :]
        marks = set(self._engine.get_added_tokens_decoder())
        plain = self._engine.decode
        spelled = [
            one if i is None or i in marks or not one else plain([i], skip_special_tokens=False)
            for i, one in zip(theirs, spellings[len(SPELLINGS) :], strict=True)
        ]
        super()._spell([*spellings[: len(SPELLINGS)], *spelled], kind, lowercase, raw)

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        spaced = (single_spaced(text) for text in texts)
        return super().encode_batch([f" {text}" if text else "" for text in spaced])

    def decode(self, ids: Sequence[int]) -> str:
        order = self.numbering.order
        found = (order[int(i)] for i in takewhile(lambda i: i != EOS, ids) if int(i) >= len(SPELLINGS))
        theirs = [i for i in found if i is not None]
        return str(self._engine.decode(theirs, skip_special_tokens=True)).strip()

    def normalized(self, text: str) -> str:
        return single_spaced(text)

    def to_json(self) -> str:
        found: dict[str, Any] = parse_json(super().to_json(), numbers=False)
        return json.dumps({**found, "spoken": True}, ensure_ascii=False)
