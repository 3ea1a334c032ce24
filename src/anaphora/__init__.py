"""Anaphora: one library for modelling sequences. Train, search, look inside, serve.

    import anaphora as an

    m = an.Translator(model="lstm-attention", hidden=256)
    m.fit("train.tsv", valid="dev.tsv", out="runs/en-de")
    m.predict(["two dogs run"])

Names are loaded when they are first used, so that ``import anaphora`` costs nothing.

Two conventions hold everywhere: tensors are batch first, ``(batch, time, features)``, and a mask is
True where the element is real.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from anaphora import _cpu
from anaphora._version import __version__

if TYPE_CHECKING:
    from anaphora import learn as learn
    from anaphora import nn as nn
    from anaphora import search as search
    from anaphora.errors import AnaphoraError as AnaphoraError
    from anaphora.models.classical.hmm import HMM as HMM
    from anaphora.models.classical.kalman import Kalman as Kalman
    from anaphora.models.classical.ngram import NGram as NGram
    from anaphora.models.classical.var import VAR as VAR
    from anaphora.models.embeddings.glove import GloVe as GloVe
    from anaphora.models.embeddings.neural_lm import NeuralLM as NeuralLM
    from anaphora.models.embeddings.neural_lm import RankingLM as RankingLM
    from anaphora.models.embeddings.text import Phrases as Phrases
    from anaphora.models.embeddings.vectors import WordVectors as WordVectors
    from anaphora.models.embeddings.word2vec import Word2Vec as Word2Vec
    from anaphora.probe.history import history as history
    from anaphora.probe.interventions import Attend as Attend
    from anaphora.probe.interventions import Clamp as Clamp
    from anaphora.probe.interventions import Noise as Noise
    from anaphora.probe.interventions import Patch as Patch
    from anaphora.probe.interventions import Silence as Silence
    from anaphora.tasks.answer.estimator import Answerer as Answerer
    from anaphora.tasks.caption.estimator import Captioner as Captioner
    from anaphora.tasks.classify.estimator import Classifier as Classifier
    from anaphora.tasks.comparing.comparison import compare as compare
    from anaphora.tasks.distilling import ensemble as ensemble
    from anaphora.tasks.embed.estimator import Embedder as Embedder
    from anaphora.tasks.forecast.estimator import Forecaster as Forecaster
    from anaphora.tasks.language.estimator import LanguageModel as LanguageModel
    from anaphora.tasks.load import load as load
    from anaphora.tasks.playing import play as play
    from anaphora.tasks.steering import steer as steer
    from anaphora.tasks.tag.estimator import Tagger as Tagger
    from anaphora.tasks.transcribe.estimator import Transcriber as Transcriber
    from anaphora.tasks.translate.estimator import Translator as Translator
    from anaphora.training.callbacks import STOP as STOP
    from anaphora.training.callbacks import Callback as Callback
    from anaphora.training.fit import fit as fit
    from anaphora.views.own import view as view

_cpu.avoid_broken_amx()

_HOMES = {
    "AnaphoraError": "anaphora.errors",
    "Callback": "anaphora.training.callbacks",
    "STOP": "anaphora.training.callbacks",
    "compare": "anaphora.tasks.comparing.comparison",
    "fit": "anaphora.training.fit",
    "view": "anaphora.views.own",
    "NGram": "anaphora.models.classical.ngram",
    "Kalman": "anaphora.models.classical.kalman",
    "HMM": "anaphora.models.classical.hmm",
    "VAR": "anaphora.models.classical.var",
    "Word2Vec": "anaphora.models.embeddings.word2vec",
    "GloVe": "anaphora.models.embeddings.glove",
    "NeuralLM": "anaphora.models.embeddings.neural_lm",
    "RankingLM": "anaphora.models.embeddings.neural_lm",
    "Phrases": "anaphora.models.embeddings.text",
    "WordVectors": "anaphora.models.embeddings.vectors",
    "LanguageModel": "anaphora.tasks.language.estimator",
    "Answerer": "anaphora.tasks.answer.estimator",
    "Captioner": "anaphora.tasks.caption.estimator",
    "Classifier": "anaphora.tasks.classify.estimator",
    "Embedder": "anaphora.tasks.embed.estimator",
    "Forecaster": "anaphora.tasks.forecast.estimator",
    "Tagger": "anaphora.tasks.tag.estimator",
    "Transcriber": "anaphora.tasks.transcribe.estimator",
    "Translator": "anaphora.tasks.translate.estimator",
    "history": "anaphora.probe.history",
    **dict.fromkeys(("Attend", "Clamp", "Noise", "Patch", "Silence"), "anaphora.probe.interventions"),
    "ensemble": "anaphora.tasks.distilling",
    "load": "anaphora.tasks.load",
    "play": "anaphora.tasks.playing",
    "steer": "anaphora.tasks.steering",
}
_ROOMS = ("learn", "nn", "search")

__all__ = [
    "HMM",
    "STOP",
    "VAR",
    "AnaphoraError",
    "Answerer",
    "Attend",
    "Callback",
    "Captioner",
    "Clamp",
    "Classifier",
    "Embedder",
    "Forecaster",
    "GloVe",
    "Kalman",
    "LanguageModel",
    "NGram",
    "NeuralLM",
    "Noise",
    "Patch",
    "Phrases",
    "RankingLM",
    "Silence",
    "Tagger",
    "Transcriber",
    "Translator",
    "Word2Vec",
    "WordVectors",
    "__version__",
    "compare",
    "ensemble",
    "fit",
    "history",
    "learn",
    "load",
    "nn",
    "play",
    "search",
    "steer",
    "view",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"anaphora.{name}")
    raise AttributeError(f"module 'anaphora' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
