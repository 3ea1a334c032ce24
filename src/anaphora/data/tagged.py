"""What a tagger learns from: sentences with a tag for every word, or sequences of vectors with a label for every frame."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.data.conll_sentences import open_sentences
from anaphora.data.framed import open_frames
from anaphora.data.opening import Reader
from anaphora.data.table import Table


def open_tagged(
    data: Any, *, learnt: Mapping[str, Any] | None = None, facts: Mapping[str, Any] | None = None, **read: Any
) -> Table:
    """Open the frames (see `open_frames`) or sentences (see `open_sentences`) that ``data`` names."""
    if facts is None or facts["kind"] == "vectors":
        frames, data = open_frames(data, **read)
        if frames is not None:
            return frames
    return open_sentences(data, learnt=learnt, facts=facts, **read)


def _called(facts: Mapping[str, Any]) -> str:
    if facts["kind"] == "vectors":
        return "frames"
    return "examples" if "pairs" in facts else "sentences"


TAGGED_READER = Reader(open_tagged, what=_called)
