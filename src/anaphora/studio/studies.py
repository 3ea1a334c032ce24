"""Finished studies below the studio's folders, each under an opaque id, and their pictures."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from anaphora.errors import DataError
from anaphora.tasks.study import FOUND, found_in
from anaphora.views.picture import Picture
from anaphora.views.studies import study_picture

DEEPEST = 4
MOST_FOLDERS = 20_000
MOST_STUDIES = 200
VIEW: dict[str, Any] = {
    "name": "studies",
    "title": "Studies",
    "of": "studies",
    "reading": "",
    "caution": "",
    "options": [],
    "typed": True,
    "question": "compare",
}


class Studies:
    """What `anaphora study` left below ``folders``; looked for again whenever they are listed."""

    def __init__(self, folders: Sequence[Path]):
        self._folders = [folder.resolve() for folder in folders]
        self._known: dict[str, tuple[str, Path]] = {}

    def list(self) -> list[dict[str, str]]:
        """Id, name and kind of every study that is finished."""
        self._known = {}
        shown = []
        for folder in self._folders:
            for path in self._found(folder):
                try:
                    study, _ = found_in(path)
                except DataError:
                    continue
                key = hashlib.sha256(os.fsencode(path)).hexdigest()[:16]
                name = os.fsencode(path.relative_to(folder)).decode("utf-8", errors="backslashreplace")
                name = name if name != "." else path.name
                self._known[key] = name, path
                shown.append({"id": key, "name": name, "study": study})
        return sorted(shown, key=lambda one: one["name"])

    def picture(self, key: str) -> tuple[str, Picture]:
        """Its name and its picture; a `DataError` for an id that is not there."""
        if key not in self._known:
            self.list()
        if key not in self._known:
            raise DataError("there is no such study any more; choose another.")
        name, path = self._known[key]
        study, found = found_in(path)
        try:
            made = study_picture(study, found)
        except (LookupError, TypeError, ValueError, AttributeError):
            raise DataError(f"{name}: its {FOUND} is damaged; run the study again.") from None
        made.code = (
            "from anaphora.tasks.study import found_in\nfrom anaphora.views.studies import study_picture\n\n"
            f'study_picture(*found_in({name!r})).save("{study}.html")'
        )
        return name, made

    def _found(self, folder: Path) -> Any:
        looked = found = 0
        waiting = [(os.fspath(folder), 0)]
        while waiting and looked < MOST_FOLDERS and found < MOST_STUDIES:
            here, depth = waiting.pop()
            looked += 1
            try:
                with os.scandir(here) as entries:
                    names = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
            except OSError:
                continue
            if names.get(FOUND) is False:
                found += 1
                yield Path(here)
            elif depth < DEEPEST and "config.json" not in names:
                waiting += [
                    (os.path.join(here, name), depth + 1)
                    for name, is_folder in names.items()
                    if is_folder and not name.startswith(".")
                ]
