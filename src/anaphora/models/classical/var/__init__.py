"""Vector autoregression."""

from anaphora.models.classical.var.model import VAR, UndeterminedError

__all__ = ["VAR", "UndeterminedError"]
