"""The projects of ``examples/`` run from start to end, with a few steps of training."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from anaphora.cli import main

FOLDER = Path(__file__).resolve().parent.parent / "examples"
DATA = {
    "reviews": ("reviews", ".tsv"),
    "dates": ("dates", ".tsv"),
    "own_cell": ("adding:10", ".jsonl"),
    "names": ("names", ".tsv"),
    "spring": ("waves", ".csv"),
    "writing": ("python:names", ".txt"),
}
EXAMPLES = sorted(FOLDER.glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 80
    corpus, ending = DATA[path.stem]
    data = tmp_path / f"data{ending}"
    assert main.run(["corpora", corpus, "--write", str(data), "--size", "200"]) == 0
    arguments = [str(data), "--steps", "2", "--out", str(tmp_path / "out")]
    monkeypatch.setattr(sys, "argv", [path.name, *arguments])
    runpy.run_path(str(path), run_name="__main__")
    assert str(tmp_path / "out") in capsys.readouterr().out
    assert any(file.suffix in (".svg", ".html") for file in (tmp_path / "out").iterdir())


def test_the_list_names_them_all() -> None:
    text = (FOLDER / "README.md").read_text(encoding="utf-8")
    assert len(EXAMPLES) == 6
    assert all(f"| `{path.name}` |" in text for path in EXAMPLES)
