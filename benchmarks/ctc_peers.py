"""Other people's CTC decoders as functions from log p ``(inputs, time, symbols)`` to outputs; blank is symbol 0."""

from __future__ import annotations

import logging
from collections.abc import Callable

import torch
from torch import Tensor

Search = Callable[[Tensor], list[list[int]]]
WordSearch = Callable[[Tensor], list[list[str]]]


def flashlight(width: int, symbols: int) -> Search:
    """flashlight-text without a lexicon, paths added up."""
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconFreeDecoder,
        LexiconFreeDecoderOptions,
        ZeroLM,
    )

    options = LexiconFreeDecoderOptions(
        beam_size=width,
        beam_size_token=symbols,
        beam_threshold=1e9,
        lm_weight=0.0,
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconFreeDecoder(options, ZeroLM(), -1, 0, [])

    def one(log_p: Tensor) -> list[int]:
        best = torch.tensor(decoder.decode(log_p.data_ptr(), *log_p.shape)[0].tokens)
        return [k for k in best.unique_consecutive().tolist() if k > 0]

    return lambda log_p: [one(item.contiguous()) for item in log_p]


def flashlight_words(
    width: int, symbols: int, words: list[str], spellings: list[list[int]], separator: int, word_score: float
) -> WordSearch:
    """flashlight-text on a lexicon; a spelling ends in the separator, as its own recipes have it."""
    from flashlight.lib.text.decoder import (
        CriterionType,
        LexiconDecoder,
        LexiconDecoderOptions,
        SmearingMode,
        Trie,
        ZeroLM,
    )

    trie = Trie(symbols, separator)
    for number, spelling in enumerate(spellings):
        trie.insert([*spelling, separator], number, 0.0)
    trie.smear(SmearingMode.MAX)
    options = LexiconDecoderOptions(
        beam_size=width,
        beam_size_token=symbols,
        beam_threshold=1e9,
        lm_weight=0.0,
        word_score=word_score,
        unk_score=float("-inf"),
        sil_score=0.0,
        log_add=True,
        criterion_type=CriterionType.CTC,
    )
    decoder = LexiconDecoder(options, trie, ZeroLM(), separator, 0, -1, [], False)

    def one(log_p: Tensor) -> list[str]:
        found = decoder.decode(log_p.data_ptr(), *log_p.shape)
        return [words[number] for number in found[0].words if number >= 0] if found else []

    return lambda log_p: [one(item.contiguous()) for item in log_p]


def pyctcdecode(width: int, symbols: int) -> Search:
    """pyctcdecode with its defaults."""
    logging.disable(logging.WARNING)  # it warns of the language model it is not given
    from pyctcdecode import build_ctcdecoder

    letters = "".join(chr(ord("a") + i) for i in range(26)) + "äöüßé"
    decoder = build_ctcdecoder(["", *letters[: symbols - 1]])
    return lambda log_p: [
        [letters.index(letter) + 1 for letter in decoder.decode(item.numpy(), beam_width=width)]
        for item in log_p
    ]
