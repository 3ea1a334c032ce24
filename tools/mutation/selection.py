"""Choose the tests that can see a fault: by a map of calls, and for tests the map does not know by imports.

A recorded test (calls.py) is chosen if it enters the function in which the fault lies. A fault in no function, or in one that
no test enters in its own process, is looked for by the tests that enter any function of its file. Files of tests that
were not recorded are chosen by how few imports lie between them and the module of the fault, as by tools/quick.py.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mutation.faults import Fault
from quick import Tree

MOST_FILES = 40
"""Files of tests that are chosen by imports for one fault."""


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


def nearest(tree: Tree, fault: Fault) -> list[str]:
    """Return files of tests, those with the fewest imports between them and the fault first; of equally near ones
    those in the folder of its name."""
    distances = tree.distances([f"src/anaphora/{fault.path}"])

    def order(place: str) -> tuple[int, bool, str]:
        return distances[place], Path(place).parts[1] != fault.folder, place

    return sorted((one for one in distances if Path(one).name.startswith("test_")), key=order)
