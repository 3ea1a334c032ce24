"""Runs trained once for all tests of the server, and the server over them."""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from serve_runs import KINDS, Client

WANTED = ("starlette", "prometheus_client", "PIL")
MISSING = [name for name in WANTED if importlib.util.find_spec(name) is None]


class Absent(pytest.Module):
    """A test file that is skipped as a whole, unread."""

    def collect(self) -> list[pytest.Item]:
        pytest.skip(f"the server needs {', '.join(MISSING)}", allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: pytest.Collector) -> pytest.Module | None:
    """Skip the files beside this one where parts of the server are missing: a skip out of this file itself would end all of pytest."""
    if MISSING and module_path.parent == Path(__file__).parent:
        return Absent.from_parent(parent, path=module_path)
    return None


if not MISSING:
    from anaphora.serving.app import create_app
    from anaphora.serving.limits import Limits
    from anaphora.serving.metrics import Metrics
    from anaphora.serving.runs import Runs


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The run folder of one of `KINDS`, trained when it is first asked for."""
    place = tmp_path_factory.mktemp("served")

    @functools.cache
    def made(kind: str) -> Path:
        KINDS[kind].train(place / kind)
        return place / kind

    return made


class Started:
    """A server without a socket."""

    def __init__(self, folders: dict[str, Path], limits: Limits, token: str | None = None):
        self.runs = Runs(folders, limits, Metrics(), device="cpu")
        self.app, self.server = create_app(self.runs, token=token)
        self.client = Client(self.app, token)


@pytest.fixture(scope="session")
def served(folder_of: Callable[[str], Path]) -> Callable[[str], Started]:
    """A server over one run of `KINDS`."""

    @functools.cache
    def made(kind: str) -> Started:
        return Started({kind: folder_of(kind)}, Limits())

    return made


@pytest.fixture
def start(folder_of: Callable[[str], Path]) -> Iterator[Callable[..., Started]]:
    """A server of the test's own, with limits of its own: ``start("classify", queue=2)``."""
    begun: list[Started] = []

    def made(*kinds: str, token: str | None = None, **limits: Any) -> Started:
        begun.append(Started({kind: folder_of(kind) for kind in kinds}, Limits(**limits), token))
        return begun[-1]

    yield made
    for one in begun:
        one.runs.close()
