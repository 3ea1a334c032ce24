"""Small faults in Python sources: where each kind can be put, and a draw of some for every folder.

A fault replaces one expression or statement by another; the rest of the file keeps its bytes and its first lines of
functions. Texts, annotations, messages of errors and what only a type checker reads are left alone.
"""

from __future__ import annotations

import ast
import copy
import random
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

LEAST = 4
"""Faults a folder gets where there are enough of them for all."""
TOP = "(top)"
"""The modules that lie in no folder of the package; they get some of what the folders leave over."""
_MASKS = re.compile(r"mask|real|valid|seen|padding|lengths")
_CHECKS = re.compile(r"^_?(check|refuse|require|forbid|ensure|verify)(_|$)")
_OPPOSITES = {
    "min": "max", "amin": "amax", "argmin": "argmax", "minimum": "maximum", "any": "all", "floor": "ceil",
    "zeros": "ones", "zeros_like": "ones_like", "cumsum": "cumprod", "triu": "tril",
}  # fmt: skip
_OPPOSITE = {**_OPPOSITES, **{other: one for one, other in _OPPOSITES.items()}}
_COMPARED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In,
}  # fmt: skip
_ADDED: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_MULTIPLIED: dict[type[ast.operator], type[ast.operator]] = {ast.Mult: ast.Div, ast.Div: ast.Mult}


@dataclass(frozen=True)
class Fault:
    """``before``, which stands from byte ``start`` on in the file ``path`` of the package, becomes ``after``.

    ``function`` is the qualified name of the innermost function around it, and ``first`` the line with which its code
    object begins; no name and 0 where it runs when the module is imported.
    """

    path: str
    line: int
    start: int
    kind: str
    before: str
    after: str
    function: str = ""
    first: int = 0

    @property
    def folder(self) -> str:
        return self.path.partition("/")[0] if "/" in self.path else TOP

    @property
    def name(self) -> str:
        return f"{self.path}:{self.line}:{self.start}:{self.kind}"

    def __str__(self) -> str:
        before, after = (" ".join(text.split()) for text in (self.before, self.after))
        return f"{self.path}:{self.line} {self.kind}: {before[:70]} → {after[:70]}"

    def apply(self, text: bytes) -> bytes:
        """Return the text of the file with the fault in it."""
        before = self.before.encode()
        end = self.start + len(before)
        if text[self.start : end] != before:
            raise ValueError(f"{self.path} has changed since this fault was drawn; draw again.")
        return text[: self.start] + self.after.encode() + text[end:]


