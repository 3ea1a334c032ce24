"""What the tensors of a model are cut by, from its settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.data.numbering import Numbering
from anaphora.foreign.hows import Sizes


def sizes_of(s: Mapping[str, Any], words: Numbering, target: Numbering | None = None) -> Sizes:
    """What the tensors of a model with these settings are cut by; ``target``: the symbols of the other side."""
    each = s.get("head_width") or s["hidden"] // s["heads"]
    shared = s.get("kv_heads") or s["heads"]
    return Sizes(
        {
            "hidden": s["hidden"],
            "inner": each * s["heads"],
            "heads": s["heads"],
            "kv_heads": shared,
            "kv_width": each * shared,
            "feedforward": s["feedforward"],
            "rotated": int(s.get("rotary_share", 1.0) * each),
            **{key: s[key] for key in ("patch", "channels") if key in s},
        },
        words,
        target,
    )
