"""``anaphora export`` and ``m.export``: a trained model in a format that others read."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from anaphora._version import __version__
from anaphora.errors import AnaphoraError, RunError, SettingsError
from anaphora.files import parse_json, read_bytes
from anaphora.files.parsing import seal_of
from anaphora.files.writing import check_place, folder_for, replacing_folder, write_new
from anaphora.settings.base import suggestion
from anaphora.tasks.exporting.formats import FORMATS

MANIFEST = "export.json"
_LARGEST = 1 << 26


def export(m: Any, path: str | Path, to: str, *, force: bool = False, **options: Any) -> Path:
    """Write the trained estimator ``m`` to ``path`` in a format of `FORMATS`; ``options`` are that format's own.

    Raises a `SettingsError` for a format or an option of it that is not known, an `AnaphoraError` for a model that has no such form, and a
    `RunError` where ``path`` exists and ``force`` is not given. Missing folders above it are made.
    """
    if to not in FORMATS:
        hint = suggestion(to, list(FORMATS), otherwise="")
        raise SettingsError([f"to = {to!r} is not a format ({', '.join(FORMATS)}).{hint}"])
    asked = {key: value for key, value in options.items() if value not in (None, False)}
    for key in asked.keys() - set(FORMATS[to].options):
        takes = [name for name, one in FORMATS.items() if key in one.options]
        of = f"; it is one of {', '.join(takes)}" if takes else ""
        raise SettingsError([f"{key} is not an option of --to {to}{of}."])
    m._check_trained()
    if getattr(m.settings_, "documents", "none") != "none":
        raise AnaphoraError(
            "a model with documents = 'blank' cannot be exported: other programs would let places see other documents; train it "
            "without documents."
        )
    if getattr(m.settings_, "qk_norm", False) and to in ("hf", "ctranslate2"):
        raise AnaphoraError(
            f"a model with qk_norm = true has no form in --to {to}, whose architectures do not normalise queries and keys; use "
            "onnx, or train it without."
        )
    place = Path(path)
    if place.exists() and not force:
        raise RunError(f"{place} exists; choose another place, or write over it with --force (force=True).")
    check_place(place)
    with folder_for(place):
        FORMATS[to].load()(m, place, **asked)
    return place


@contextmanager
def export_folder(
    place: Path, facts: Mapping[str, Any] | None = None
) -> Iterator[tuple[Path, dict[str, Any]]]:
    """Yield a new folder and its manifest, to which the block may add; the folder takes its place at the end, sealed.

    ``export.json`` names every file with its sha256, and holds the sha256 of itself.
    """
    with replacing_folder(place, is_export, "an export") as folder:
        manifest: dict[str, Any] = {"format": 1, "anaphora": __version__, **(facts or {})}
        yield folder, manifest
        manifest["files"] = {
            name: hashlib.sha256(read_bytes(folder / name)).hexdigest() for name in _names(folder)
        }
        manifest["sha256"] = seal_of(manifest)
        write_new(folder / MANIFEST, (json.dumps(manifest, ensure_ascii=False, indent=1) + "\n").encode())


def is_export(folder: Path) -> bool:
    """Return True if ``export.json`` says that this package wrote the folder, and names all that is in it."""
    try:
        found = parse_json(read_bytes(folder / MANIFEST, most=_LARGEST, follow=False))
    except (OSError, ValueError):
        return False
    if not (isinstance(found, dict) and found.keys() >= {"format", "anaphora", "task"}):
        return False
    listed = found.get("files")  # version 0.2 did not list those for other programs
    return not isinstance(listed, dict) or set(_names(folder)) <= {*listed, MANIFEST}


def _names(folder: Path) -> list[str]:
    """Return the paths of the files in ``folder``, those in folders inside it too."""
    return sorted(
        path.relative_to(folder).as_posix()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    )
