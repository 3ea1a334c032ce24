"""A model of others that tags words in pieces, as a `Tagger`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anaphora.data.tag_learnt import Learnt, Origin
from anaphora.data.tag_schemes import misfit
from anaphora.data.tokenizers.own import EngineTokenizer
from anaphora.errors import RunError
from anaphora.tasks.importing_parts import labels_of

_LONGEST = 256
"""Words of a sentence to train on; at prediction sentences may have any length."""


def of_tagger(
    folder: Path, config: dict[str, Any], s: dict[str, Any], tokenizer: EngineTokenizer
) -> dict[str, Any]:
    """What a `Tagger` has besides its model; the tags are the labels of the config, in their order."""
    tags, _ = labels_of(folder, config)
    if len(set(tags)) < max(2, len(tags)):
        raise RunError(
            f"{folder / 'config.json'} has fewer than two different labels in id2label; name them apart."
        )
    s |= {"hide_rare": 0.0, "max_tokens": _LONGEST}
    return {
        "tokenizer_": tokenizer,
        "learnt_": Learnt(tags, _scheme(tags), Origin(), framing="both"),
    }


def _scheme(tags: Sequence[str]) -> str:
    """What the tags mark, as far as their names say."""
    begins = [tag for tag in tags if tag.startswith("B-")]
    for scheme in ("bio", "bioes", "bilou"):
        if begins and misfit(scheme, list(tags)) is None:
            return scheme
    return "none"
