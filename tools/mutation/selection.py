"""Choose the tests that can see a fault: by a map of calls, and for tests the map does not know by imports.

A recorded test (calls.py) is chosen if it enters the function in which the fault lies. A fault in no function, or in one that
no test enters in its own process, is looked for by the tests that enter any function of its file. Files of tests that
were not recorded are chosen by how few imports lie between them and the module of the fault.
"""

from __future__ import annotations

import ast
import functools
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutation.faults import Fault

MOST_FILES = 12
"""Files of tests that are chosen by imports for one fault."""
_MODULE = re.compile(r"anaphora(\.\w+)+")


@dataclass
class Calls:
    """How long each recorded test takes, and which functions it enters."""

    seconds: dict[str, float] = field(default_factory=dict)
    entered: dict[str, set[str]] = field(default_factory=dict)
    """The tests that enter a function, by ``path:line`` of its code."""

    @classmethod
    def read(cls, path: Path) -> Calls:
        """Read what the plugin has written; several runs of tests are added up."""
        calls = cls()
        for record in json.loads(path.read_text()):
            tests_of: dict[str, list[str]] = {}
            for name in record["tests"]:
                tests_of.setdefault(name.partition("::")[0], []).append(name)
            for name, (seconds, places) in record["tests"].items():
                calls.seconds[name] = seconds
                calls._add(places, record["places"], [name])
            for file, places in record["shared"].items():
                calls._add(places, record["places"], tests_of.get(file, []))
        return calls

    def _add(self, numbers: Sequence[int], places: Sequence[str], tests: Sequence[str]) -> None:
        for number in numbers:
            self.entered.setdefault(places[number], set()).update(tests)

    @functools.cached_property
    def files(self) -> set[str]:
        """The files whose tests were recorded."""
        return {name.partition("::")[0] for name in self.seconds}

    def candidates(self, fault: Fault, seconds: float) -> list[str]:
        """Return the tests to run, the file whose tests take least time first, but no more than ``seconds`` in all."""
        tests = self.entered.get(f"{fault.path}:{fault.first}", set())
        if not fault.first or not tests:
            near = (names for place, names in self.entered.items() if place.startswith(f"{fault.path}:"))
            tests = set().union(*near)
        files: dict[str, list[str]] = {}
        for name in sorted(tests):
            files.setdefault(name.partition("::")[0], []).append(name)
        totals = {file: sum(self.seconds[name] for name in names) for file, names in files.items()}
        chosen, spent = [], 0.0
        for file in sorted(files, key=lambda one: (totals[one], one)):
            for name in sorted(files[file], key=lambda one: self.seconds[one]):
                if spent + self.seconds[name] <= seconds or not chosen:
                    chosen.append(name)
                    spent += self.seconds[name]
        return chosen


class Imports:
    """Which file of a checkout imports which module of the package; tests and what they share included."""

    def __init__(self, root: Path):
        self.tests = root / "tests"
        package = root / "src" / "anaphora"
        modules = {self._dotted(path, package): path for path in package.rglob("*.py")}
        shared = {path.stem: path for path in self.tests.rglob("*.py")}
        self.importers: dict[Path, set[Path]] = {}
        for path in [*modules.values(), *self.tests.rglob("*.py")]:
            for name in self._named(ast.parse(path.read_bytes())):
                place = modules.get(name) or (shared.get(name) if path.is_relative_to(self.tests) else None)
                if place is not None and place != path:
                    self.importers.setdefault(place, set()).add(path)
        self.package = package

    @staticmethod
    def _dotted(path: Path, package: Path) -> str:
        parts = path.relative_to(package.parent).with_suffix("").parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    @staticmethod
    def _named(tree: ast.AST) -> Iterator[str]:
        """Give the modules that a file names, in an import or in a text from which one is imported later."""
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                yield from (one.name for one in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module
                yield from (f"{node.module}.{one.name}" for one in node.names)
            elif (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and _MODULE.fullmatch(node.value)
            ):
                yield node.value

    def nearest(self, fault: Fault) -> list[str]:
        """Return files of tests, those with the fewest imports between them and the fault first; of equally near ones
        those in the folder of its name."""
        start = self.package / fault.path
        distance, layer = {start: 0}, [start]
        while layer:
            found = {after for place in layer for after in self.importers.get(place, ())} - distance.keys()
            distance |= dict.fromkeys(found, distance[layer[0]] + 1)
            layer = sorted(found)
        files = [one for one in distance if one.is_relative_to(self.tests) and one.name.startswith("test_")]

        def order(file: Path) -> tuple[int, bool, str]:
            place = file.relative_to(self.tests)
            return distance[file], place.parts[0] != fault.folder, place.as_posix()

        return [f"tests/{one.relative_to(self.tests).as_posix()}" for one in sorted(files, key=order)]
