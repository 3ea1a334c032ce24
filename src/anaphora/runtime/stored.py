"""Tokenizers as an export holds them."""

from __future__ import annotations

from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.data.tokenizers.own import read_own_tokenizer
from anaphora.runtime.folder import Exported


def stored_tokenizer(exported: Exported) -> Tokenizer:
    """The tokenizer of ``tokenizer.json``. A `DataError` for one that cannot be read, or whose patterns need trust."""
    return read_own_tokenizer(exported.text("tokenizer.json"), "", trust=exported.trusted)


def stored_pair(exported: Exported) -> PairTokenizer:
    """Those of both sides of a translation."""
    return PairTokenizer.from_json(
        exported.text("tokenizer.json"), lambda side, _: read_own_tokenizer(side, "", trust=exported.trusted)
    )
