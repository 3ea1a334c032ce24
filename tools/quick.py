"""Check what changed since ``main``: ``make quick``, or ``python tools/quick.py [BASE]``.

Lint runs beside the tests that are nearest to the changed files in the import graph: tests that changed first, then tests of the
changed modules, then tests of what imports these. They are taken until `SECONDS` are spent, by what every test took in earlier runs
here (``tests/conftest.py`` keeps it in .pytest_cache). What is left out is printed; ``make test`` runs all.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SECONDS = 30.0
"""Of tests, beside which lint runs: together they answer within a minute."""
LONG = 2.0
"""A test that takes longer runs only where its own file has changed, and fits."""
UNKNOWN = 0.1
"""What a test takes that was never measured here."""
KEPT = ROOT / ".pytest_cache" / "v" / "anaphora" / "seconds"
IMPORTS = re.compile(
    r"^[ \t]*(?:from ([\w.]+) import (?:\(([^)]*)\)|(.+))|import ([\w.]+)(?: as (\w+))?)", re.MULTILINE
)
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)


class Problem(Exception):  # noqa: N818 (its text is what the user reads)
    """What the user can act on, in a sentence."""


@dataclass
class Tree:
    """The Python files of a working tree, by their paths in it, and which of them each imports."""

    root: Path
    texts: dict[str, str] = field(default_factory=dict)
    imports: dict[str, set[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in ("src", "tests", "tools", "benchmarks"):
            for path in sorted((self.root / folder).rglob("*.py")):
                self.texts[path.relative_to(self.root).as_posix()] = path.read_text(encoding="utf-8")
        self._places = {name: place for place in self.texts for name in _names(place)}
        self._exports = {
            place: {name: (module, name) for module, name, _ in _imported(text)}
            for place, text in self.texts.items()
            if place.endswith("__init__.py")
        }
        self.imports = {place: set(self._found(place)) - {place} for place in self.texts}

    def _found(self, place: str) -> Iterator[str]:
        text = self.texts[place]
        for module, name, known_as in _imported(text):
            beside = f"{Path(place).parent.as_posix()}/{module}.py"
            if beside in self.texts and not module.startswith("anaphora"):
                yield beside
                continue
            whole = f"{module}.{name}" if name else module
            package = self._places.get(whole, "").endswith("__init__.py")
            used = set(re.findall(rf"\b{re.escape(known_as)}((?:\.\w+)+)", text)) if package else set()
            for one in used or {""}:  # of a package, only what is used of it
                yield from self._home(whole + one)

    def _home(self, dotted: str) -> Iterator[str]:
        """The file that defines what a dotted name stands for, and the packages' that pass it on if nothing else does."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            place = self._places.get(".".join(parts[:end]))
            if place is None:
                continue
            module, name = self._exports.get(place, {}).get(parts[end] if end < len(parts) else "", ("", ""))
            if module and self._places.get(f"{module}.{name}", self._places.get(module)) not in (None, place):
                yield from self._home(".".join((module, name, *parts[end + 1 :])))
            else:
                yield place
            return

    def _users(self, other: str) -> Iterator[str]:
        named = re.compile(rf"(?<![\w.-]){re.escape(Path(other).name)}(?![\w-])")
        folders = {str(folder) for folder in Path(other).parents} - {".", "tests"}
        for place, text in self.texts.items():
            beside = place.startswith("tests/") and str(Path(place).parent) in folders
            if beside or named.search(text):
                yield place

    def distances(self, changed: Iterable[str]) -> dict[str, int]:
        """How many imports lie between each Python file and the nearest changed file.

        A file that is not Python is used by the Python files that name it; data beside tests by the tests of that folder.
        """
        found: dict[str, int] = {}
        for one in changed:
            if one in self.texts:
                found[one] = 0
            elif not one.endswith(".py"):
                name, folder = Path(one).name, Path(one).parent.as_posix()
                for place, text in self.texts.items():
                    inside = place.startswith("tests/") and Path(place).parent.as_posix() in (
                        folder,
                        *map(str, Path(one).parents),
                    )
                    if re.search(rf"(?<![\w.-]){re.escape(name)}(?![\w-])", text) or (
                        inside and folder != "tests" and "/" in folder
                    ):
                        found.setdefault(place, 1)
        by: dict[str, set[str]] = {}
        for place, names in self.imports.items():
            for name in names:
                by.setdefault(name, set()).add(place)
        ahead = sorted(found, key=found.__getitem__)
        for place in ahead:  # it grows: the nearest first
            distance = found[place] + 1
            for user in sorted(by.get(place, ())):
                if distance < found.get(user, distance + 1):
                    found[user] = distance
                    ahead.append(user)
        return found


