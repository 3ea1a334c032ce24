"""Text that is generated for many requests at a time: they join a running batch at any step, and leave it when they are done."""

from anaphora.serving.generation.engine import Engine
from anaphora.serving.generation.request import Generation, Piece, Token

__all__ = ["Engine", "Generation", "Piece", "Token"]
