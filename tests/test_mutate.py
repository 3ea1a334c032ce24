"""tools/mutate.py draws faults that change what runs, gives every folder some, and finds the test that catches one."""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from types import ModuleType

import pytest

TOOLS = Path(__file__).resolve().parent.parent / "tools"
PACKAGE = TOOLS.parent / "src" / "anaphora"
SOURCE = b'''"""Text - not a place."""
from typing import Literal

Kind = Literal["a", "b"]


class Rows:
    size: int = 3 - 1

    def read(self, x, mask, limit=True):
        if len(x) >= self.size:
            raise ValueError(f"{len(x)} - too many")
        check_rows(x)
        return x.masked_fill(mask, 0) + self.join(x, mask)
'''


@pytest.fixture(scope="module")
def mutate() -> ModuleType:
    sys.path.insert(0, str(TOOLS))
    return importlib.import_module("mutate")


def test_every_kind_of_fault_is_a_small_change_of_what_runs(mutate: ModuleType) -> None:
    found = list(mutate.faults_of("data/rows.py", SOURCE))
    changes = {(one.kind, one.before, one.after) for one in found}
    assert changes == {
        ("sign", "3 - 1", "(3 + 1)"),
        ("off by one", "3", "4"),
        ("off by one", "1", "2"),
        ("flag", "True", "False"),
        ("check", "len(x) >= self.size", "False"),
        ("comparison", "len(x) >= self.size", "(len(x) > self.size)"),
        ("check", "check_rows(x)", "pass"),
        ("sign", "x.masked_fill(mask, 0) + self.join(x, mask)", "(x.masked_fill(mask, 0) - self.join(x, mask))"),
        ("mask", "x.masked_fill(mask, 0)", "x"),
        ("arguments", "self.join(x, mask)", "(self.join(mask, x))"),
    }  # fmt: skip
    assert {one.function for one in found if one.line > 10} == {"Rows.read"}
    assert {one.first for one in found if one.line > 10} == {10}
    for one in found:
        assert ast.dump(ast.parse(one.apply(SOURCE))) != ast.dump(ast.parse(SOURCE))
    with pytest.raises(ValueError, match="draw again"):
        found[0].apply(SOURCE[1:])


def test_a_draw_is_repeatable_and_gives_every_folder_its_share(mutate: ModuleType, tmp_path: Path) -> None:
    for place in ("data/rows.py", "nn/rows.py", "nn/more.py", "top.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_bytes(SOURCE)
    drawn = mutate.draw(tmp_path, 7, 12)
    assert drawn == mutate.draw(tmp_path, 7, 12) != mutate.draw(tmp_path, 8, 12)
    counts = Counter(one.folder for one in drawn)
    assert len(set(drawn)) == counts.total() == 12
    assert min(counts["data"], counts["nn"]) >= 4
    assert len({one.kind for one in drawn if one.folder == "data"}) >= 4
    assert {one.folder for one in mutate.draw(tmp_path, 7, 4)} == {"data", "nn"}


def test_the_tests_of_a_fault_are_those_that_enter_its_function_cheapest_file_first(
    mutate: ModuleType, tmp_path: Path
) -> None:
    record = {
        "places": ["a.py:3", "a.py:9", "b.py:1"],
        "tests": {"t/1.py::a": [5.0, [0]], "t/1.py::b": [1.0, [0, 1]], "t/2.py::c": [2.0, [0]], "t/3.py::d": [0.1, []]},
        "shared": {"t/3.py": [2]},
    }  # fmt: skip
    (tmp_path / "map").write_text(json.dumps([record]))
    calls = mutate.Calls.read(tmp_path / "map")

    def chosen(path: str, function: str, first: int, seconds: float = 60.0) -> list[str]:
        return calls.candidates(mutate.Fault(path, 4, 0, "sign", "a", "b", function, first), seconds)

    assert chosen("a.py", "f", 3) == ["t/2.py::c", "t/1.py::b", "t/1.py::a"]
    assert chosen("a.py", "f", 3, 3.5) == ["t/2.py::c", "t/1.py::b"]
    assert chosen("a.py", "g", 9) == ["t/1.py::b"]
    assert chosen("b.py", "h", 1) == ["t/3.py::d"]  # entered while a fixture of its file was made
    assert chosen("a.py", "unseen", 7) == chosen("a.py", "", 0) == ["t/2.py::c", "t/1.py::b", "t/1.py::a"]
    assert chosen("c.py", "f", 1) == []


def test_tests_that_were_not_recorded_are_chosen_by_imports(mutate: ModuleType, tmp_path: Path) -> None:
    files = {
        "src/anaphora/nn/far.py": "",
        "src/anaphora/nn/near.py": "from anaphora.nn.far import y",
        "tests/nn/test_near.py": "from anaphora.nn.near import x",
        "tests/cli/test_near.py": "from anaphora.nn.near import x",
        "tests/cli/test_far.py": "from anaphora.nn.far import y",
        "tests/test_other.py": "import os",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = mutate.nearest(mutate.Tree(tmp_path), mutate.Fault("nn/far.py", 1, 0, "sign", "", ""))
    assert found == ["tests/cli/test_far.py", "tests/nn/test_near.py", "tests/cli/test_near.py"]


@pytest.mark.slow
def test_a_fault_is_caught_by_a_test_that_passes_without_it(mutate: ModuleType, tmp_path: Path) -> None:
    package, tests = tmp_path / "src" / "anaphora", tmp_path / "tests"
    package.mkdir(parents=True)
    tests.mkdir()
    (package / "__init__.py").write_text("")
    (package / "sums.py").write_text(
        "def add(a, b):\n    return a + b\n\n\ndef low(a, b):\n    return a < b\n"
    )
    (tests / "test_sums.py").write_text(
        "from anaphora.sums import add, low\n\n\n"
        "def test_a_failure():\n    assert add(1, 1) == 3\n\n\n"
        "def test_add():\n    assert add(1, 2) == 3\n\n\ndef test_low():\n    assert low(1, 2)\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    mutate.record(tmp_path, tmp_path / "map", ["-n", "0"])
    net = mutate.Net(tmp_path, mutate.Calls.read(tmp_path / "map"), 60.0)
    net.calls.seconds = dict.fromkeys(net.calls.seconds, 0.1)  # they run in the order of their names
    sign, comparison = mutate.faults_of("sums.py", (package / "sums.py").read_bytes())
    assert net.look(sign).caught_by == "tests/test_sums.py::test_add"
    assert net.sound == {"tests/test_sums.py::test_a_failure": False, "tests/test_sums.py::test_add": True}
    assert net.look(comparison).caught_by is None
    assert mutate.elsewhere(sign, tmp_path) == sign
    assert "a + b" in (package / "sums.py").read_text()
