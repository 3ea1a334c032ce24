"""A tokenizer as ``tokenizer.json`` for others: our ids, and what stands round every text."""

from __future__ import annotations

import json
from typing import Any

from anaphora.data.symbols import SPELLINGS
from anaphora.data.tokenizers import Tokenizer
from anaphora.data.tokenizers_own import CutTokenizer, EngineTokenizer
from anaphora.errors import AnaphoraError

_SHIFT = len(SPELLINGS)


def tokenizer_json(
    tokenizer: Tokenizer, *, before: int | None = None, after: int | None = None
) -> dict[str, Any]:
    """The tokenizer in the format of the `tokenizers` library, with the symbols of the model; ``before`` and ``after`` each
    text it puts the symbols of these ids. One that came from others is written as it came."""
    if isinstance(tokenizer, CutTokenizer):
        raise AnaphoraError(
            "the tokenizer is a function of your own, which no file can hold; export to onnx instead."
        )
    if isinstance(tokenizer, EngineTokenizer):
        found: dict[str, Any] = json.loads(tokenizer.engine.to_str())
        if any(i is not None for i in tokenizer.numbering.special):
            return found
        found = _shifted(found)
    else:
        found = json.loads(tokenizer.to_json())
    found["post_processor"] = _template(tokenizer, before, after)
    found["added_tokens"] = _added(found)
    return found


def _template(tokenizer: Tokenizer, before: int | None, after: int | None) -> dict[str, Any] | None:
    """What the library calls TemplateProcessing."""
    if before is None and after is None:
        return None
    spellings = tokenizer.spellings
    first, last = (
        [] if i is None else [{"SpecialToken": {"id": spellings[i], "type_id": 0}}] for i in (before, after)
    )
    one: list[dict[str, Any]] = [*first, {"Sequence": {"id": "A", "type_id": 0}}, *last]
    used = {i for i in (before, after) if i is not None}
    return {
        "type": "TemplateProcessing",
        "single": one,
        "pair": [*one, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {
            spellings[i]: {"id": spellings[i], "ids": [i], "tokens": [spellings[i]]} for i in sorted(used)
        },
    }


def _added(found: dict[str, Any]) -> list[dict[str, Any]]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    ours = [{"id": i, "content": spelling, **flags} for i, spelling in enumerate(SPELLINGS)]
    return [*ours, *(one for one in found.get("added_tokens", []) if one["id"] >= _SHIFT)]


def _shifted(found: dict[str, Any]) -> dict[str, Any]:
    """Every id four higher, with our special symbols before them."""
    vocabulary = found["model"]["vocab"]
    known = (
        vocabulary if isinstance(vocabulary, dict) else {piece: i for i, (piece, _) in enumerate(vocabulary)}
    )
    if taken := [one for one in SPELLINGS if one in known]:
        raise AnaphoraError(
            f"the tokenizer has a symbol {taken[0]} beside ours of that name, which one file cannot hold; export to onnx instead."
        )
    model = dict(found["model"])
    if isinstance(vocabulary, dict):
        model["vocab"] = {
            **{one: i for i, one in enumerate(SPELLINGS)},
            **{k: i + _SHIFT for k, i in vocabulary.items()},
        }
    else:
        model["vocab"] = [*([one, -1e9] for one in SPELLINGS), *vocabulary]
        if model.get("unk_id") is not None:
            model["unk_id"] += _SHIFT
    added = [{**one, "id": one["id"] + _SHIFT} for one in found.get("added_tokens", [])]
    return {**found, "model": model, "added_tokens": added}
