"""Which of several named fields hold the source and the target."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from anaphora.errors import DataError

USUAL = (("source", "target"), ("src", "tgt"), ("text", "label"), ("path", "label"))


def choose_fields(
    where: str, names: Sequence[str], source: str | None, target: str | None
) -> tuple[str, str]:
    """The two fields asked for, else a usual pair of names, else the first two."""
    usual = next((pair for pair in USUAL if set(pair) <= set(names)), tuple(names[:2]))
    if len(usual) < 2:
        raise DataError(f"{where} has only the field {', '.join(names) or '(none)'}; a pair needs two.")
    chosen = (source or usual[0], target or usual[1])
    for name in chosen:
        if name not in names:
            near = difflib.get_close_matches(name, names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(names[:20])}."
            raise DataError(f"{where} has no field {name}; {hint}")
    if chosen[0] == chosen[1]:
        raise DataError(
            f"{where}: source and target are both {chosen[0]}; name source_field and target_field."
        )
    return chosen
