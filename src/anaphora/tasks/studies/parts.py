"""The folder of a study: a part for each training, so that the same command after Ctrl-C goes on where it stopped."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from anaphora.errors import RunError
from anaphora.files import parse_json, read_bytes
from anaphora.files.writing import claim, make_folder, remove, replace_file, writing
from anaphora.tasks.estimator import Estimator
from anaphora.training.progress import Reporter
from anaphora.training.run import RunFolder


class Parts:
    """``folder/PART/result.json`` for each part that is finished.

    ``asked`` says all that the results depend on. It is kept in ``STUDY.json``; where another one is found there, the
    parts whose names match ``names`` are removed.
    """

    def __init__(self, out: str | Path, study: str, asked: Mapping[str, Any], *, names: str):
        self.folder = Path(out)
        claim(self.folder, "study")
        text = json.dumps({"study": study, **asked}, sort_keys=True) + "\n"
        mark = self.folder / f"{study}.json"
        with writing(self.folder):
            if mark.is_file() and read_bytes(mark).decode(errors="replace") == text:
                return
            for part in self.folder.iterdir():
                if part.is_dir() and re.fullmatch(names, part.name):
                    remove(part)
            replace_file(mark, text.encode())

    def __getitem__(self, part: str) -> Path:
        return self.folder / part

    def finished(self, part: str) -> dict[str, Any] | None:
        """What a part came to, if it was finished."""
        try:
            found = parse_json(read_bytes(self[part] / "result.json"))
        except (OSError, ValueError):
            return None
        return found if isinstance(found, dict) else None

    def keep(self, part: str, result: Mapping[str, Any]) -> None:
        """A part is finished."""
        with writing(self.folder):
            make_folder(self[part])
            replace_file(self[part] / "result.json", json.dumps(result).encode())

    def trained(self, part: str, fresh: Estimator, data: Any, reporter: Reporter, **fit: Any) -> Any:
        """``fresh`` trained on ``data``, or as far as it was trained already and on from there."""
        model = self._resumed(part, type(fresh), reporter)
        if model is None:
            model = fresh.fit(data, out=self[part], force=True, reporter=reporter, **fit)
        if model.result_.stopped == "interrupted":
            raise KeyboardInterrupt
        return model

    def _resumed(self, part: str, kind: type[Estimator], reporter: Reporter) -> Any:
        if not RunFolder(self[part]).has_checkpoints():
            return None
        try:
            return kind.resume(self[part], reporter=reporter)
        except RunError:
            return None  # too early or too damaged to go on from: it is trained again
