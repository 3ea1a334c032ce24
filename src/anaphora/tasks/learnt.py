"""What a run keeps besides weights: ``tokenizer.json`` for symbols, ``learnt.json`` for anything else."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeVar

from anaphora.data.tokenizers import PairTokenizer, Tokenizer
from anaphora.errors import DataError, RunError
from anaphora.files import parse_json
from anaphora.training.run import RunFolder

T = TypeVar("T", Tokenizer, PairTokenizer)


def read_tokenizer(run: RunFolder, kind: type[T]) -> T:
    """The tokenizer of a run, or a `RunError` in one sentence."""
    try:
        return kind.from_json(run.read_text("tokenizer.json"))
    except DataError as error:
        raise RunError(f"{run.tokenizer}: {error}") from None


def write_learnt(run: RunFolder, version: int, facts: Mapping[str, Any]) -> None:
    """Write ``learnt.json`` in the task's format ``version``."""
    text = json.dumps({"format": version, **facts}, ensure_ascii=False, indent=1)
    run.write_text("learnt.json", text + "\n")


@contextmanager
def reading_learnt(run: RunFolder, version: int) -> Iterator[dict[str, Any]]:
    """``learnt.json``; whatever is wrong with it, also while it is taken apart, becomes a `RunError` in one sentence."""
    try:
        learnt = parse_json(run.read_text("learnt.json"))
        if learnt["format"] != version:
            raise ValueError(f"its format is {learnt['format']!r}, this version reads {version}")
        yield learnt
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise RunError(f"{run.learnt} cannot be used ({error}); restore it from a copy of the run.") from None
