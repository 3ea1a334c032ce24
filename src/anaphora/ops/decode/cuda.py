"""A Transformer language model that writes on an NVIDIA GPU, batch 1: a step is one kernel (``csrc/decode.cu``), steps follow each
other as CUDA graphs, and the host only reads what was chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from anaphora.cancellation import check_stopped
from anaphora.engine.backends.expressions import NUMBERS
from anaphora.errors import AnaphoraError
from anaphora.native.cuda import KINDS, Loaded, check_report, machine_code, watch
from anaphora.native.graphs import can_capture, capture, graph_pool
from anaphora.ops.decode.parts import ACTIVATIONS, Layer, Map, Norm, Parts

SOURCE = Path(__file__).parent.parent / "csrc" / "decode.cu"
WARPS = 16  # of a block
MOST_MEMORY = 160 << 10  # bytes of shared memory that a block may need
STRIDE = 16  # steps of a graph: the host reads what they chose while the next ones run


@dataclass(frozen=True)
class Tuning:
    """``grid`` blocks, one for each SM, of so many warps; slices of the depth of W^O and of W₂."""

    grid: int
    out: int
    down: int
    warps: int = WARPS


def tuned(parts: Parts, grid: int, vector: int) -> Tuning:
    """Slices such that the items of W^O and W₂ come near the number of warps: sums that are split wait for more words."""
    width, inner = parts.width, parts.inner

    def slices(depth: int) -> int:
        fits = [s for s in (1, 2, 3, 4, 6, 8) if depth % (s * vector) == 0 and depth // s >= 32 * vector]
        enough = [s for s in fits if width * s >= grid * WARPS // 2]
        return min(enough, default=max(fits, default=1))

    return Tuning(grid, slices(width), slices(inner))


def fits(parts: Parts, kind: torch.dtype, places: int = 0) -> bool:
    """Whether the kernel has these sizes, and a block's shared memory room for so many places."""
    if kind not in KINDS or 4 * (3 * parts.width + 2 * parts.inner + places) > MOST_MEMORY:
        return False
    vector = 16 // kind.itemsize
    head = parts.width // parts.heads
    lanes = head // vector
    whole = head % vector == 0 and lanes in (1, 2, 4, 8, 16, 32) and head % 2 == 0 and head <= 256
    shifted = parts.gated and (parts.end.shift is not None or parts.layers[0].up.bias is not None)
    return whole and not shifted and parts.width % (2 * vector) == 0 and parts.inner % (2 * vector) == 0


def source(parts: Parts, kind: torch.dtype, tuning: Tuning, capacity: int) -> str:
    """The kernel for this model."""
    defined: dict[str, Any] = {
        "KIND": KINDS[kind], "FAST": 0, "WARPS": tuning.warps, "GRID": tuning.grid, "D": parts.width, "F": parts.inner, "HEADS": parts.heads,
        "KEPT": parts.kept_heads, "DH": parts.width // parts.heads, "LAYERS": len(parts.layers),
        "VOCAB": parts.output.weight.shape[0], "CAP": capacity, "SO": tuning.out, "SD": tuning.down,
        "GATED": int(parts.gated), "ACT": ACTIVATIONS.index(parts.activation), "RMS": int(parts.end.shift is None),
        "ROTATED": parts.rotated, "BIAS": int(_biased(parts)), "EPS": f"{parts.eps:.9g}f", "SCALE": f"{parts.scale:.9g}f",
    }  # fmt: skip
    head = "".join(f"#define {name} {_literal(value)}\n" for name, value in defined.items())
    return head + NUMBERS.read_text() + SOURCE.read_text()


def _literal(value: Any) -> str:
    text = str(value)
    return text.replace("f", ".f") if text.endswith("f") and "." not in text and "e" not in text else text


