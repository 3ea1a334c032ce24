"""Language models of every preset with weights as they are drawn, and requests to an engine over them."""

from __future__ import annotations

import functools
import threading
from typing import Any

import torch

import anaphora as an
from anaphora.data.tokenizers import Tokenizer
from anaphora.errors import AnaphoraError
from anaphora.search._draws import Filters
from anaphora.serving.generation import Engine, Generation, Piece, Token
from anaphora.serving.generation.engine import Room
from anaphora.tasks.language.build import fit_ngram
from anaphora.tasks.language.info import LANGUAGE

TEXT = [
    "a cat sat on the mat", "the dog ate a fig", "café – naïve ☕ 日本", "go on and on", "no dogs",
]  # fmt: skip
PRESETS = [name for name in LANGUAGE.presets if name != "masked"]
SIZES = {"hidden": 20, "embedding": 12, "layers": 2, "context": 24, "heads": 2, "feedforward": 24}


@functools.cache
def language(preset: str, tokens: str = "char", lines: bool = True) -> an.LanguageModel:
    """An estimator as if it were trained; the vectors are large, so that texts differ."""
    chosen: dict[str, Any] = {}
    for key in SIZES:
        try:
            an.LanguageModel(model=preset, **{**chosen, key: SIZES[key]})
        except AnaphoraError:
            continue
        chosen[key] = SIZES[key]
    model = an.LanguageModel(model=preset, tokens=tokens, lines=lines, **chosen)
    model.tokenizer_ = Tokenizer.train(
        TEXT if lines else ["\n".join(TEXT)], kind=tokens, vocab_size=300, raw=not lines
    )
    if preset == "ngram":
        rows = model.tokenizer_.encode_batch(TEXT)
        model.model_ = fit_ngram(model.settings_, rows, model.tokenizer_.size)
        return model
    model.model_ = model._fresh_model().eval()
    with torch.no_grad():
        for weight in model.model_.parameters():
            weight.mul_(1.5)
    return model


def engine_of(model: an.LanguageModel, **room: Any) -> Engine:
    return Engine("tiny", model.model_, model.tokenizer_, lines=model.settings_.lines, room=Room(**room))


class Heard:
    """A request, and all that comes of it."""

    def __init__(self, model: an.LanguageModel, prompt: str = "", **asked: Any):
        self.pieces: list[Piece] = []
        self.error: BaseException | None = None
        self.done, self.first = threading.Event(), threading.Event()
        filters = {key: asked.pop(key) for key in ("temperature", "top_k", "top_p", "min_p") if key in asked}
        ids = [model.begin, *model.tokenizer_.encode(prompt)]
        self.request = Generation(ids, listener=self._hear, filters=Filters(**filters), **asked)
        self._open = self.request.n

    def _hear(self, pieces: Any, error: BaseException | None) -> None:
        self.pieces += pieces
        self.error = error
        self._open -= sum(piece.finish is not None for piece in pieces)
        self.first.set()
        if error is not None or not self._open:
            self.done.set()

    def wait(self) -> Heard:
        assert self.done.wait(60)
        return self

    def texts(self) -> list[str]:
        return ["".join(p.text for p in self.pieces if p.index == i) for i in range(self.request.n)]

    def tokens(self) -> list[list[Token]]:
        return [[t for p in self.pieces if p.index == i for t in p.tokens] for i in range(self.request.n)]

    def ends(self) -> list[str | None]:
        return [next(p.finish for p in self.pieces[::-1] if p.index == i) for i in range(self.request.n)]
