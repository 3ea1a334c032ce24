"""The cases of tools/same.py by name, and the parts of each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from cases import CASES

SERVED = {
    "classify-text-lstm",
    "classify-text-conv-classes",
    "classify-vectors-bilstm",
    "classify-picture-vit",
    "tag-letters-bilstm-crf",
    "language-lines-lstm",
    "translate-char-lstm-attention",
    "forecast-lstm",
    "transcribe-frames-ctc",
    "transcribe-sound-conformer",
    "caption-lstm-attention",
    "answer-lstm-attention",
    "embed-pairs-bow",
}
EXPORTED = {
    "classify-text-conv-classes",
    "classify-vectors-bilstm",
    "tag-letters-bilstm-crf",
    "language-lines-lstm",
    "translate-char-lstm-attention",
    "translate-bpe-transformer",
    "forecast-lstm",
    "transcribe-frames-ctc",
    "caption-transformer",
    "answer-lstm-attention",
    "embed-pairs-bow",
}
TWICE = {
    "classify-text-lstm",
    "tag-words-transformer",
    "language-running-gru",
    "translate-bpe-transformer",
    "forecast-lstm",
    "transcribe-frames-joint",
    "caption-lstm-attention",
    "answer-transformer-history",
    "embed-labels-bilstm",
}
"""Trained with two seeds."""
LONG = {"classify-text-ngrams", "tag-words-hmm", "language-ngram", "embed-pairs-bow"}
"""So quick that a bulk file of them fills several windows."""
Part = tuple[str, Callable[[], Any]]


def names() -> list[str]:
    """Every case, in the order in which they run."""
    return list(CASES)


def parts_of(name: str) -> Iterator[Part]:
    """The parts of a case, whose data are written into the current folder first."""
    from equality import trained

    looks = ["two"]
    looks += ["serve"] if name in SERVED else []
    looks += ["export"] if name in EXPORTED else []
    looks += ["seeds"] if name in TWICE else []
    looks += ["long"] if name in LONG else []
    return trained.parts(name, CASES[name], tuple(looks))
