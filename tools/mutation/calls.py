"""A plugin of pytest with two uses: record which functions each test enters, and run the tests of a list in its order.

    PYTHONPATH=tools pytest -p mutation.calls --calls FOLDER     # writes FOLDER/<process id>.json when it ends
    PYTHONPATH=tools pytest -p mutation.calls --these FILE       # runs the tests that FILE names, one a line

Recorded are the functions of src/anaphora that are entered in the process of the test, in any of its threads. What a
fixture of a file enters while it is made counts for every test of that file. Functions entered by processes that a test
starts are not seen.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--calls", type=Path, help="write which functions each test enters into this folder")
    parser.addoption("--these", type=Path, help="run the tests that this file names, in its order")


def pytest_configure(config: pytest.Config) -> None:
    if (folder := config.getoption("--calls")) is not None:
        config.pluginmanager.register(Recorder(folder))
    if (file := config.getoption("--these")) is not None:
        config.pluginmanager.register(Chosen(file.read_text().splitlines()))


class Chosen:
    """Keeps the tests of a list alone, in its order."""

    def __init__(self, names: list[str]):
        self.place = {name: number for number, name in enumerate(names)}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        left_out = [item for item in items if item.nodeid not in self.place]
        config.hook.pytest_deselected(items=left_out)
        items[:] = sorted(
            (item for item in items if item.nodeid in self.place), key=lambda item: self.place[item.nodeid]
        )


class Recorder:
    """Notes the functions that each test enters, by file and line, and how long it takes."""

    def __init__(self, folder: Path):
        import anaphora

        self.folder = folder
        self.root = str(Path(str(anaphora.__file__)).parent) + os.sep
        self.entered: set[CodeType] = set()
        self.shared: dict[str, set[CodeType]] = {}
        self.tests: dict[str, tuple[float, set[CodeType]]] = {}

    def _enter(self, frame: FrameType, event: str, argument: Any) -> None:
        self.entered.add(frame.f_code)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun, name = time.process_time(), item.nodeid
        if group := item.get_closest_marker("xdist_group"):
            name = name.removesuffix(f"@{group.args[0]}")
        self.entered = set()
        self.tests[name] = 0.0, self.entered
        sys.settrace(self._enter)
        threading.settrace(self._enter)
        try:
            yield
        finally:
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            self.tests[name] = time.process_time() - begun, self.tests[name][1]

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        try:
            yield
        finally:
            self.shared.setdefault(item.nodeid.partition("::")[0], set()).update(self.entered)

    def pytest_sessionfinish(self) -> None:
        """Write places as ``path:line`` of the package, each once, and tests by the numbers of their places."""
        places: dict[str, int] = {}

        def numbers(codes: set[CodeType]) -> list[int]:
            ours = (code for code in codes if code.co_filename.startswith(self.root))
            names = {f"{code.co_filename[len(self.root) :]}:{code.co_firstlineno}" for code in ours}
            return sorted(places.setdefault(name, len(places)) for name in names)

        tests = {name: [round(seconds, 3), numbers(codes)] for name, (seconds, codes) in self.tests.items()}
        shared = {name: numbers(codes) for name, codes in self.shared.items()}
        self.folder.mkdir(parents=True, exist_ok=True)
        whole = {"places": list(places), "tests": tests, "shared": shared}
        (self.folder / f"{os.getpid()}.json").write_text(json.dumps(whole))
