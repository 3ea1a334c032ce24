"""What a decoder does at every step on a CPU: products with packed weights, attention to a past that is never moved,
and the best symbols of many.

Each of them computes a row on its own, in the same order whatever the rows beside it and the number of threads: the
result for one input does not depend on its batch, to the last bit.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from anaphora.engine.backends.c.source import prelude
from anaphora.native.c import LANES, CLibrary, address_of, beside, check, plain
from anaphora.ops.decode.parts import ACTIVATIONS, Layer, Map, Norm

# ----------------------------------------------------------------------
# The C functions of this package, compiled at first use, on tensors. Float32, on the CPU, contiguous.
_MOST_INPUTS = (
    2**31 - 1
) // 127**2  # of eight bits: so many products of two of them can be summed in 32 bits
_FILES = ("packed_product.c", "packed_step.c", "packed_stack.c", "packed_heard.c")
_THREADED = 1 << 22  # multiplications for which it is worth starting a thread
FLOAT = torch.float32
library = CLibrary(
    "packed",
    lambda double: (
        LANES.read_text() + prelude(double) + beside(__package__, *(f"csrc/{file}" for file in _FILES))
    ),
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


# ---------------------------------------------------------------------- memory for weights that every step reads from first to last
PAGE = 1 << 21
"""Bytes of a large page."""


def large_pages(count: int) -> Tensor:
    """Zeros ``(count,)`` of float32, at a multiple of a large page and in large pages where the system has them.

    In small pages a matrix that no cache holds is read at half the speed: the processor looks up every page and its prefetchers
    stop at the end of each. The rest of a page that is less than half full stays in small ones.
    """
    size = 4 * count
    if size < PAGE or not hasattr(mmap, "MADV_HUGEPAGE"):
        return torch.zeros(count)
    held = mmap.mmap(-1, size + PAGE)
    whole = torch.frombuffer(held, dtype=torch.uint8)
    begin = -whole.data_ptr() % PAGE
    with contextlib.suppress(OSError):  # a kernel without them
        held.madvise(mmap.MADV_HUGEPAGE, begin, (size + PAGE // 2) // PAGE * PAGE)
    return whole[begin : begin + size].view(torch.float32)


# ----------------------------------------------------------------------
# A stack of Transformer layers as one call on a CPU: ``csrc/packed_stack.c`` with packed weights.
TURN = 128
"""Rows that go through all layers together: what is between two products then stays in the cache."""
ORDERS = ("after", "before", "beside")
"""Where the norms of a layer are; beside: before both sublayers, which read the same x."""


@dataclass(frozen=True)
class Shape:
    """What all layers have in common. ``angles`` ``(places, rotated / 2, 2)``: cosine and sine of rotary positions, or None."""

    heads: int
    kept_heads: int
    order: str
    activation: str
    gated: bool
    eps: float
    angles: Tensor | None = None


class Stack:
    """Layers with the weights that they have when this is made; without gradient, float32.

    stack = Stack(layers, Shape(heads=12, kept_heads=12, order="after", activation="gelu", gated=False, eps=1e-12))
    stack.whole(x, lengths, causal=False)  # x (rows, width), in place
    """

    def __init__(self, layers: Sequence[Layer], shape: Shape):
        self.width, self.inner = layers[0].outward.weight.shape[0], layers[0].down.weight.shape[1]
        self.shape, self.layers = shape, len(layers)
        self._kept: list[Tensor] = []
        places = [place for layer in layers for place in self._places(layer)]
        self._parts = (ctypes.c_void_p * len(places))(*places)
        angles = shape.angles
        self._angles = None if angles is None else self._own(angles.detach().float())
        self._eps = self._own(torch.tensor([shape.eps], dtype=torch.float32))
        rotated = 0 if angles is None else 2 * angles.shape[1]
        self._numbers = (
            self.width, self.inner, self.layers, shape.heads, shape.kept_heads, ORDERS.index(shape.order),
            ACTIVATIONS.index(shape.activation), int(shape.gated), rotated,
        )  # fmt: skip

    @staticmethod
    def fits(layers: Sequence[Layer], shape: Shape) -> bool:
        """Whether there is a compiler, all weights are float32 on the CPU, and rows are whole vectors."""
        parts = [part for layer in layers for part in vars(layer).values()]
        maps = [t for part in parts if isinstance(part, Map) for t in (part.weight, part.bias)]
        norms = [t for part in parts if isinstance(part, Norm) for t in (part.gain, part.shift)]
        return layers[0].outward.weight.shape[0] % 16 == 0 and plain(*norms) and library.ready(*maps)

    def holds(self, places: int) -> bool:
        """Return True if sequences may have so many places, for which there are angles of rotary positions."""
        return self._angles is None or places <= len(self._angles)

    def _own(self, tensor: Tensor) -> Tensor:
        self._kept.append(tensor.contiguous().clone())
        return self._kept[-1]

    def _places(self, layer: Layer) -> list[int | None]:
        found: list[int | None] = []
        for part in (
            layer.before_attention, layer.inward, layer.outward, layer.before_feedforward, layer.up, layer.down,
        ):  # fmt: skip
            found += self._norm(part) if isinstance(part, Norm) else self._map(part)
        return found

    def _norm(self, norm: Norm) -> list[int | None]:
        shift = None if norm.shift is None else self._own(norm.shift.detach().float()).data_ptr()
        return [self._own(norm.gain.detach().float()).data_ptr(), shift]

    def _map(self, part: Map) -> list[int | None]:
        packed = pack(part.weight, part.bias)
        self._kept += [packed.weights, packed.bias]
        return [packed.weights.data_ptr(), packed.bias.data_ptr()]

    def whole(self, x: Tensor, lengths: Tensor, *, causal: bool) -> None:
        """Sequences of ``lengths`` ``(sequences,)`` places whose rows follow each other in x ``(rows, width)``, in place."""
        rows = int(lengths.sum())
        check("stack: x", x, (rows, self.width), torch.float32)
        check("stack: lengths", lengths, (len(lengths),), torch.int64)
        if self._angles is not None and len(lengths) and int(lengths.max()) > len(self._angles):
            raise ValueError(
                f"stack: there are angles for {len(self._angles)} places, not for {int(lengths.max())}."
            )
        numbers = (*self._numbers, len(lengths), int(causal), TURN, torch.get_num_threads())
        self._call("whole_stack", numbers, x, (lengths,))

    def paged(
        self,
        x: Tensor,
        pages: Tensor,
        table: Tensor,
        position: Tensor,
        written: Tensor,
        *,
        reach: int | None = None,
    ) -> None:
        """New places of rows whose past lies in ``pages`` ``(layers, there are, places, 2 · kept width)``; x ``(rows, width)`` in place.

        ``table`` ``(rows, 1 + most)`` and ``reach`` are those of `native.attend_pages`; ``position`` ``(rows,)`` is the place of each row,
        ``written`` ``(rows,)`` where its keys and values go, counted over all pages. Raises ValueError where that is not there.
        """
        rows, kept = len(x), self.width // self.shape.heads * self.shape.kept_heads
        there, places = pages.shape[1:3]
        check("stack: x", x, (rows, self.width), torch.float32)
        check("stack: pages", pages, (self.layers, there, places, 2 * kept), torch.float32)
        check("stack: table", table, (rows, table.shape[1]), torch.int64)
        for name, index in (("position", position), ("written", written)):
            check(f"stack: {name}", index, (rows,), torch.int64)
        if self._angles is not None and rows and not 0 <= int(position.max()) < len(self._angles):
            raise ValueError(f"stack: there are angles for {len(self._angles)} places only.")
        most = table.shape[1] - 1
        more = (rows, torch.get_num_threads(), places, most, there, reach or most * places)
        self._call("paged_stack", (*self._numbers, *more), x, (pages, table, position, written))

    def normalised(self, x: Tensor, norm: Norm) -> Tensor:
        """N(x) of each row of x ``(rows, width)``, with this stack's ε."""
        check("stack: x", x, (len(x), self.width), torch.float32)
        gain = norm.gain.detach().float().contiguous()
        shift = None if norm.shift is None else norm.shift.detach().float().contiguous()
        out = torch.empty_like(x)
        given = (x, gain, shift, self._eps, out)
        places = [None if t is None else address_of(t) for t in given]
        library.call(FLOAT, "norm_rows", (len(x), self.width), places)
        return out

    def _call(self, name: str, numbers: tuple[int, ...], x: Tensor, more: tuple[Tensor, ...]) -> None:
        library.call(
            FLOAT,
            name,
            numbers,
            (x, ctypes.addressof(self._parts), self._angles, self._eps, *more),
            no_memory="a stack of layers ran out of memory; use shorter or smaller batches",
            out_of_range=lambda: f"{name}: a row points at a past that is not there.",
        )


