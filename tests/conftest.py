"""Shared by all tests: the same numbers every time, few threads, no network."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import time
import warnings
from collections.abc import Generator, Iterator
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before torch is imported: two test processes share two cores

import anaphora  # noqa: F401, I001  (sets what must be set before torch is imported)
import pytest
import torch
from hypothesis import settings

from sweeps import restore_corpora, shorten_corpora
from trained_runs import Store

for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
    if signal.getsignal(number) is signal.SIG_IGN:  # as in a background job or under nohup; tests send them
        signal.signal(number, usual)
torch.set_num_threads(1)
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "anaphora-tests"
"""What the tests compile: kept from one run to the next and shared by all copies of the repository, apart from the user's own."""
with contextlib.suppress(OSError):  # without a home, the usual places are tried
    CACHE.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.environ.setdefault("ANAPHORA_CACHE", str(CACHE))
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
def quick_compiler() -> Iterator[None]:
    """No optimisation, for tests that compile much and compute little."""
    from anaphora.native import c as compiler

    patch = pytest.MonkeyPatch()
    patch.setattr(compiler, "FLAGS", tuple(f for f in compiler.FLAGS if f != "-O3"))
    yield
    patch.undo()


def pytest_sessionstart(session: pytest.Session) -> None:
    """Forget what was compiled long ago."""
    if not os.environ.get("PYTEST_XDIST_WORKER"):
        for path in CACHE.glob("kernels/*"):
            with contextlib.suppress(OSError):  # another run of the tests forgets it, too
                if time.time() - path.stat().st_mtime > 30 * 24 * 3600:
                    path.unlink()


CHANGED = "a test has changed a run that all share: let it change a copy"


@pytest.fixture(scope="session")
def _shared_runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    base = tmp_path_factory.getbasetemp()
    store = Store((base.parent if os.environ.get("PYTEST_XDIST_WORKER") else base) / "trained")
    yield store
    assert not store.changed(store.known), CHANGED


@pytest.fixture
def trained(_shared_runs: Store) -> Iterator[Store]:
    """Runs of the cases of tests/contract, trained once for all workers: ``trained("classify-text-lstm")``. Nothing may change them."""
    _shared_runs.asked.clear()
    yield _shared_runs
    assert not _shared_runs.changed(_shared_runs.asked), CHANGED


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
def small_corpora() -> Iterator[None]:
    """The embedded corpora with few examples, for tests of what happens around a training on them."""
    before = shorten_corpora()
    yield
    restore_corpora(before)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is imported and collected stays: looking through it for garbage takes half a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


SECONDS: dict[str, float] = {}


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    SECONDS[report.nodeid] = round(SECONDS.get(report.nodeid, 0.0) + report.duration, 3)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what every test took, for ``make quick``."""
    cache = getattr(session.config, "cache", None)
    if cache is not None and not os.environ.get("PYTEST_XDIST_WORKER"):
        cache.set("anaphora/seconds", {**cache.get("anaphora/seconds", {}), **SECONDS})


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
