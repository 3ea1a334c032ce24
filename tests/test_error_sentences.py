"""Every sentence that an error is raised with, as the source spells it: with a short path it has at most 160 characters."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import anaphora
from anaphora import errors
from anaphora.errors import AnaphoraError

SOURCE = Path(anaphora.__file__).parent
LONGEST = 160
SHORT = "runs/of-mine/labels-7.tsv"
PATHS = {"path", "file", "folder", "place", "where", "out", "source", "run", "target", "home", "name"}
"""What the variables are called that stand for a path in a sentence, by their last word but one."""
RAISED = {
    name for name, one in vars(errors).items() if isinstance(one, type) and issubclass(one, AnaphoraError)
}


def spelled(node: ast.expr) -> str:
    """The sentence of an expression: with `SHORT` for what may be a path, and a number for anything else."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(spelled, node.values))
    if isinstance(node, ast.BinOp):
        return spelled(node.left) + spelled(node.right)
    value = node.value if isinstance(node, ast.FormattedValue) else node
    last = ast.unparse(value).split(".")[-1].partition("_")[0]
    return SHORT if isinstance(value, ast.Name | ast.Attribute) and last in PATHS else "7"


def sentences() -> Iterator[tuple[str, str]]:
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Name)
                and node.func.id in RAISED
                and node.args
            ):
                yield f"{path.relative_to(SOURCE)}:{node.lineno}", spelled(node.args[0])


def test_every_sentence_leaves_room_for_its_paths():
    found = list(sentences())
    assert sum(SHORT in sentence for _, sentence in found) > 500
    assert {place: len(one) for place, one in found if SHORT in one and len(one) > LONGEST} == {}
