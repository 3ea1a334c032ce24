"""What is kept of a language model that gives vectors in context."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Context:
    """The sizes of a language model's body, from which it can be built again; its weights are kept with those of the model
    that reads its vectors. ``token``: the vectors of the words are the lowest layer. A model of characters has so many
    ``symbols`` of its own, one of which is the ``space`` between words; one of words reads those of the model it serves."""

    cell: str
    embedding: int
    hidden: int
    layers: int
    begin: int
    backward: bool
    token: bool = False
    variants: dict[str, bool | int | float | str] = field(default_factory=dict)
    """The other settings of its recurrent layers, where they are not the usual ones."""
    symbols: int = 0
    space: int = 0

    @property
    def width(self) -> int:
        """How wide the vectors are that it gives."""
        return max(self.hidden, self.embedding) if self.token else self.hidden
