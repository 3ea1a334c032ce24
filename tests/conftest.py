"""Shared by all tests: the same numbers every time, few threads, no network."""

from __future__ import annotations

import os
import signal
import warnings
from collections.abc import Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: two test processes share two cores

import anaphora  # noqa: F401, I001  (sets what must be set before torch is imported)
import pytest
import torch
from hypothesis import settings

from trained_runs import Store

for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # as in a background job or under nohup; tests send them
        signal.signal(number, usual)
torch.set_num_threads(1)
torch.backends.cudnn.allow_tf32 = False  # parity on a GPU means float32, not its shortened form
settings.register_profile("anaphora", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("anaphora")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_views_left() -> Iterator[None]:
    """Views that a test or a page registers are forgotten after it."""
    from anaphora.views.registry import VIEWS

    before = dict(VIEWS)
    yield
    if len(VIEWS) != len(before):
        VIEWS.clear()
        VIEWS.update(before)


@pytest.fixture(scope="module")
def quick_compiler(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No optimisation and no place in the user's cache, for tests that compile much and compute little."""
    from anaphora.native import c as compiler

    patch = pytest.MonkeyPatch()
    patch.setattr(compiler, "FLAGS", tuple(f for f in compiler.FLAGS if f != "-O3"))
    patch.setenv("ANAPHORA_CACHE", str(tmp_path_factory.mktemp("cache")))
    yield
    patch.undo()


@pytest.fixture(scope="session")
def _shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Store:
    base = tmp_path_factory.getbasetemp()
    return Store((base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "trained")


@pytest.fixture
def trained(_shared_runs: Store) -> Iterator[Store]:
    """Runs of the cases of tests/contract, trained once for all workers: ``trained("classify-text-lstm")``. Nothing may change them."""
    yield _shared_runs
    assert not _shared_runs.changed(), "a test has changed a run that all share: let it change a copy"


@pytest.fixture
def onnx() -> Iterator[None]:
    """Skips where the packages of ONNX are missing, and keeps their warnings quiet."""
    from anaphora.tasks.exporting.graph import NEEDED

    for name in NEEDED:
        pytest.importorskip(name)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.fixture
def small_corpora(monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded corpora of pairs with few examples, for tests of what happens around a training on them."""
    from anaphora.data.corpora import CORPORA

    for name in ("numbers", "copy"):
        for split, size in (("train", 600), ("dev", 20), ("test", 60)):
            monkeypatch.setitem(CORPORA[name].sizes, split, size)


LONG = ("test_docs.py", "test_curriculum.py", "studio", "tasks", "training", "models", "kernels")
"""What takes longest begins first, so that no worker is left alone with it at the end."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first; a file stays on one worker, which shares its fixtures, but every page of the docs is its own."""
    skip = pytest.mark.skip(reason="no NVIDIA GPU here")
    here = Path(__file__).parent
    places = {item: item.path.relative_to(here).parts for item in items}
    for item, place in places.items():
        if place != ("test_docs.py",) and item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group("/".join(place)))
        if "cuda" in item.keywords and not torch.cuda.is_available():
            item.add_marker(skip)
    items.sort(key=lambda item: LONG.index(places[item][0]) if places[item][0] in LONG else len(LONG))
