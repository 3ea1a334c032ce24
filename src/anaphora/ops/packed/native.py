"""The C functions of this package, compiled at first use, on tensors. Float32, on the CPU, contiguous."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import LANES, CLibrary, address_of, beside, check
from anaphora.ops.packed.memory import large_pages

_MOST_INPUTS = (
    2**31 - 1
) // 127**2  # of eight bits: so many products of two of them can be summed in 32 bits
_FILES = ("product.c", "step.c", "stack.c", "heard.c")
_THREADED = 1 << 22  # multiplications for which it is worth starting a thread
FLOAT = torch.float32
library = CLibrary(
    "packed",
    lambda double: LANES.read_text() + prelude(double) + beside(__package__, *_FILES),
    (FLOAT,),
    no_memory="a step of decoding ran out of memory; use shorter or smaller batches",
    void=("pack", "pack_int8"),
    counts=("panel_width",),
)


@dataclass(frozen=True)
class Packed:
    """Weights (n, k) as `linear` reads them, and the bias (n) filled up to whole panels.

    With ``scale`` the weights are rounded to eight bits: W[o] ≈ scale[o] · q[o], q from −127 to 127.
    """

    outputs: int
    inputs: int
    weights: Tensor
    bias: Tensor
    scale: Tensor | None = None
    shift: Tensor | None = None


def pack(weight: Tensor, bias: Tensor | None, *, int8: bool = False) -> Packed:
    """weight ``(n, k)``, bias ``(n,)`` or none."""
    weight = weight.detach().contiguous()
    if weight.dim() != 2:
        raise ValueError(f"packed weights must be (outputs, inputs), got {tuple(weight.shape)}.")
    outputs, inputs = weight.shape
    check("packed weights", weight, (outputs, inputs), torch.float32)
    if bias is not None:
        check("packed bias", bias.detach().contiguous(), (outputs,), torch.float32)
    if int8 and inputs > _MOST_INPUTS:
        raise ValueError(
            f"packed weights of eight bits may have at most {_MOST_INPUTS} inputs, got {inputs}."
        )
    panel = library.count(FLOAT, "panel_width")
    broad = -(-outputs // panel) * panel
    filled = F.pad(weight.new_zeros(outputs) if bias is None else bias.detach(), (0, broad - outputs))
    if not int8:
        packed = large_pages(broad * inputs)
        library.call(FLOAT, "pack", (outputs, inputs, inputs, 1), (address_of(weight), packed))
        return Packed(outputs, inputs, packed, filled)
    scale = F.pad(weight.abs().amax(1) / 127, (0, broad - outputs))
    rounded = (
        (weight / scale[:outputs, None].clamp(min=torch.finfo(torch.float32).tiny)).round().to(torch.int8)
    )
    packed = torch.zeros(broad * -(-inputs // 4) * 4, dtype=torch.int8)
    shift = torch.zeros(broad, dtype=torch.int32)
    library.call(FLOAT, "pack_int8", (outputs, inputs), (rounded, packed, shift))
    return Packed(outputs, inputs, packed, filled, scale, shift)


def linear(x: Tensor, packed: Packed, out: Tensor | None = None) -> Tensor:
    """x Wᵀ + b: ``(rows, k)`` -> ``(rows, n)``, into ``out`` if given.

    With eight-bit weights each row of x is rounded too, by a scale of its own: x ≈ s · u, u from −127 to 127.
    """
    x = x.contiguous()
    rows, n, k = x.shape[0], packed.outputs, packed.inputs
    check("linear: x", x, (rows, k), torch.float32)
    if out is None:
        out = x.new_empty(rows, n)
    elif out.shape != (rows, n) or out.dtype != x.dtype or out.device != x.device or out.stride(1) != 1:
        raise ValueError(f"linear: out must be float32 {(rows, n)} with its columns side by side.")
    sizes = (rows, n, k, out.stride(0), _threads(rows * n * k))
    if packed.scale is None:
        _call("linear_float", sizes, (x, packed.weights, packed.bias, out, torch.empty_like(x)))
        return out
    assert packed.shift is not None
    rounded, scales = torch.empty(rows + 1, -(-k // 2), dtype=torch.int32), x.new_empty(rows)
    given = (x, packed.weights, packed.bias, out, packed.scale, packed.shift, rounded, scales)
    _call("linear_int8", sizes, given)
    return out


def attend_past(
    query: Tensor, heads: int, addresses: Tensor, sizes: Tensor, slots: Tensor, layer: int
) -> Tensor:
    """Each row of query ``(rows, width)`` attends to its own past.

    The past is a list of blocks, one for each place, ``(layers, rows then, 2 · width)`` with keys and values side by
    side: ``addresses`` ``(places,)`` and ``sizes`` ``(places,)``, their rows. ``slots`` ``(rows, places)`` says which
    row of each block belongs to a row's past. All three are int64. The caller keeps the blocks alive.
    """
    query, (rows, width), places = query.contiguous(), query.shape, len(addresses)
    _check_heads(query, heads)
    check("attention: addresses", addresses, (places,), torch.int64)
    check("attention: sizes", sizes, (places,), torch.int64)
    check("attention: slots", slots, (rows, places), torch.int64)
    out = torch.empty_like(query)
    head = (rows, _threads(2 * rows * places * width), heads, width // heads, places, layer)
    _call("attend_past", head, (query, out, addresses, sizes, slots))
    return out


def attend_memory(
    query: Tensor, heads: int, memory: Tensor, item: Tensor, seen: Tensor
) -> tuple[Tensor, Tensor]:
    """Each row of query ``(rows, width)`` attends to the memory ``(items, places, 2 · width)`` of its item.

    ``item`` ``(rows,)``; ``seen`` ``(items, places)``, True where a place is real. Returns what was found
    ``(rows, width)``, and the weights ``(rows, places)``, the mean of the heads.
    """
    query, (rows, width), (items, places) = query.contiguous(), query.shape, seen.shape
    _check_heads(query, heads)
    check("attention: memory", memory, (items, places, 2 * width), torch.float32)
    check("attention: item", item, (rows,), torch.int64)
    check("attention: seen", seen, (items, places), torch.bool)
    out, looks = torch.empty_like(query), query.new_empty(rows, places)
    head = (rows, _threads(2 * rows * places * width), heads, width // heads, places, items)
    _call("attend_memory", head, (query, out, memory, item, seen, looks))
    return out, looks


def attend_pages(
    query: Tensor,
    pages: Tensor,
    table: Tensor,
    *,
    heads: int,
    slopes: Tensor | None = None,
    reach: int | None = None,
) -> Tensor:
    """Each row of query ``(rows, width)`` attends to its own past, of whatever length.

    ``pages`` ``(there are, places, 2 · kept width)`` hold keys and values side by side; ``table`` ``(rows, 1 + most)``, int64: how many
    places the past of a row has, and its pages in order. ``slopes`` ``(heads,)`` are those of `Alibi`; ``reach``: how many of the
    last places are seen, None for all. Raises ValueError where a table points at a page that is not there.
    """
    query, (rows, width), (there, places, wide) = query.contiguous(), query.shape, pages.shape
    _check_heads(query, heads)
    d = width // heads
    kept = wide // (2 * d)
    if not kept or wide != 2 * d * kept or heads % kept:
        raise ValueError(f"attention: pages of width {wide} do not fit {heads} heads of width {d}.")
    check("attention: pages", pages, (there, places, wide), torch.float32)
    check("attention: table", table, (rows, table.shape[1]), torch.int64)
    if slopes is not None:
        check("attention: slopes", slopes, (heads,), torch.float32)
    out, longest = torch.empty_like(query), places * (table.shape[1] - 1)
    work = _threads(2 * rows * longest * width)
    head = (rows, work, heads, d, kept, places, table.shape[1] - 1, there, reach or longest)
    _call("attend_pages", head, (query, out, pages, table, slopes))
    return out


def best_symbols(logits: Tensor, count: int, forbidden: int | None) -> tuple[Tensor, Tensor]:
    """log p and symbol ``(rows, count)`` of each row's best ones, greatest logit first, then lower symbol.

    log p is −∞ where fewer than ``count`` are possible, and NaN throughout a row that holds one.
    """
    logits = logits.contiguous()
    rows, symbols = logits.shape
    check("best symbols: logits", logits, (rows, symbols), torch.float32)
    if count < 1:
        raise ValueError(f"best symbols: count must be at least 1, got {count}.")
    log_p, found = logits.new_empty(rows, count), torch.empty(rows, count, dtype=torch.int64)
    head = (rows, _threads(8 * logits.numel()), symbols, count, -1 if forbidden is None else forbidden)
    _call("best_symbols", head, (logits, log_p, found))
    return log_p, found


def log_probs(logits: Tensor) -> Tensor:
    """log p ``(rows, symbols)`` of all symbols, bit for bit what `best_symbols` gives of the best."""
    logits = logits.contiguous()
    rows, symbols = logits.shape
    check("log p: logits", logits, (rows, symbols), torch.float32)
    log_p = torch.empty_like(logits)
    _call("log_probs", (rows, _threads(8 * logits.numel()), symbols), (logits, log_p))
    return log_p


def _threads(work: int) -> int:
    return max(1, min(torch.get_num_threads(), work // _THREADED))


def _check_heads(query: Tensor, heads: int) -> None:
    check("attention: query", query, tuple(query.shape), torch.float32)
    if heads < 1 or query.shape[1] % heads:
        raise ValueError(f"attention: {heads} heads cannot share a width of {query.shape[1]}.")


def _call(name: str, sizes: tuple[int, ...], tensors: tuple[Tensor | None, ...]) -> None:
    def elsewhere() -> str:
        return f"{name}: a row points at a past or a memory that is not there."

    library.call(FLOAT, name, sizes, tensors, out_of_range=elsewhere)
