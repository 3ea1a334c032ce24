"""What tests of cells and layers share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from anaphora.kernels.toolchain import compiler


@pytest.fixture(scope="module")
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No optimisation, for tests that compile much and compute little."""
    patch = pytest.MonkeyPatch()
    patch.setattr(compiler, "FLAGS", tuple(f for f in compiler.FLAGS if f != "-O3"))
    patch.setenv("ANAPHORA_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()
