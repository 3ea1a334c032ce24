"""How long to train: steps, or epochs, not both."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from anaphora.errors import SettingsError


def one_length(given: Mapping[str, Any]) -> None:
    """Refuse ``steps`` and ``epochs`` where both were given."""
    if given.get("epochs") and given.get("steps") is not None:
        raise SettingsError(
            [
                f"steps = {given['steps']} and epochs = {given['epochs']} both set how long to train; leave one of them out."
            ]
        )
