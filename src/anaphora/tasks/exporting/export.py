"""``anaphora export`` and ``m.export``: a trained model in a format that others read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.errors import AnaphoraError, RunError, SettingsError
from anaphora.files.writing import check_place, folder_for
from anaphora.settings.base import suggestion
from anaphora.tasks.exporting.formats import FORMATS


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
