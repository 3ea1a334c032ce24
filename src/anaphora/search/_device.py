"""Beam search that runs ahead on a GPU: the host only reads, some steps later, what was chosen."""

from __future__ import annotations

import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from anaphora.cancellation import check_stopped
from anaphora.native.derived import derived
from anaphora.native.following import following, observed
from anaphora.native.graphs import can_capture, capture, graph_pool
from anaphora.ops import invariant
from anaphora.search._hypothesis import BeamNode, NBest, check_greatest, lengths_of
from anaphora.search._plan import Candidates, Item, Plan
from anaphora.settings.search import BEAM_ONLY, SearchSettings

STRIDE = 8  # steps that are queued before the host reads what came of those before them
KEPT = 4  # sizes of searches for which the captured step is kept; each holds a past of its own on the device

_changing = Lock()


class StaticModel(Protocol):
    """A model whose steps have fixed shapes: ``items · width`` rows, those of an item one after the other."""

    items: int
    width: int
    capacity: int

    def put(self, source: Tensor, lengths: Tensor) -> None:
        """The sources ``(≤ items, S)`` of the next search, and their lengths."""

    def read(self) -> None:
        """Make them ready for the first step."""

    def step(self, symbols: Tensor, parents: Tensor, turn: int) -> Tensor:
        """Logits ``(rows, V)`` after ``symbols`` ``(rows,)``, which continue the rows ``parents`` ``(rows,)``;
        ``turn`` is 0 and 1 in turn.
        """


class Static(Protocol):
    """A class that makes a `StaticModel` of a model."""

    def __call__(self, model: Any, *, items: int, width: int, places: int, capacity: int) -> StaticModel: ...

    def fits(self, model: Any) -> bool:
        """Whether it can do so."""
        ...

    def numbers(self, model: Any, rows: int, capacity: int) -> int:
        """How many numbers the past of so many rows and places takes."""
        ...


def knows(options: SearchSettings) -> bool:
    """Return True if `device_beam` follows every option of a beam that is set."""
    return all(
        getattr(options, name) == usual
        for name, usual in BEAM_ONLY.items()
        if name not in ("normalisation", "stopping")
    )


@torch.no_grad()
def device_beam(
    static: Static,
    model: nn.Module,
    source: Tensor,
    lengths: Tensor,
    *,
    start: Tensor,
    eos: int,
    max_length: int | Tensor,
    min_length: int = 0,
    plan: Plan,
) -> list[NBest]:
    """`beam` for a ``model`` that ``static`` fits, on a GPU, from its source ``(items, S)`` on, without constraints, groups or tree.

    The steps are captured once for all searches of about this size (items to the next power of two, source places to
    the next 16, output places to the next 64), and kept for the last few sizes; see `DeviceBeam`.
    """
    longest = max(lengths_of(max_length, len(source), min_length))
    with _of_size(static, model, source, lengths, width=plan.width, longest=longest, eos=eos) as made:
        return made.search(start, max_length=max_length, min_length=min_length, plan=plan)


@torch.no_grad()
def device_greedy(
    static: Static,
    model: nn.Module,
    source: Tensor,
    lengths: Tensor,
    *,
    start: Tensor,
    eos: int,
    limits: Sequence[int],
) -> list[list[int]]:
    """The symbols that `device_beam` of width 1 finds for each item, without EOS and without a look at each of them on the host."""
    with _of_size(static, model, source, lengths, width=1, longest=max(limits), eos=eos) as made:
        return made.greedy(start, limits)


