"""The formats of ``anaphora export``, by name; imports no torch, so that the command's help stays fast.

A format is an entry here and a function ``write(m, place, **options)`` in a module of its own, imported when it is asked
for. It writes the trained estimator ``m`` to ``place``, whose parent exists, and raises an `AnaphoraError` where ``m`` has
no such form; ``options`` are those that the entry names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Format:
    """``writer`` is ``module:function``; ``options`` names what may be asked of it besides."""

    writer: str
    about: str
    options: tuple[str, ...] = ()

    def load(self) -> Callable[..., None]:
        """The function that writes."""
        module, name = self.writer.split(":")
        found: Callable[[Any, Path], None] = getattr(import_module(module), name)
        return found


FORMATS: dict[str, Format] = {
    "onnx": Format(
        "anaphora.tasks.exporting.onnx:write",
        "graphs of a network, and what anaphora.runtime needs",
        ("int8",),
    ),
    "hf": Format("anaphora.tasks.exporting.hf:write", "a Transformer as a folder of `transformers`"),
    "ctranslate2": Format(
        "anaphora.tasks.exporting.ctranslate2:write", "a Transformer that writes, for the CTranslate2 engine"
    ),
    "torch": Format(
        "anaphora.tasks.exporting.archive:write", "a network as an archive of torch.export (.pt2)"
    ),
    "arpa": Format("anaphora.tasks.exporting.classical:write_arpa", "the n-grams of a language model"),
    "word2vec": Format(
        "anaphora.tasks.exporting.classical:write_word2vec",
        "the vectors of the symbols, in binary where the name ends in .bin",
    ),
    "json": Format("anaphora.tasks.exporting.classical:write_json", "the counts of an HMM"),
}
