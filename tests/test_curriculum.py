"""``docs/reference/curriculum.md``: no row of the lectures is missing, and every command of the table runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from test_docs import run_shell
from warm_command import commands_folder

PAGE = Path(__file__).resolve().parent.parent / "docs" / "reference" / "curriculum.md"
ROW = re.compile(r"^\| ([A-I]\d*b?) \| (.+?) \| (?:`(.+)`|to come) \|(.*)\|$", re.MULTILINE)
IDS = [
    *(f"A{n}" for n in range(1, 6)),
    *(f"B{n}" for n in range(1, 5)),
    *("C1", "C2", "C3", "C4", "C5", "C6", "C7", "C7b", "C8", "C9", "C9b", "C10", "C10b"),
    *("D1", "D2", "D3", "D3b", "D4"),
    *("E1", "E2", "E3", "E4", "E4b", "E5", "E6", "E7", "E8", "E8b", "E9", "E10"),
    *("F1", "F2", "F3", "F4", "F5", "F6", "F7", "F7b", "F8"),
    *(f"G{n}" for n in range(1, 7)),
    "H",
    *(f"I{n}" for n in range(1, 6)),
]
ROWS = [(m[1], m[3]) for m in ROW.finditer(PAGE.read_text(encoding="utf-8"))]
SECTIONS = sorted({name[0] for name, command in ROWS if command})
NEEDS = {"E": "AD", "F": "ADE", "G": "", "H": "A", "C": "A", "I": "B"}
"""Sections whose runs a section uses; their commands run first where they have not yet."""


def test_every_row_of_the_lectures_is_there_once() -> None:
    assert [name for name, _ in ROWS] == IDS


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands run, with the page's data in it."""
    place = tmp_path_factory.mktemp("curriculum")
    (setup,) = re.findall(r"^```bash\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    run(setup, place)
    return place


def run(code: str, folder: Path) -> None:
    run_shell(code, folder, commands_folder(), short=True)


done: set[str] = set()
"""The tests of a file run in one process (conftest.py), so that no section trains the runs of another again."""


@pytest.mark.parametrize("section", SECTIONS)
def test_every_command_runs(section: str, folder: Path) -> None:
    for part in [*NEEDS.get(section, ""), section]:
        if part in done:
            continue
        for name, command in ROWS:
            if name[0] == part and command:
                run(command, folder)
        done.add(part)
