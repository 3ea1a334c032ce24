"""Which studies there are."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError, DataError
from anaphora.files import parse_json, read_bytes
from anaphora.files.writing import replace_file, writing
from anaphora.settings.base import suggestion
from anaphora.tasks.studies.budget import budget
from anaphora.tasks.studies.draw import draw
from anaphora.tasks.studies.length import length
from anaphora.tasks.studies.memory import memory
from anaphora.tasks.studies.positions import positions
from anaphora.tasks.studies.recall import recall
from anaphora.tasks.studies.scaling import scaling
from anaphora.tasks.studies.tracking import tracking
from anaphora.training.journal import plain

FOUND = "found.json"
"""The file in a study's folder that holds what it found."""
MOST_BYTES = 1 << 24

STUDIES: dict[str, Callable[..., dict[str, Any]]] = {
    "budget": budget,
    "draw": draw,
    "length": length,
    "memory": memory,
    "positions": positions,
    "recall": recall,
    "scaling": scaling,
    "tracking": tracking,
}


def run(name: str, out: str | Path, **options: Any) -> dict[str, Any]:
    """Run a study by name; what it found is also kept in the folder, for `found_in`."""
    if name not in STUDIES:
        raise AnaphoraError(
            f"{name} is not a study ({', '.join(STUDIES)}).{suggestion(name, list(STUDIES), otherwise='')}"
        )
    study = STUDIES[name]
    if "corpus" in options and study in (positions, recall, tracking):
        raise AnaphoraError(f"the study {name} makes its own data; leave --corpus out.")
    found = study(out, **options)
    with writing(Path(out)):
        text = json.dumps(plain({"study": name, "found": found}), allow_nan=False, default=_listed)
        replace_file(Path(out) / FOUND, text.encode())
    return found


def found_in(folder: str | Path) -> tuple[str, dict[str, Any]]:
    """The name of the study in a folder and what `run` found; a `DataError` where there is none."""
    path = Path(folder) / FOUND
    try:
        document = parse_json(read_bytes(path, most=MOST_BYTES, follow=False))
        name, found = document["study"], document["found"]
        if name in STUDIES and isinstance(found, dict):
            return name, _numbered(found)
    except (OSError, ValueError, LookupError, TypeError):
        pass
    raise DataError(f"{folder}: holds no finished study; `anaphora study NAME -o {folder}` makes one.")


def _numbered(value: Any) -> Any:
    """Keys that were whole numbers before they became JSON are so again."""
    if isinstance(value, list):
        return [_numbered(item) for item in value]
    if not isinstance(value, dict):
        return value
    whole = bool(value) and all(key.isascii() and key.isdigit() and len(key) < 16 for key in value)
    return {(int(key) if whole else key): _numbered(item) for key, item in value.items()}


def _listed(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else float(value)
