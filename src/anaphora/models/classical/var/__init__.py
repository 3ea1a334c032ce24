"""Vector autoregression."""

from anaphora.models.classical.var.model import VAR

__all__ = ["VAR"]
