"""``make notebooks``: what it runs, that every notebook is the lesson's own source, and that one runs from its first cell to its last."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

import anaphora as an
from anaphora.cli import main
from printed import same_output
from test_docs import run_shell
from warm_command import commands_folder

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def notebooks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What the command of ``make notebooks`` writes, by the names of the lessons."""
    folder = tmp_path_factory.mktemp("notebooks") / "all"
    assert main.run(["learn", "--write", str(folder), "--force"]) == 0
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in folder.iterdir()}


@pytest.mark.skipif(shutil.which("make") is None, reason="there is no make here")
def test_the_target_runs_the_command() -> None:
    shown = subprocess.run(
        ["make", "-n", "notebooks"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    assert "/anaphora learn --write build/notebooks --force" in shown


def test_there_is_one_for_every_lesson_and_it_holds_its_source(notebooks: dict[str, dict[str, Any]]) -> None:
    assert sorted(notebooks) == [lesson.name for lesson in an.learn.lessons()]
    for lesson in an.learn.lessons():
        cells = notebooks[lesson.name]["cells"]
        assert ["".join(cell["source"]).removeprefix("%%bash\n") for cell in cells] == [
            block.text.strip("\n") for block in lesson.blocks()
        ]
        assert "".join(cells[0]["source"]).startswith(f"# {lesson.number}. {lesson.title}")


def test_they_are_valid(notebooks: dict[str, dict[str, Any]]) -> None:
    nbformat = pytest.importorskip("nbformat")
    for book in notebooks.values():
        nbformat.validate(nbformat.from_dict(book))


def test_one_runs(
    notebooks: dict[str, dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Jupyter runs it: one namespace, one folder, what is printed below each cell."""
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    compared = 0
    for cell in notebooks["03-hidden-states"]["cells"]:
        code = "".join(cell["source"])
        if cell["cell_type"] != "code":
            continue
        if code.startswith("%%bash\n"):
            run_shell(code.removeprefix("%%bash\n"), tmp_path, commands_folder())
            continue
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            exec(compile(code, cell["id"], "exec"), namespace)
        for output in cell["outputs"]:
            assert same_output("".join(output["text"]), said.getvalue()), cell["id"]
            compared += 1
    assert compared > 0
