"""``an.load``: the right estimator comes back from a run folder or a saved model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, overload

from anaphora.tasks.config import read_config
from anaphora.tasks.estimator import Estimator
from anaphora.tasks.registry import estimator

E = TypeVar("E", bound=Estimator)


@overload
def load(
    folder: str | Path,
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    trust: bool = False,
    **parts: Any,
) -> Any: ...


@overload
def load(
    folder: str | Path,
    kind: type[E],
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    trust: bool = False,
    **parts: Any,
) -> E: ...


def load(
    folder: str | Path,
    kind: type[Estimator] | None = None,
    *,
    device: str = "auto",
    checkpoint: int | None = None,
    trust: bool = False,
    **parts: Any,
) -> Any:
    """The trained estimator in ``folder``. Every file is checked against its hash; nothing in it is executed.

        m = an.load("runs/reviews")                  # whatever task it is
        m = an.load("runs/reviews", an.Classifier)   # a Classifier, to a type checker too
        m = an.load("runs/reviews", checkpoint=1500) # the weights of that step instead of the best

    A model with own parts (``cell=MGU``) needs them again: ``parts`` gives them by the names of their settings, or
    ``trust=True`` lets those that the folder names be imported from installed packages and the current directory.

        m = an.load("runs/reviews", cell=MGU)

    Raises a `RunError` where the folder holds no run, a damaged one, one of another ``kind``, or no such
    checkpoint.
    """
    if kind is not None:
        return kind.load(folder, device=device, checkpoint=checkpoint, trust=trust, **parts)
    path = Path(folder)
    config = read_config(path)
    return estimator(config.task.command).from_folder(
        path, config, device=device, checkpoint=checkpoint, trust=trust, parts=parts
    )
