"""``make quick`` finds the tests that are nearest to what changed, and says what it leaves out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "tools"))

import quick

FILES = {
    "src/anaphora/__init__.py": "from anaphora.nn.gru import GRU as GRU",
    "src/anaphora/nn/__init__.py": "from anaphora.nn.gru import (\n    GRU,  # of 2014\n)",
    "src/anaphora/nn/gru.py": "from anaphora.nn.part import part",
    "src/anaphora/nn/part.py": "HEADER = 'part.h'",
    "src/anaphora/nn/lstm.py": "",
    "src/anaphora/tasks/tag.py": "from anaphora import nn\nused = nn.GRU",
    "tests/nn/test_gru.py": "import anaphora as an\ndef test_a(): an.GRU",
    "tests/nn/test_lstm.py": "from anaphora.nn.lstm import LSTM\ndef test_a(): pass\ndef test_b(): pass",
    "tests/nn/test_part.py": "def test_a():\n    import anaphora.nn.part",
    "tests/tasks/test_tag.py": "import tiny\ndef test_a(): pass",
    "tests/tasks/test_both.py": "from tiny import x\nfrom anaphora.nn import part, lstm\ndef test_a(): pass",
    "tests/tasks/tiny.py": "from anaphora.tasks import tag",
    "tests/tasks/kept/run.json": "{}",
}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> quick.Tree:
    root = tmp_path_factory.mktemp("tree")
    for place, text in FILES.items():
        path = root / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return quick.Tree(root)


@pytest.mark.parametrize(
    ("changed", "found"),
    [
        ("src/anaphora/nn/part.py", {"nn/part": 1, "tasks/both": 1, "nn/gru": 2, "tasks/tag": 4}),
        ("src/anaphora/nn/part.h", {"nn/part": 2, "tasks/both": 2, "nn/gru": 3, "tasks/tag": 5}),
        ("src/anaphora/nn/lstm.py", {"nn/lstm": 1, "tasks/both": 1}),
        ("src/anaphora/tasks/tag.py", {"tasks/tag": 2, "tasks/both": 2}),
        ("tests/nn/test_gru.py", {"nn/gru": 0}),
        ("tests/tasks/kept/run.json", {"tasks/tag": 1, "tasks/both": 1}),
        ("src/anaphora/nn/gone.py", {}),
    ],
)
def test_the_nearest_tests_are_found(tree: quick.Tree, changed: str, found: dict[str, int]) -> None:
    distances = tree.distances([changed])
    wanted = {f"tests/{name.replace('/', '/test_')}.py": far for name, far in found.items()}
    assert {place: far for place, far in distances.items() if "/test_" in place} == wanted


def test_the_nearest_are_chosen_until_the_time_is_spent(tree: quick.Tree) -> None:
    part = "src/anaphora/nn/part.py"
    seconds = {"tests/nn/test_part.py::test_a": 1.0, "tests/tasks/test_both.py::test_a": 1.0}
    seconds |= {"tests/nn/test_part.py::test_long": 9.0, "tests/nn/test_gru.py::test_a": 1.5}
    found = quick.choose(tree, [part], seconds, most=2.2)
    assert found.files == ["tests/nn/test_part.py", "tests/tasks/test_both.py", "tests/tasks/test_tag.py"]
    assert found.further == ["tests/nn/test_gru.py"]
    assert [found._is_long(name) for name in seconds] == [False, False, True, False]
    changed = [part, "tests/nn/test_gru.py", "tests/nn/test_part.py"]
    both = quick.choose(tree, changed, seconds, most=2.5)
    assert set(both.files) == {"tests/nn/test_gru.py", "tests/nn/test_part.py"}
    assert [both._is_long(name) for name in seconds] == [False, False, True, False]  # the quickest come first
    room = quick.choose(tree, changed, seconds, most=20.0)
    assert not any(room._is_long(name) for name in seconds)


def test_a_page_that_has_changed_runs_however_long_it_takes() -> None:
    name = "tests/test_docs.py::test_every_block_runs[cells.md]"
    long = [
        quick.Choice([], [], {name: 9.0}, {page})._is_long(name)
        for page in ("docs/cells.md", "docs/gates.md")
    ]
    assert long == [False, True]


def test_what_changed_is_what_git_says(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-c", "user.name=a", "-c", "user.email=a@b", *words],
            cwd=tmp_path,
            check=True,
            capture_output=True,
        )

    git("init", "-b", "main")
    for name in ("a", "b"):
        (tmp_path / name).write_text("1")
    git("add", ".")
    git("commit", "-m", "first")
    git("checkout", "-b", "work")
    (tmp_path / "a").write_text("2")
    git("commit", "-am", "second")
    (tmp_path / "b").write_text("2")
    (tmp_path / "c").write_text("new")
    assert quick.changed_since("main", tmp_path) == ["a", "b", "c"]
    with pytest.raises(
        quick.Problem, match=r"^git merge-base nowhere: .*; name another commit: make quick BASE=…$"
    ):
        quick.changed_since("nowhere", tmp_path)


def test_the_tree_of_this_repository_leads_from_a_module_to_its_tests() -> None:
    tree = quick.Tree(quick.ROOT)
    module = "src/anaphora/models/classical/kalman/model.py"
    near = sorted((far, place) for place, far in tree.distances([module]).items() if "/test_" in place)
    assert any(place == "tests/models/test_kalman.py" for far, place in near if far <= 2)
    assert quick.choose(tree, [module], {}).files[0].startswith("tests/models/")