def _names(place: str) -> Iterator[str]:
    """The names by which a file is imported."""
    parts = list(Path(place).with_suffix("").parts)
    if parts[0] == "src":
        yield ".".join(parts[1:-1] if parts[-1] == "__init__" else parts[1:])
    else:
        yield parts[-1]


def _imported(text: str) -> Iterator[tuple[str, str, str]]:
    """(module, name, the name it has here) for each ``from module import name`` and, with an empty name, each ``import module``."""
    for found in IMPORTS.finditer(text):
        whole, several, line, module, known_as = found.groups()
        if module:
            yield module, "", known_as or module
            continue
        for part in re.sub(r"#.*", "", several or line).split(","):
            if part.strip():
                yield whole, part.split()[0], part.split()[-1]


@dataclass
class Choice:
    """The tests to run, and what is left out; also a plugin of pytest that leaves out the long tests."""

    files: list[str]
    further: list[str]
    seconds: Mapping[str, float]
    changed: set[str]
    left: set[str] = field(default_factory=set)
    """The tests of changed files for which there is no time."""
    long: set[str] = field(default_factory=set)

    def pytest_collection_modifyitems(self, config: Any, items: list[Any]) -> None:
        here = [item for item in items if not self._is_long(item.nodeid)]
        self.long = {item.nodeid for item in items} - {item.nodeid for item in here}
        config.hook.pytest_deselected(items=[item for item in items if item.nodeid in self.long])
        items[:] = here

    def _is_long(self, name: str) -> bool:
        place, _, rest = name.partition("::")
        page = next(
            (True for one in self.changed if one.endswith(".md") and f"[{Path(one).name}" in rest), False
        )
        long = name in self.left if place in self.changed else self.seconds.get(name, 0.0) > LONG
        return long and not page


def choose(tree: Tree, changed: Iterable[str], seconds: Mapping[str, float], most: float = SECONDS) -> Choice:
    """The nearest test files whose tests together take at most ``most``; of those that have changed, the quickest tests."""
    changed = set(changed)
    distances = tree.distances(changed)
    costs: dict[str, float] = {}
    own: dict[str, float] = {}
    for name, took in seconds.items():
        place = name.split("::")[0]
        if place in changed:
            own[name] = took
        elif took <= LONG:
            costs[place] = costs.get(place, 0.0) + took
    tests = [place for place in distances if Path(place).name.startswith("test_")]
    for place in tests:
        costs.setdefault(place, UNKNOWN * len(TEST.findall(tree.texts[place])))
    left: set[str] = set()
    for name in sorted(own, key=own.__getitem__):
        if own[name] > most:
            left.add(name)
        else:
            most -= own[name]
    chosen: list[str] = []
    further: list[str] = []
    rooms = {Path(one).parts[2] for one in changed if one.startswith("src/anaphora/")}

    def order(place: str) -> tuple[int, bool, float]:
        return distances[place], Path(place).parts[1] not in rooms, costs[place]

    for place in sorted(tests, key=order):
        fits = place in changed or costs[place] <= most
        (chosen if fits else further).append(place)
        most -= costs[place] if fits and place not in changed else 0.0
    return Choice(chosen, further, seconds, changed, left)


def changed_since(base: str, root: Path = ROOT) -> list[str]:
    """The files that differ from the commit at which the work began, with those that git does not know yet."""

    def git(*words: str) -> list[str]:
        done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Problem(
                f"git {' '.join(words[:2])}: {done.stderr.strip().splitlines()[0]}; name another commit: make quick BASE=…"
            )
        return done.stdout.splitlines()

    (begun,) = git("merge-base", base, "HEAD")
    return sorted({*git("diff", "--name-only", begun), *git("ls-files", "--others", "--exclude-standard")})


def main(base: str = "main") -> int:
    import pytest

    try:
        changed = changed_since(base)
    except Problem as problem:
        print(problem, file=sys.stderr)
        return 2
    lint = subprocess.Popen(
        ["make", "-s", "lint"], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    seconds = json.loads(KEPT.read_text(encoding="utf-8")) if KEPT.exists() else {}
    choice = choose(Tree(ROOT), changed, seconds)
    code = 0
    if choice.files:
        code = int(pytest.main(["-q", "-m", "not slow", "-n", "0", *choice.files], plugins=[choice]))
    said, _ = lint.communicate()
    if lint.returncode:
        print(said)
    print(f"{len(changed)} files changed since {base}; lint {'failed' if lint.returncode else 'passed'}")
    for what, left in (
        ("tests that take long", sorted(choice.long)),
        ("files of tests further away", choice.further),
    ):
        if left:
            print(f"left out: {len(left)} {what}: {', '.join(left[:8])}{' …' if len(left) > 8 else ''}")
    return 1 if lint.returncode or code not in (0, 5) else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
