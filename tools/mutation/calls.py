"""A plugin of pytest with two uses: record which functions each test enters, and run the tests of a list in its order.

    PYTHONPATH=tools pytest -p mutation.calls --calls FOLDER     # writes FOLDER/<process id>.json when it ends
    PYTHONPATH=tools pytest -p mutation.calls --these FILE       # runs the tests or files that FILE names, one a line
    PYTHONPATH=tools pytest -p mutation.calls --spend SECONDS    # begins no test after so much CPU time

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
    parser.addoption("--these", type=Path, help="run the tests and files that this file names, in its order")
    parser.addoption("--spend", type=float, help="begin no test after so many seconds of CPU time")


def pytest_configure(config: pytest.Config) -> None:
    if (folder := config.getoption("--calls")) is not None:
        config.pluginmanager.register(Recorder(folder))
    if (file := config.getoption("--these")) is not None:
        config.pluginmanager.register(Chosen(file.read_text().splitlines()))
    if (seconds := config.getoption("--spend")) is not None:
        config.pluginmanager.register(Limited(seconds))


class Limited:
    """Ends the tests once so much CPU time is spent, that of ended child processes included."""

    def __init__(self, seconds: float):
        self.seconds, self.begun = seconds, self._now()

    @staticmethod
    def _now() -> float:
        times = os.times()
        return times.user + times.system + times.children_user + times.children_system

    def pytest_runtest_logfinish(self) -> None:
        if self._now() - self.begun > self.seconds:
            pytest.exit("the CPU time is spent", returncode=0)


class Chosen:
    """Keeps the tests of a list alone, in its order; the name of a file stands for all its tests, and ``!`` before one leaves it out."""

    def __init__(self, names: list[str]):
        self.place = {name: number for number, name in enumerate(names)}

    def _find(self, item: pytest.Item) -> int | None:
        if f"!{item.nodeid}" in self.place:
            return None
        return self.place.get(item.nodeid, self.place.get(item.nodeid.partition("::")[0]))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        places = {item: self._find(item) for item in items}
        config.hook.pytest_deselected(items=[item for item in items if places[item] is None])
        items[:] = sorted((item for item in items if places[item] is not None), key=lambda item: places[item])


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
