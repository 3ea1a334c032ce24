"""Which array of a trace a view draws, and which of its layers and directions."""

from __future__ import annotations

from collections.abc import Sequence

from anaphora.errors import AnaphoraError
from anaphora.probe.trace import Layer, Trace

SIDES = {"": ("", "decoder_", "encoder_"), "decoder": ("decoder_",), "encoder": ("encoder_",)}
WAYS = ("", "forward", "backward")


def find(trace: Trace, kind: str, side: str) -> str:
    """The array ``kind``: the only one there is, or that of the ``side`` of an encoder-decoder."""
    if side not in SIDES:
        raise AnaphoraError(f"side must be encoder or decoder, not {side!r}.")
    for prefix in SIDES[side]:
        if f"{prefix}{kind}" in trace.arrays:
            return f"{prefix}{kind}"
    known = ", ".join(sorted(name for name in trace.arrays if "layer" in trace.arrays[name].axes)) or "none"
    raise AnaphoraError(
        f"This trace holds no {side + ' ' if side else ''}{kind} of layers; of layers it holds {known}."
    )


def places_axis(trace: Trace, name: str) -> str:
    """The axis of an array of states along which the symbols stand that had been read."""
    return next(axis for axis in trace.arrays[name].axes if axis not in ("layer", "unit"))


def chosen(
    layers: Sequence[Layer], layer: int | None, direction: str = "", *, every: bool = False
) -> list[tuple[int, Layer]]:
    """The entries of ``layers`` that are meant, by their index: of the ``layer`` (from 1; by default the last, or with
    ``every`` all of them) those that read in the ``direction``, or in both."""
    if direction not in WAYS:
        raise AnaphoraError(f"direction must be forward or backward, not {direction!r}.")
    numbers = sorted({one.number for one in layers})
    if layer is not None and layer not in numbers:
        raise AnaphoraError(f"This model has layers {spans(numbers)}, not {layer}.")
    wanted = set(numbers) if layer is None and every else {numbers[-1] if layer is None else layer}
    found = [
        (index, one)
        for index, one in enumerate(layers)
        if one.number in wanted and direction in ("", one.direction)
    ]
    if not found:
        raise AnaphoraError(f"This model reads in one direction only; leave direction={direction!r} out.")
    return found


def of(one: Layer, layers: Sequence[Layer]) -> str:
    """``layer 1 of 2, forward``; of the other direction that it reads from the end."""
    count = max(other.number for other in layers)
    way = {"forward": ", forward", "backward": ", backward (from the end)"}.get(one.direction, "")
    return f"layer {one.number} of {count}{way}"


def spans(numbers: Sequence[int]) -> str:
    """``1 to 3``, or ``1, 3, 4`` where one is missing."""
    if list(numbers) == list(range(numbers[0], numbers[-1] + 1)):
        return f"{numbers[0]} to {numbers[-1]}"
    return ", ".join(map(str, numbers))
