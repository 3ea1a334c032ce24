"""Pairs that come from Python: checked one by one, held in memory or written to a file that can be opened again."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from anaphora.data.files import Verdict
from anaphora.data.jsonl_reader import text_problem
from anaphora.data.pairs import MemoryPairs, Pair
from anaphora.data.spilling import written_whole


def hold_examples(examples: Iterable[Pair], role: str, bad_rows: str) -> MemoryPairs:
    """The examples in memory."""
    verdict = Verdict(f"{role} examples", bad_rows)
    pairs = list(_checked(examples, verdict))
    verdict.require(len(pairs))
    return MemoryPairs(pairs, {"kind": "memory", "skipped": dict(verdict.skipped)})


def spill_examples(
    examples: Iterable[Pair],
    role: str,
    bad_rows: str,
    folder: Path,
    names: tuple[str, str] = ("source", "target"),
) -> tuple[Path, Verdict]:
    """Write the examples to ``folder/<role>.jsonl``, its two fields called ``names``; the file appears when it is
    complete, or not at all."""
    verdict = Verdict(f"{role} examples", bad_rows)
    path = folder / f"{role}.jsonl"
    rows = 0
    with written_whole(path) as file:
        for source, target in _checked(examples, verdict):
            row = {names[0]: source, names[1]: target}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            rows += 1
        verdict.require(rows)
    return path, verdict


def _checked(examples: Iterable[Pair], verdict: Verdict) -> Iterator[Pair]:
    for number, example in enumerate(examples, start=1):
        if problem := _problem(example):
            verdict.reject(number, *problem)
        else:
            source, target = example
            yield source, target


def _problem(example: object) -> tuple[str, str] | None:
    if not isinstance(example, tuple | list) or len(example) != 2:
        return "not a pair of texts", f"a {type(example).__name__}"
    for name, text in zip(("source", "target"), example, strict=True):
        if not isinstance(text, str):
            return "not a pair of texts", f"its {name} is a {type(text).__name__}"
        if problem := text_problem(text):
            return problem, name
    return None