@contextmanager
def _of_size(
    static: Static,
    model: nn.Module,
    source: Tensor,
    lengths: Tensor,
    *,
    width: int,
    longest: int,
    eos: int,
) -> Iterator[DeviceBeam]:
    """The captured steps for searches of about this size, with their sources put in place; within, no other search uses them."""
    items, places = source.shape
    sizes = (_room(items), width, -(-places // 16) * 16, -(-longest // 64) * 64)
    key = (*sizes, eos, invariant.active(), torch.get_float32_matmul_precision())
    with _changing:
        # the captured steps read the weights where they lie
        kept: OrderedDict[tuple[object, ...], DeviceBeam] = derived(
            model, OrderedDict, key="steps", reads="place"
        )
        made = kept.pop(key, None)  # its buffers belong to this search until it is put back
        while len(kept) >= KEPT:
            kept.popitem(last=False)
    if made is None:
        names = ("items", "width", "places", "capacity")
        made = DeviceBeam(static(model, **dict(zip(names, sizes, strict=True))), source.device, eos=eos)
    made.model.put(source, lengths)
    try:
        yield made
    finally:
        with _changing:
            kept[key] = made


def has_room(
    static: Static, model: nn.Module, device: torch.device, *, items: int, width: int, longest: int
) -> bool:
    """Whether a search of this size may hold its whole past on this device from the start: a thirty-second of it.

    Under autocast, as in the evaluations of a training, the numbers of a step are not of the weights' kind: then not.
    """
    if device.type != "cuda" or torch.is_autocast_enabled("cuda") or not static.fits(model):
        return False
    if following(*model.parameters()) is not None or observed(model, evaluation=True) is not None:
        return False  # captured steps call no hooks
    numbers = static.numbers(model, _room(items) * width, longest + 64)
    memory = torch.cuda.get_device_properties(device).total_memory
    return numbers * next(model.parameters()).element_size() <= memory // 32


def _room(items: int) -> int:
    return 1 << (items - 1).bit_length()


class DeviceBeam:
    """One step of the model and of the beam as a single piece of work, captured as a CUDA graph on a GPU.

    At every step the `width` best continuations of an item are taken by log p, summed in double precision, as `beam`
    does; those that end in EOS go no further. What was chosen is written down, and `Item` makes of it what it makes
    of candidates elsewhere: scores, finished hypotheses, and when to stop. So the results are those of `beam`, except
    that equal log p may be taken in another order.
    """

    def __init__(self, model: StaticModel, device: torch.device, *, eos: int):
        self.model, self.eos = model, eos
        shape = (model.items, model.width)
        self.symbols = torch.zeros(shape, dtype=torch.int64, device=device)
        self.parents = torch.zeros(shape, dtype=torch.int64, device=device)
        self.log_prob = torch.zeros(shape, dtype=torch.float64, device=device)
        self.length = torch.zeros(1, dtype=torch.int64, device=device)
        self.least = torch.zeros(1, dtype=torch.int64, device=device)
        self.first_row = torch.arange(model.items, device=device)[:, None] * model.width
        # Parent, symbol and log p of every hypothesis that was kept, at every step.
        self.trace = torch.zeros(model.capacity, 3, *shape, dtype=torch.float64, device=device)
        self.taken = 0
        self.replays: list[Callable[[], None]] = []  # the step of each turn, and the reading of the sources
        self.replayed = False
        if can_capture(device):
            works = (lambda: self._step(0), lambda: self._step(1), model.read)
            self.replays = [capture(work, graph_pool())[0] for work in works]

    def search(self, start: Tensor, *, max_length: int | Tensor, min_length: int, plan: Plan) -> list[NBest]:
        """The best outputs for each item of `start` (items,), of which there may be fewer than there is room for."""
        limits = lengths_of(max_length, len(start), min_length)
        replays = [_Replay(Item(plan, limit, None)) for limit in limits]
        self._begin(start, min_length)
        queued, waiting = 0, None
        while True:
            check_stopped()
            newest = None
            if queued < max(limits) and not all(replay.item.done for replay in replays):
                end = min(queued + STRIDE, max(limits))
                for _ in range(queued, end):
                    self._advance()
                newest = _Fetched(self.trace[queued:end, :, : len(start)])
                queued = end
            if waiting:  # the device is at work on the newest steps while the host reads those before them
                for step in waiting.read():
                    for replay, of_item in zip(replays, step, strict=True):
                        replay.read(of_item)
            if newest is None:
                return [replay.item.result() for replay in replays]
            waiting = newest

    def greedy(self, start: Tensor, limits: Sequence[int]) -> list[list[int]]:
        """The symbols of the only hypothesis of each item (``width`` is 1), without EOS, at most as many as its limit."""
        assert self.model.width == 1
        self._begin(start, 0)
        most, left, ended = max(limits), torch.tensor(list(limits)), torch.zeros(len(start), dtype=torch.bool)
        found: list[Tensor] = []
        waiting, queued = None, 0
        while True:
            check_stopped()
            newest = None
            if queued < most and not bool(ended.all()):
                end = min(queued + STRIDE, most)
                for _ in range(queued, end):
                    self._advance()
                newest = _Fetched(self.trace[queued:end, 1:, : len(start), 0])
                queued = end
            if waiting:
                symbols, p = waiting.arrived().unbind(1)  # (steps, items) each
                if bool(p[:, ~ended].isnan().any()):
                    check_greatest(math.nan)
                found.append(symbols.long())
                ended = ended | (symbols == self.eos).any(0) | (left <= sum(map(len, found)))
            if newest is None:
                break
            waiting = newest
        rows = [row[:limit] for row, limit in zip(torch.cat(found).T.tolist(), limits, strict=True)]
        return [row[: row.index(self.eos)] if self.eos in row else row for row in rows]

    def _begin(self, start: Tensor, min_length: int) -> None:
        self.replayed = bool(self.replays) and can_capture(self.symbols.device)
        if self.replayed:
            self.replays[2]()
        else:
            self.model.read()
        self.symbols.zero_()
        self.symbols[: len(start)] = start[:, None]
        self.parents.copy_(torch.arange(self.model.width, device=self.parents.device).expand_as(self.parents))
        self.log_prob.fill_(-math.inf)  # of equal beginnings only one is alive
        self.log_prob[: len(start), 0] = 0.0
        self.length.zero_()
        self.least.fill_(min_length)
        self.taken = 0

    def _advance(self) -> None:
        turn = self.taken % 2
        if self.replayed:
            self.replays[turn]()
        else:
            self._step(turn)
        self.taken += 1

    def _step(self, turn: int) -> None:
        """The model's step, then the beam's: nothing here waits for the device."""
        items, width = self.symbols.shape
        logits = self.model.step(self.symbols.flatten(), (self.first_row + self.parents).flatten(), turn)
        log_probs = torch.log_softmax(logits, -1, dtype=torch.float32)
        log_probs[:, self.eos] += torch.where(self.length + 1 < self.least, -math.inf, 0.0)
        values, symbols = log_probs.topk(min(width, log_probs.shape[1]), -1)
        p = values.clamp(max=0.0).double().view(items, width, -1)
        best, place = (self.log_prob[:, :, None] + p).flatten(1).topk(width, -1)
        parent = place // p.shape[2]
        symbol = symbols.view(items, -1).gather(1, place)
        chosen = p.flatten(1).gather(1, place).masked_fill(best == -math.inf, -math.inf)
        row = torch.stack((parent.double(), symbol.double(), chosen))
        self.trace.index_copy_(0, self.length, row[None])
        self.log_prob.copy_(best.masked_fill(symbol == self.eos, -math.inf))
        self.symbols.copy_(symbol)
        self.parents.copy_(parent)
        self.length += 1


class _Fetched:
    """Steps of the trace on their way to the host."""

    def __init__(self, steps: Tensor):
        self.event: torch.cuda.Event | None = None
        if steps.device.type != "cuda":
            self.steps = steps.clone()
            return
        self.steps = torch.empty(steps.shape, dtype=steps.dtype, pin_memory=True)
        self.steps.copy_(steps, non_blocking=True)
        self.event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self.event.record()

    def read(self) -> list[list[list[list[float]]]]:
        """For each step and item: parents, symbols and log p of what was kept."""
        listed: list[list[list[list[float]]]] = self.arrived().transpose(1, 2).tolist()
        return listed

    def arrived(self) -> Tensor:
        """The steps on the host."""
        if self.event is not None:
            self.event.synchronize()
        return self.steps


class _Replay:
    """An `Item` that follows what the device has chosen for it."""

    def __init__(self, item: Item):
        self.item = item
        self.rank_at = {0: 0}  # which live hypothesis stands at a place of the device's beam

    def read(self, kept: Sequence[Sequence[float]]) -> None:
        if self.item.done:
            return
        best: defaultdict[int, list[tuple[float, int]]] = defaultdict(list)
        place_of: dict[tuple[int, int], int] = {}
        for place, (parent, symbol, p) in enumerate(zip(*kept, strict=True)):
            check_greatest(p)
            if p > -math.inf:
                rank = self.rank_at[int(parent)]
                best[rank].append((p, int(symbol)))
                place_of[rank, int(symbol)] = place
        candidates: Candidates = [best[rank] for rank in range(len(self.item.live))]
        self.item.extend(candidates)
        self.rank_at = {place_of[_parent_rank(node), node.symbol]: node.rank for node in self.item.live}


def _parent_rank(node: BeamNode) -> int:
    return node.parent.rank if node.parent else 0
