"""``an.load``: the right estimator comes back from a run folder or a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anaphora.tasks.config import read_config
from anaphora.tasks.registry import estimator


def load(folder: str | Path, *, device: str = "auto") -> Any:
    """The trained estimator in ``folder``. Every file is checked against its hash; nothing in it is executed."""
    path = Path(folder)
    config = read_config(path)
    return estimator(config.task.command).from_folder(path, config, device=device)