class Writer:
    """Writes one text at a time with the weights that the model had when this was made, in ``kind``.

    writer = Writer(parts, torch.bfloat16, capacity=256)
    symbols, log_probs = writer.write([464, 3290], 20, least=4)
    """

    def __init__(
        self,
        parts: Parts,
        kind: torch.dtype,
        *,
        capacity: int,
        tuning: Tuning | None = None,
        stride: int = STRIDE,
    ):
        self.parts, self.kind, self.capacity, self.stride = parts, kind, capacity, stride
        self.device = parts.table.device
        sms = (
            1
            if self.device.type != "cuda"
            else torch.cuda.get_device_properties(self.device).multi_processor_count
        )
        self.tuning = tuning or tuned(parts, sms, 16 // kind.itemsize)
        self._arrays()
        self._graphs: dict[int, Callable[[], None]] = {}

    # ------------------------------------------------------------------ what the kernel reads and writes

    def _arrays(self) -> None:
        parts, kind, device = self.parts, self.kind, self.device
        matrices, biases = [], []
        for layer in parts.layers:
            maps = _arranged(layer, parts)
            matrices += [part.weight.detach().to(kind).flatten() for part in maps]
            sizes = (len(maps[0].weight), parts.width, parts.inner, parts.width)
            biases += [_bias(part, size) for part, size in zip(maps, sizes, strict=True)]
        self.matrices, self.biases = torch.cat(matrices), torch.cat(biases)
        self.table = parts.table.detach().to(kind).contiguous()
        head = _folded(parts.end, parts.output)
        self.head, self.head_bias = head.weight.to(kind).contiguous(), head.bias
        self.places = None if parts.places is None else parts.places.detach().float().contiguous()
        self.angles = None if parts.angles is None else parts.angles.detach().float().contiguous()
        width, inner, kept = parts.width, parts.inner, parts.width // parts.heads * parts.kept_heads
        published = width + 2 * kept + width + self.tuning.out * width + inner + self.tuning.down * width
        self.past = torch.zeros(len(parts.layers) * 2 * kept * self.capacity, dtype=kind, device=device)
        self.words = torch.zeros(len(parts.layers) * published, dtype=torch.int64, device=device)
        self.results = torch.zeros(4 * self.tuning.grid, dtype=torch.int64, device=device)
        self.state = torch.tensor([0, 1], dtype=torch.int32, device=device)
        self.tokens = torch.full((self.capacity + 1 + self.stride,), -1, dtype=torch.int32, device=device)
        self.log_probs = torch.zeros(self.capacity + 1 + self.stride, device=device)
        self.logits = torch.zeros(parts.output.weight.shape[0], device=device)

    @property
    def memory(self) -> int:
        """Bytes of shared memory that a block needs."""
        head, width, warps = self.parts.width // self.parts.heads, self.parts.width, self.tuning.warps
        room = max(3 * head + warps * head + warps + self.capacity, 4 * warps)
        return 4 * (width + max(width, self.parts.inner) + room)

    @cached_property
    def kernel(self) -> Loaded:
        facts = torch.cuda.get_device_properties(self.device)
        text = source(self.parts, self.kind, self.tuning, self.capacity)
        code = machine_code(text, f"sm_{facts.major}{facts.minor}", "decode")
        with torch.cuda.device(self.device):
            return Loaded(code, "whole_step", self.memory, 32 * self.tuning.warps)

    def _launch(self, least: int) -> None:
        pointers = [
            self.matrices, self.biases, self.table, self.head, self.head_bias, self.places, self.angles,
            self.past, self.words, self.results, self.state, self.tokens, self.log_probs, self.logits,
            *self._watched(),
        ]  # fmt: skip
        self.kernel.launch(self.tuning.grid, pointers, [least])

    def _watched(self) -> tuple[Tensor, Tensor]:
        return tuple(watch(self.device.index or 0))  # type: ignore[return-value]

    # ------------------------------------------------------------------ writing

    def begin(self, prompt: list[int]) -> None:
        """Read ``prompt`` next, from the first place on."""
        self.tokens.fill_(-1)
        self.tokens[: len(prompt)] = torch.tensor(prompt, dtype=torch.int32, device=self.device)
        self.state[0] = 0

    def advance(self, steps: int, least: int) -> None:
        """So many steps, without waiting for them."""
        whole, rest = divmod(steps, self.stride)
        for _ in range(whole):
            self._strided(least)
        for _ in range(rest):
            self._launch(least)

    def write(
        self,
        prompt: list[int],
        length: int,
        *,
        least: int = 0,
        end: int | None = None,
        heard: Callable[[list[int]], None] | None = None,
    ) -> tuple[list[int], list[float]]:
        """The ``length`` most probable symbols after ``prompt``, one after the other, none below ``least``, and log p of each; it
        stops behind the symbol ``end``. ``heard`` is called with the new ones, some at a time.

        Raises `AnaphoraError` where the prompt and ``length`` symbols do not fit.
        """
        if not prompt or len(prompt) + length > self.capacity:
            raise AnaphoraError(
                f"a text of {self.capacity} symbols has no room for {len(prompt)} and {length} more."
            )
        self.begin(prompt)
        first, done = len(prompt), 0
        self.advance(first - 1, least)
        symbols: list[int] = []
        while done < length:
            check_stopped()
            steps = min(self.stride, length - done)
            self.advance(steps, least)
            new = self.tokens[first + done : first + done + steps].tolist()
            done += steps
            over = end is not None and end in new
            if over:
                new = new[: new.index(end) + 1]
            symbols += new
            if heard is not None:
                heard(new)
            if over:
                break
        if self.device.type == "cuda":
            check_report(self.device.index or 0)
        return symbols, self.log_probs[first : first + len(symbols)].tolist()

    def _strided(self, least: int) -> None:
        """Take ``stride`` steps, as one graph where one can be captured."""

        def steps() -> None:
            for _ in range(self.stride):
                self._launch(least)

        if not can_capture(self.device):
            steps()
            return
        if least not in self._graphs:
            kept = self.state.clone(), self.tokens.clone()
            # Its first step compiles, and is one of whatever is there.
            replay, _ = capture(steps, graph_pool(), first=lambda: self._launch(least))
            self.state[0] = kept[0][0]
            self.tokens.copy_(kept[1])
            self._graphs[least] = replay
        self._graphs[least]()


def _folded(norm: Norm, part: Map) -> Map:
    """W and b of W N(x) + b as those of the numbers before gain and shift: W ∘ gain, and b + W shift."""
    weight = part.weight.detach().double()
    bias = torch.zeros(len(weight), dtype=torch.float64, device=weight.device)
    if part.bias is not None:
        bias = bias + part.bias.detach().double()
    if norm.shift is not None:
        bias = bias + weight @ norm.shift.detach().double()
    return Map((weight * norm.gain.detach().double()).float(), bias.float())


def _arranged(layer: Layer, parts: Parts) -> list[Map]:
    """The four maps of a layer as the kernel reads them: norms folded in, each row of W₁ beside that of V."""
    up = _folded(layer.before_feedforward, layer.up)
    if parts.gated:
        up = Map(torch.stack(up.weight.chunk(2), 1).flatten(0, 1), None)
    return [_folded(layer.before_attention, layer.inward), layer.outward, up, layer.down]


def _bias(part: Map, size: int) -> Tensor:
    if part.bias is None:
        return torch.zeros(size, device=part.weight.device)
    return part.bias.detach().float()


def _biased(parts: Parts) -> bool:
    """Whether anything is added to a product: an RMSNorm has no shift."""
    maps = [m for layer in parts.layers for m in (layer.inward, layer.outward, layer.up, layer.down)]
    return parts.end.shift is not None or any(m.bias is not None for m in maps)
