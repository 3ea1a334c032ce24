"""What a tagger learns from: sentences with a tag for every word, or sequences of vectors with a label for every frame."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from anaphora.data.conll_sentences import open_sentences, reopen_sentences
from anaphora.data.framed import open_frames
from anaphora.data.reopening import check_kept, check_same, found_again
from anaphora.data.sources.holdout import open_parts, reopen_parts
from anaphora.data.sources.source import Source
from anaphora.data.vectors import VectorRows

TaggedRows = Source | VectorRows
"""Pairs whose second side are tags, separated by tabs; the first side are words, or an array ``(time, features)``."""


def open_tagged(data: Any, *, learnt: Mapping[str, Any] | None = None, **read: Any) -> TaggedRows:
    """The frames (see `open_frames`) or sentences (see `open_sentences`) that ``data`` names."""
    frames, data = open_frames(data, **read)
    return open_sentences(data, learnt=learnt, **read) if frames is None else frames


def open_training(
    data: Any, valid: Any | None, *, seed: int, holdout: float = 0, **read: Any
) -> tuple[TaggedRows, TaggedRows]:
    """``(train, dev)``: dev data are those given, an embedded corpus's own, or some sequences held out."""
    return open_parts(data, valid, partial(open_tagged, **read), seed=seed, holdout=holdout)


def reopen_training(
    descriptions: Mapping[str, Any], *, spill: Path | None = None
) -> tuple[TaggedRows, TaggedRows]:
    """``(train, dev)`` of a run again, as its config describes them."""
    return reopen_parts(descriptions, partial(_reopen, spill=spill))


def _reopen(description: Mapping[str, Any], spill: Path | None) -> TaggedRows:
    if description["kind"] != "vectors":
        return reopen_sentences(description, spill)
    check_kept(description["form"], "frames")
    if description["form"] == "corpus":
        rows = open_tagged(f"{description['name']}:{description['variant']}", role=description["split"])
        place = f"The corpus {description['name']}"
    else:
        place = str(found_again(description["path"], spill))
        given = (place, description["labels"]) if description["form"] == "arrays" else place
        kept = ("bad_rows", "source_field", "target_field")
        rows = open_tagged(given, **{key: description[key] for key in kept if key in description})
    check_same(rows, description, place)
    return rows
