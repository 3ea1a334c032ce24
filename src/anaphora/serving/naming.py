"""What runs are called. Nothing here imports torch."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from anaphora.errors import AnaphoraError


def named_folders(given: Sequence[str]) -> dict[str, Path]:
    """Folders by name, out of ``FOLDER`` or ``NAME=FOLDER``; an `AnaphoraError` where two have the same name."""
    found: dict[str, Path] = {}
    for one in given:
        name, separator, folder = one.partition("=")
        if not separator or "/" in name:
            name, folder = Path(one).resolve().name, one
        if name in found:
            raise AnaphoraError(
                f"two runs are called {name}; name them: serve first={found[name]} second={folder}."
            )
        if not name:
            raise AnaphoraError(f"{one} has no name; write NAME=FOLDER.")
        found[name] = Path(folder)
    return found
