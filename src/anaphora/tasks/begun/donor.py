"""The model that ``init`` names, and what may not differ from it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import RunError, SettingsError
from anaphora.settings.base import written
from anaphora.settings.own import trusting


def differing(
    given: Mapping[str, Any], values: Mapping[str, Any], path: str | Path, by: str = "init"
) -> list[str]:
    """A sentence for each setting that was given and is not that in ``values``, of the model at ``path``, which ``by`` names."""
    return [
        f"{key} = {written(given[key])} differs from {written(value)} of {path}, which {by} names; leave {key} out."
        for key, value in sorted(values.items())
        if key in given and given[key] != value
    ]


def only_donor(m: Any, *, name: str, wanted: str, serves: Callable[[Any], bool]) -> Any:
    """The one model that ``init`` of ``m`` names, on the CPU.

    A `SettingsError` where it names several, a `RunError` where the model does not serve ``m``, ``name`` in sentences, which
    goes on from ``wanted``.
    """
    from anaphora.tasks.load import load

    names = m.settings_.donors
    if len(names) != 1:
        raise SettingsError(
            [f"init = {written(m.settings_.init)} must name one model for {name} to go on from."]
        )
    found: Any = load(Path(names[0]), device="cpu", trust=trusting())
    if not serves(found):
        what = f"a {type(found).__name__} of the preset {found.settings_.model}"
        raise RunError(f"{names[0]} is {what}, but {name} goes on from {wanted}.")
    return found