# ----------------------------------------------------------------------
# A chunk of sound through a spectrum, convolutions, a step of an LSTM and a linear map, as one call on a CPU: ``csrc/packed_heard.c``.
@dataclass(frozen=True)
class Heard:
    """``spectrum`` ``(2 · frequencies, frame)``: cosines above sines; ``convolutions``: weight ``(outputs, inputs, 3)``, bias and stride of each;
    ``gates`` ``(4 · h, inputs and h side by side)``: i, f, g, o; ``output`` ``(1, h)``."""

    chunk: int
    earlier: int
    hop: int
    spectrum: Tensor
    convolutions: Sequence[tuple[Tensor, Tensor, int]]
    gates: Tensor
    gates_bias: Tensor
    output: Tensor
    output_bias: Tensor


class HeardChunk:
    """The weights that a model had when this was made; float32.

    heard = HeardChunk(parts)
    p, h, c, before = heard(samples, before, h, c)
    """

    def __init__(self, parts: Heard):
        self.chunk, self.earlier, self.hidden = parts.chunk, parts.earlier, parts.output.shape[1]
        maps: list[tuple[Tensor, Tensor | None]] = [(parts.spectrum, None)]
        # Place by place: three neighbouring places then are one row as they lie.
        maps += [(w.detach().permute(0, 2, 1).flatten(1), b) for w, b, _ in parts.convolutions]
        maps += [(parts.gates, parts.gates_bias), (parts.output, parts.output_bias)]
        packed = [pack(weight, bias) for weight, bias in maps]
        self._weights = [tensor for one in packed for tensor in (one.weights, one.bias)]
        layers = [
            number for w, _, stride in parts.convolutions for number in (w.shape[1], w.shape[0], stride)
        ]
        bins, frame = parts.spectrum.shape[0] // 2, parts.spectrum.shape[1]
        self._sizes = (
            self.chunk, self.earlier, frame, parts.hop, bins, self.hidden, len(parts.convolutions), *layers,
        )  # fmt: skip

    def __call__(
        self, samples: Tensor, before: Tensor, h: Tensor, c: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """samples ``(rows, chunk)``, those before them ``(rows, earlier)``, h and c ``(rows, hidden)`` -> probabilities ``(rows,)``, h and c after
        the chunk, and the samples before the next one."""
        rows, given = len(samples), []
        named = (("samples", samples, self.chunk), ("before", before, self.earlier), ("h", h, self.hidden))
        for name, tensor, width in (*named, ("c", c, self.hidden)):
            tensor = tensor.contiguous()
            check(f"a chunk: {name}", tensor, (rows, width), torch.float32)
            given.append(tensor)
        found = (
            samples.new_empty(rows),
            torch.empty_like(given[2]),
            torch.empty_like(given[3]),
            torch.empty_like(given[1]),
        )
        tensors = (*given, *found, *self._weights)
        no_memory = "a chunk ran out of memory; use smaller batches"
        library.call(FLOAT, "heard_chunk", (rows, *self._sizes), tensors, no_memory=no_memory)
        return found