def _masked(node: ast.expr) -> ast.expr | None:
    """Return the expression without its mask, or None where it has none."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        for mask, other in ((node.right, node.left), (node.left, node.right)):
            if isinstance(mask, ast.Name | ast.Attribute | ast.Subscript | ast.Call) and _MASKS.search(
                ast.unparse(mask)
            ):
                return other
    if not isinstance(node, ast.Call):
        return None
    called = node.func
    if isinstance(called, ast.Attribute) and called.attr.startswith("masked_fill"):
        return called.value
    if isinstance(called, ast.Attribute) and called.attr == "where" and len(node.args) >= 2:
        return node.args[1] if len(node.args) == 3 else called.value
    for keyword in node.keywords:
        if keyword.arg and _MASKS.search(keyword.arg) and not isinstance(keyword.value, ast.Constant):
            left = copy.copy(node)
            left.keywords = [one for one in node.keywords if one is not keyword]
            return left
    return None


def _changed(node: ast.AST, **fields: object) -> ast.AST:
    other = copy.copy(node)
    for name, value in fields.items():
        setattr(other, name, value)
    return other


def _expressions(node: ast.AST, parent: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    """Give the faults that replace this expression: kind and replacement."""
    if isinstance(node, ast.BinOp):
        texts = (ast.Constant, ast.JoinedStr, ast.List, ast.Tuple, ast.ListComp)
        whole = not any(
            isinstance(side, texts)
            and not (isinstance(side, ast.Constant) and isinstance(side.value, int | float))
            for side in (node.left, node.right)
        )
        for kind, table in (("sign", _ADDED), ("factor", _MULTIPLIED)):
            if whole and type(node.op) in table:
                yield kind, _changed(node, op=table[type(node.op)]())
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        yield "sign", node.operand
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield "logic", node.operand
    if isinstance(node, ast.BoolOp):
        yield "logic", _changed(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    if isinstance(node, ast.Compare) and type(node.ops[0]) in _COMPARED:
        yield "comparison", _changed(node, ops=[_COMPARED[type(node.ops[0])](), *node.ops[1:]])
    if isinstance(node, ast.Constant) and type(node.value) is int:
        near = (ast.Subscript, ast.Slice, ast.Compare, ast.BinOp, ast.UnaryOp, ast.Tuple)
        if isinstance(parent, near) or _name(parent) in ("range", "arange"):
            yield "off by one", ast.Constant(node.value + 1)
    if isinstance(node, ast.Constant) and type(node.value) is bool:
        yield "flag", ast.Constant(not node.value)
    if isinstance(node, ast.expr) and (without := _masked(node)) is not None:
        yield "mask", without
    if isinstance(node, ast.Call):
        name = _name(node)
        if name == "range" and len(node.args) <= 2:
            last = ast.BinOp(node.args[-1], ast.Sub(), ast.Constant(1))
            yield "off by one", _changed(node, args=[*node.args[:-1], last])
        if name in _OPPOSITE:
            func = node.func
            other = {"id": _OPPOSITE[name]} if isinstance(func, ast.Name) else {"attr": _OPPOSITE[name]}
            yield "opposite", _changed(node, func=_changed(func, **other))
        simple = all(isinstance(one, ast.Name | ast.Attribute | ast.Subscript) for one in node.args[:2])
        if len(node.args) >= 2 and simple and name not in ("isinstance", "issubclass", "getattr", "setattr"):
            one, other_one, *more = node.args
            if ast.dump(one) != ast.dump(other_one):
                yield "arguments", _changed(node, args=[other_one, one, *more])


def _statements(node: ast.AST) -> Iterator[tuple[str, ast.AST, ast.AST]]:
    """Give the faults that replace a part of this statement: kind, part and replacement."""
    if isinstance(node, ast.If) and isinstance(node.body[-1], ast.Raise) and not node.orelse:
        yield "check", node.test, ast.Constant(False)
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Call):
        kind = "check" if _CHECKS.match(_name(node.value)) else "statement"
        yield kind, node, ast.Pass()
    if isinstance(node, ast.AugAssign) and type(node.op) in _ADDED:
        yield "sign", node, _changed(node, op=_ADDED[type(node.op)]())


def _name(node: ast.AST) -> str:
    """Return the last name of what a call calls."""
    if not isinstance(node, ast.Call):
        return ""
    func = node.func
    return func.id if isinstance(func, ast.Name) else func.attr if isinstance(func, ast.Attribute) else ""


def faults_of(path: str, text: bytes) -> Iterator[Fault]:
    """Give every fault that one file can have, in the order of the file."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def put(kind: str, part: ast.AST, other: ast.AST, function: str, first: int) -> Fault:
        assert isinstance(part, ast.expr | ast.stmt)
        assert part.end_lineno is not None
        assert part.end_col_offset is not None
        start = starts[part.lineno - 1] + part.col_offset
        before = text[start : starts[part.end_lineno - 1] + part.end_col_offset].decode()
        after = ast.unparse(ast.fix_missing_locations(other))
        if not isinstance(other, ast.stmt | ast.Constant | ast.Name):
            after = f"({after})"
        return Fault(path, part.lineno, start, kind, before, after, function, first)

    def visit(node: ast.AST, parent: ast.AST, names: tuple[str, ...], first: int) -> Iterator[Fault]:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            return
        function = ".".join(names) if first else ""
        for kind, part, other in _statements(node):
            yield put(kind, part, other, function, first)
        for kind, other in _expressions(node, parent):
            yield put(kind, node, other, function, first)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names, first = (
                (*names, node.name),
                min([node.lineno, *(one.lineno for one in node.decorator_list)]),
            )
            children: list[ast.AST] = [*node.args.defaults, *filter(None, node.args.kw_defaults), *node.body]
        elif isinstance(node, ast.ClassDef):
            names, children = (*names, node.name), list(node.body)
        elif isinstance(node, ast.AnnAssign):
            children = [node.value] if node.value is not None else []
        else:
            children = list(ast.iter_child_nodes(node))
        for child in children:
            yield from visit(child, node, names, first)

    whole = ast.parse(text)
    yield from visit(whole, whole, (), 0)


def draw(root: Path, seed: int, count: int) -> list[Fault]:
    """Draw so many faults of the package in ``root``, shared out among its folders and their kinds of faults."""
    dice = random.Random(seed)
    folders: dict[str, dict[str, list[Fault]]] = {}
    for file in sorted(root.rglob("*.py")):
        for fault in faults_of(file.relative_to(root).as_posix(), file.read_bytes()):
            folders.setdefault(fault.folder, {}).setdefault(fault.kind, []).append(fault)
    least = min(LEAST, count // max(1, len(folders) - (TOP in folders)))
    shares = {name: 0 if name == TOP else least for name in sorted(folders)}
    weights = [sum(map(len, folders[name].values())) for name in shares]
    for name in dice.choices(list(shares), weights, k=max(0, count - sum(shares.values()))):
        shares[name] += 1
    drawn = []
    for name, share in shares.items():
        order = sorted(folders[name])
        dice.shuffle(order)
        for number in range(share):
            places = folders[name][order[number % len(order)]]
            drawn.append(places.pop(dice.randrange(len(places))))
            folders[name] = {kind: left for kind, left in folders[name].items() if left}
            order = [kind for kind in order if kind in folders[name]]
    return drawn
