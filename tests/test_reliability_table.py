"""The table of docs/reference/reliability.md: every promise has tests that name its id, and none can lose one without a word.

A test names the ids it is for at the start of its own docstring, its file's, or in its name: ``"X6: …"``, ``"C7, C3: …"``,
``test_x6_…``. ``python tests/test_reliability_table.py`` writes the page again.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "reference" / "reliability.md"
IDS = re.compile(r"^((?:[A-Z]\d+)(?:, [A-Z]\d+)*):")
NAMED = re.compile(r"^test_([a-z]\d+)_")
ROW = re.compile(r"^\| ([A-Z]\d+) \| (.*?) \| (.*?) \| (\d+) \|$", re.MULTILINE)


def ids_of(text: str | None) -> set[str]:
    found = IDS.match(text or "")
    return set(found[1].split(", ")) if found else set()


def cases_of(function: ast.FunctionDef) -> int:
    """How many cases the literal lists of ``parametrize`` make; a list that is computed counts as one."""
    count = 1
    for mark in function.decorator_list:
        if isinstance(mark, ast.Call) and ast.unparse(mark.func).endswith("mark.parametrize"):
            values = mark.args[1]
            count *= len(values.elts) if isinstance(values, ast.List | ast.Tuple) else 1
    return count


@functools.cache
def collected() -> dict[str, dict[str, int]]:
    """By id: the files of tests and how many cases each has for it, at least."""
    found: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        of_file = ids_of(ast.get_docstring(tree))
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                named = NAMED.match(node.name)
                own = ids_of(ast.get_docstring(node)) | ({named[1].upper()} if named else set())
                for one in of_file | own:
                    found[one][path.relative_to(ROOT / "tests").as_posix()] += cases_of(node)
    return found


def rewritten(page: str) -> str:
    tests = collected()

    def row(match: re.Match[str]) -> str:
        of = tests.get(match[1], {})
        files = ", ".join(f"`{name}`" for name in sorted(of)) or "none"
        return f"| {match[1]} | {match[2]} | {files} | {sum(of.values())} |"

    return ROW.sub(row, page)


def test_no_promise_has_lost_a_test():
    """New tests may be missing from the page; what it counts must be there."""
    tests = collected()
    for match in ROW.finditer(PAGE.read_text(encoding="utf-8")):
        of = tests.get(match[1], {})
        listed = set(re.findall(r"`([^`]+)`", match[3]))
        assert listed <= of.keys(), f"{match[1]}: {sorted(listed - of.keys())} no longer name it"
        assert int(match[4]) <= sum(of.values()), f"{match[1]} has lost tests"


def test_every_promise_is_listed_once_and_has_a_test_or_says_that_it_has_none():
    rows = [(m[1], m[3], int(m[4])) for m in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
    ids = [one for one, _, _ in rows]
    assert len(ids) == len(set(ids))
    wanted = {"C": 9, "N": 5, "I": 9, "S": 12, "X": 12, "F": 8, "E": 11, "B": 13, "D": 8}
    assert set(ids) == {f"{letter}{n}" for letter, most in wanted.items() for n in range(1, most + 1)}
    assert collected().keys() <= set(ids), "a test names an id that the page does not have"
    untested = {one for one, _, count in rows if not count}
    page = PAGE.read_text(encoding="utf-8")
    said = re.search(r"^Without a test of this name: (.*)\.$", page, re.MULTILINE)
    assert untested == (set(said[1].split(", ")) if said else set())


if __name__ == "__main__":
    PAGE.write_text(rewritten(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
