"""``anaphora learn``, notebooks, scripts, and what is refused; the columns of the curriculum and the list of lessons."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

import anaphora as an
from anaphora.cli import main
from anaphora.errors import AnaphoraError
from anaphora.learn.notebook import notebook, script
from anaphora.learn.page import Lesson
from test_curriculum import PAGE, ROWS

LESSONS = an.learn.lessons()
LIST = Path(__file__).resolve().parents[2] / "docs" / "learn" / "README.md"
TINY = Lesson(
    3,
    "03-tiny",
    "Tiny",
    ("A1",),
    "# 3. Tiny\n\nWhy?\n\n```text\nx = 1\n```\n\nSo:\n\n```python\nprint(1)\n```\n\n```text\n1\n```\n\nThen:\n\n```bash\nls\n```\n",
)


def test_blocks_of_a_page() -> None:
    text, code, then, shell = TINY.blocks()
    assert (text.kind, text.line) == ("markdown", 1)
    assert "```text\nx = 1\n```" in text.text  # an equation stays in the text
    assert (code.kind, code.text, code.output, code.line) == ("python", "print(1)\n", "1\n", 12)
    assert then.text.strip() == "Then:"
    assert (shell.kind, shell.text) == ("bash", "ls\n")


def test_a_notebook_has_what_the_format_asks_for() -> None:
    for lesson in LESSONS:
        found: dict[str, Any] = json.loads(notebook(lesson))
        assert (found["nbformat"], found["nbformat_minor"]) == (4, 5)
        cells = found["cells"]
        assert len({cell["id"] for cell in cells}) == len(cells)
        for cell in cells:
            assert re.fullmatch(r"[a-zA-Z0-9-_]{1,64}", cell["id"])
            fields = {"cell_type", "id", "metadata", "source"}
            more = {"execution_count", "outputs"} if cell["cell_type"] == "code" else set()
            assert set(cell) == fields | more
            assert all(isinstance(line, str) for line in cell["source"])
        code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
        assert [one for one in code if not one.startswith("%%bash")] == [
            block.text.strip("\n") for block in lesson.blocks() if block.kind == "python"
        ]
    shown = json.loads(notebook(TINY))["cells"][1]["outputs"]
    assert shown == [{"output_type": "stream", "name": "stdout", "text": ["1\n"]}]


def test_a_script_is_the_code_with_the_text_as_comments() -> None:
    for lesson in LESSONS:
        code = "".join(block.text for block in lesson.blocks() if block.kind == "python")
        assert ast.dump(ast.parse(script(lesson))) == ast.dump(ast.parse(code))


def test_the_command_lists_shows_and_writes(tmp_path: Path, capsys: Any) -> None:
    assert main.run(["learn"]) == 0
    listed = capsys.readouterr().out
    assert all(lesson.title in listed for lesson in LESSONS)
    assert main.run(["learn", "14"]) == 0
    assert "linear recurrences" in capsys.readouterr().out
    assert main.run(["learn", "--json"]) == 0
    assert [row["lesson"] for row in json.loads(capsys.readouterr().out)] == [one.number for one in LESSONS]
    path = tmp_path / "one.ipynb"
    assert main.run(["learn", "14", "--write", str(path)]) == 0
    assert json.loads(path.read_text())["cells"]
    assert main.run(["learn", "14", "--write", str(path)]) == 2
    assert "--force replaces it" in capsys.readouterr().err
    assert main.run(["learn", "--write", str(tmp_path / "all"), "--json"]) == 0
    assert len(json.loads(capsys.readouterr().out)["files"]) == len(LESSONS)
    assert len(list((tmp_path / "all").iterdir())) == len(LESSONS)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["99"], "there is no lesson 99; there are"),
        (["14", "--write", "lesson.docx"], "a lesson is written as .ipynb, .py or .md"),
        (["--write", "all.ipynb"], "name a folder"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    arguments: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main.run(["learn", *arguments]) == 2
    assert why in capsys.readouterr().err


def test_in_a_terminal_the_page_is_set(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("anaphora.cli.output.colour_for", lambda stream: True)
    assert main.run(["learn", "14"]) == 0
    shown = capsys.readouterr().out
    assert "## The equation" not in shown  # a heading, not its Markdown
    assert "The equation" in shown


@pytest.mark.parametrize("name", ["14", "14.4", "x", "99.1", "14.2.1"])
def test_an_exercise_that_does_not_exist(name: str) -> None:
    with pytest.raises(AnaphoraError, match=r"is not an exercise|there is no lesson"):
        an.learn.check(name, 1)


def test_an_answer_that_fails_is_wrong() -> None:
    def broken(first: object, second: object) -> object:
        raise ZeroDivisionError("oops")

    verdict = an.learn.check("14.2", broken)
    assert not verdict
    assert repr(verdict) == "14.2: not yet. Trying your answer out failed with ZeroDivisionError: oops"


def test_answers_stand_in_no_page() -> None:
    for lesson in LESSONS:
        assert "SOLUTION" not in lesson.source
        assert "solution" not in lesson.section("Exercises").lower()


def test_every_row_of_the_curriculum_leads_to_its_lesson_and_its_command() -> None:
    """Row → lesson → command: the table has the rows of the curriculum, whose commands tests/test_curriculum.py runs."""
    taught = {row: lesson for lesson in LESSONS for row in lesson.rows}
    assert sum(len(lesson.rows) for lesson in LESSONS) == len(taught)  # one lesson for each row
    sections = dict(re.findall(r"^## (([A-I])\. .+)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))
    anchors = {
        letter: re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title, letter in sections.items()
    }
    found = re.findall(
        r"^\| ([A-I]\d*b?) \| (.+) \| (.+) \|$", LIST.read_text(encoding="utf-8"), re.MULTILINE
    )
    wanted = []
    for row, _ in ROWS:
        lesson = taught[row]
        wanted.append(
            (
                row,
                f"[{lesson.number}]({lesson.name}.md)",
                f"[{row[0]}](../reference/curriculum.md#{anchors[row[0]]})",
            )
        )
    assert found == wanted


def test_the_list_names_every_lesson() -> None:
    text = LIST.read_text(encoding="utf-8")
    for lesson in LESSONS:
        assert f"| {lesson.number} | [{lesson.title}]({lesson.name}.md) |" in text


def test_facts_of_the_lectures_stand_in_their_lessons() -> None:
    text = LIST.read_text(encoding="utf-8").split("## Facts of the lectures")[1]
    facts = re.findall(r"^\| (00[\d–, ]+) \| `(.+)` \| \[(\d+)\]\((.+)\.md\) \|$", text, re.MULTILINE)
    assert len(facts) == text.count("\n| 0") > 30
    sources = {lesson.number: lesson for lesson in LESSONS}
    for _, fact, number, name in facts:
        assert sources[int(number)].name == name
        assert fact.replace("\\|", "|") in sources[int(number)].source, fact
    decks = set().union(*(_decks(named) for named, *_ in facts))
    assert decks == {0, 1, 2, 3, 4}


def _decks(named: str) -> set[int]:
    """``000–002, 004`` → 0, 1, 2, 4."""
    found: set[int] = set()
    for part in named.split(", "):
        first, _, last = part.partition("–")
        found |= set(range(int(first), int(last or first) + 1))
    return found
