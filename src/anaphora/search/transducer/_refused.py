"""What `transducer_loss` refuses beyond what all losses of speech refuse."""

from __future__ import annotations

from torch import Tensor

from anaphora.errors import DataError


def check_places(longest: int, places: int) -> None:
    """Logits need a place before each symbol of the longest target, and one after it."""
    if longest + 1 != places:
        raise ValueError(
            f"transducer_loss: targets of up to {longest} symbols need logits (…, {longest + 1}, symbols), "
            f"got (…, {places}, symbols)."
        )


def refuse_lost(row: int, frames: Tensor) -> None:
    """The row has no alignment."""
    raise DataError(
        f"transducer_loss: row {row} has {int(frames[row])} frames and no alignment with a probability above 0; "
        'drop such rows or pass impossible="zero".'
    )
