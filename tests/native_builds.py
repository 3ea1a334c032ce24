"""The C kernels built for other instruction sets and by other compilers, in the same process."""

from __future__ import annotations

import shutil

import pytest

from anaphora.models.embeddings import windows
from anaphora.native import c as compiler
from anaphora.native import isa
from anaphora.ops import crf, grid, packed, sound, transducer_sums

COMPILERS = [path for path in map(shutil.which, ("gcc", "clang")) if path]
BUILDS = [(word, tool) for tool in COMPILERS for word in isa.executable()]
"""Every instruction set that this CPU can execute, with every compiler that is installed."""
QUICK = [(word, tool) for word, tool in BUILDS if tool == COMPILERS[0] or word == "avx2"]
"""Each instruction set once, and AVX2 with every compiler."""
LIBRARIES = (packed, crf, windows, grid, sound, transducer_sums)


def use(monkeypatch: pytest.MonkeyPatch, word: str, tool: str) -> None:
    """From here on the kernels are those that ``tool`` builds for the instruction set ``word``."""
    monkeypatch.setenv("ANAPHORA_ISA", word)
    monkeypatch.setattr(compiler, "compiler", lambda: tool)
    for module in LIBRARIES:
        monkeypatch.setattr(module.library, "_loaded", {})
