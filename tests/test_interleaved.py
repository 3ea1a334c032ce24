"""``benchmarks/interleaved.py``: an old tree and this one, measured in turn."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parent.parent
BENCHMARK = """
import json, pathlib, sys
import taken
journal = pathlib.Path({journal!r})
journal.open("a").write(taken.NAME)
runs = journal.read_text().count(taken.NAME)
ours = taken.SECONDS * (3 if runs == 2 else 1)  # the second run is disturbed
print(json.dumps([
    {{"row": "a step", "peer": "theirs", "ours": ours, "theirs": 4.0, "unit": "s"}},
    {{"row": "a rate", "peer": "theirs", "ours": 1 / ours, "theirs": 4.0, "unit": "words/s"}},
    {{"row": "of " + taken.NAME, "peer": "theirs", "ours": 1.0, "theirs": 1.0, "unit": "s"}},
]))
"""


@pytest.fixture(scope="module")
def interleaved() -> ModuleType:
    path = ROOT / "benchmarks" / "interleaved.py"
    spec = importlib.util.spec_from_file_location("interleaved", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["interleaved"] = module
    spec.loader.exec_module(module)
    return module


def git(tree: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(tree), *who, *arguments], check=True, capture_output=True)


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository whose first commit takes 2 s, and which now takes 2.5 s."""
    root = tmp_path / "library"
    for folder in ("src", "benchmarks"):
        (root / folder).mkdir(parents=True)
    (root / "benchmarks" / "tiny.py").write_text(BENCHMARK.format(journal=str(tmp_path / "journal")))
    (root / "src" / "taken.py").write_text('NAME, SECONDS = "O", 2.0\n')
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-q", "-m", "Take two seconds")
    (root / "src" / "taken.py").write_text('NAME, SECONDS = "N", 2.5\n')
    return root


def test_both_trees_run_in_turn_and_a_slower_row_is_an_error(
    interleaved: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = interleaved.main(["--old", "HEAD", "--rounds", "3", "--json", "tiny --times 1"], tree)
    lines = {line["row"]: line for line in json.loads(capsys.readouterr().out)}
    assert status == 1
    assert (tree.parent / "journal").read_text() == "ONNOON"
    assert lines.keys() == {"a step", "a rate"}  # what only one tree has is not compared
    for line in lines.values():
        assert (line["least"], line["median"], line["peer's"]) == (1.25, 1.25, 1.0)
    assert (lines["a step"]["old"], lines["a step"]["new"]) == (2.0, 2.5)
    assert (lines["a rate"]["old"], lines["a rate"]["new"]) == (0.5, 0.4)
    worktrees = subprocess.run(["git", "-C", str(tree), "worktree", "list"], capture_output=True, text=True)
    assert len(worktrees.stdout.splitlines()) == 1  # the old tree is gone


def test_what_is_allowed_and_what_is_missing(
    interleaved: ModuleType, tree: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert interleaved.main(["--old", "HEAD", "--rounds", "1", "--allowed", "25", "tiny"], tree) == 0
    assert "| tiny | a step | theirs | 2 | 2.5 | s | 1.25 | 1.25 | 1 |" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        interleaved.main(["--old", "HEAD", "huge"], tree)
    assert "there is no benchmarks/huge.py" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="git has no tree of v9"):
        interleaved.main(["--old", "v9", "tiny"], tree)
