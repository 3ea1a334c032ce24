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
    from anaphora import nn as nn
    from anaphora import search as search
    from anaphora.errors import AnaphoraError as AnaphoraError
    from anaphora.models.classical.hmm import HMM as HMM
    from anaphora.models.classical.kalman import Kalman as Kalman
    from anaphora.models.classical.ngram import NGram as NGram
    from anaphora.models.classical.var import VAR as VAR
    from anaphora.probe.history import history as history
    from anaphora.tasks.load import load as load
    from anaphora.tasks.translator import Translator as Translator

_cpu.avoid_broken_amx()

_HOMES = {
    "AnaphoraError": "anaphora.errors",
    "NGram": "anaphora.models.classical.ngram",
    "Kalman": "anaphora.models.classical.kalman",
    "HMM": "anaphora.models.classical.hmm",
    "VAR": "anaphora.models.classical.var",
    "Translator": "anaphora.tasks.translator",
    "history": "anaphora.probe.history",
    "load": "anaphora.tasks.load",
}
_ROOMS = ("nn", "search")

__all__ = [
    "HMM",
    "VAR",
    "AnaphoraError",
    "Kalman",
    "NGram",
    "Translator",
    "__version__",
    "history",
    "load",
    "nn",
    "search",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    if name in _ROOMS:
        return importlib.import_module(f"anaphora.{name}")
    raise AttributeError(f"module 'anaphora' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
