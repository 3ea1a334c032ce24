"""What a file of weights holds, and the sentence when it cannot be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torch import Tensor

from anaphora.errors import RunError
from anaphora.files import clause


@dataclass(frozen=True)
class Weights:
    """The tensors of a file by their names, as they are stored.

    ``config``: what the file says of its architecture (JSON); ``beside``: named parts that are no weights of the model
    (of an optimizer, for one) and were left out.
    """

    path: Path
    kind: str
    tensors: dict[str, Tensor]
    config: Mapping[str, Any] = field(default_factory=dict)
    beside: tuple[str, ...] = ()

    @property
    def summary(self) -> str:
        """``12 tensors (enc_emb (29, 256), …)``."""
        first = ", ".join(f"{name} {tuple(one.shape)}" for name, one in list(self.tensors.items())[:4])
        more = ", …" if len(self.tensors) > 4 else ""
        return f"{len(self.tensors)} tensors ({first}{more})"


def unreadable(path: Path, error: Exception, remedy: str = "download it again") -> RunError:
    """One sentence for a file that cannot be read."""
    return RunError(f"{path} cannot be read ({why(error)}); {remedy}.")


def why(error: Exception) -> str:
    """The reason for the middle of a sentence."""
    if isinstance(error, OSError):
        return clause(error)
    return (str(error).splitlines() or [type(error).__name__])[0][:200]
