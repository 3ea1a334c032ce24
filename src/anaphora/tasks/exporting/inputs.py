"""Random inputs to trace and check graphs with, and what cannot be exported because it is code of the user's own."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers.own import EngineTokenizer, LetterTokenizer, SpokenTokenizer
from anaphora.data.tokenizers.pieces import PieceTokenizer
from anaphora.errors import AnaphoraError


def symbols(size: int, shape: tuple[int, ...]) -> Tensor:
    """Symbols below ``size``, the same for the same shape."""
    return torch.randint(0, size, shape, generator=torch.Generator().manual_seed(sum(shape)))


def numbers(shape: tuple[int, ...]) -> Tensor:
    """Normal numbers, the same for the same shape."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def lengths(batch: int, length: int) -> Tensor:
    """``(batch,)`` rows of different lengths, the first of ``length``."""
    return torch.arange(length, length - batch, -1).clamp(min=1)


def check_words(m: Any) -> None:
    """An `AnaphoraError` for a tagger that reads spellings beside pieces of words, or lines of characters: no graph here has a
    place for them."""
    if m.learnt_.framing and m._reader.letters is not None:
        raise AnaphoraError(
            "this Tagger reads spellings beside pieces of words, for which an export has no place; train with characters=none."
        )
    if any(one.symbols for one in m.learnt_.context):
        raise AnaphoraError(
            "this Tagger reads states of language models of characters, for which an export has no place."
        )


def check_reading(tokenizer: Tokenizer | None, features: Any = None) -> None:
    """An `AnaphoraError` where the inputs are read by code of the user's own, which an export does not hold."""
    known = tokenizer is None or type(tokenizer) in (
        Tokenizer,
        LetterTokenizer,
        EngineTokenizer,
        PieceTokenizer,
        SpokenTokenizer,
    )
    if features is not None or not known:
        what = "the features are" if features is not None else "the tokenizer is"
        raise AnaphoraError(f"{what} of your own making, which an export to ONNX cannot hold.")
