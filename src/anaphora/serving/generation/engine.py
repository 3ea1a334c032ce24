"""Continuous batching: one thread for each run, and in it one batch that requests join at any step and leave when done.

A request waits in a queue until there are rows and places of the past for all that it may need: in the order of arrival, but short
ones may overtake long ones. Those have half of the rows together, and keep half of them while they wait, so that neither kind can keep
the other waiting for long. A request's
prompt is read in chunks between the steps of the others; then it is one more group of rows in the batch. What it
gets does not depend on the others: rows are computed by themselves (`models.rows`), and its draws follow from its seed alone.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from anaphora.data.tokenizers import Tokenizer
from anaphora.models.paged import PAGE
from anaphora.models.rows import CHUNK, LanguageRows, Rows, language_rows
from anaphora.native.cuda import check_kernels
from anaphora.ops.invariant import batch_invariant
from anaphora.search import join_rows, select_rows
from anaphora.search._draws import ranked
from anaphora.search._rows import Running
from anaphora.search._sample import drawing
from anaphora.serving.generation.request import Generation, Piece, Token, Writing
from anaphora.serving.refusals import busy, leaving, unusable
from anaphora.tasks.language.inference import forbidden_symbols, without

SHORT = 1024
"""Symbols that a request may write, in all of its texts, to count as short."""
MEMORY = 1 << 30
"""Bytes of the past that all rows together may keep, unless set otherwise."""


@dataclass(frozen=True)
class Room:
    """What runs at the same time: ``slots`` texts, ``places`` of their pasts, and how many requests may wait for them."""

    slots: int = 64
    places: int | None = None
    queue: int = 256


@dataclass(eq=False)
class _Reading:
    """A request whose prompt is being read: ``symbols`` of it are left, ``state`` is that of what was read."""

    group: Writing
    symbols: Sequence[int]
    state: Any
    scores: list[Token]


class Engine:
    """Generates text with one language model.

    engine = Engine("book", model.model_, model.tokenizer_, lines=False)
    engine.submit(Generation(prompt, limit=20, seed=1, listener=print))
    """

    def __init__(
        self,
        name: str,
        model: Any,
        tokenizer: Tokenizer,
        *,
        lines: bool,
        room: Room | None = None,
        invariant: bool = True,
        lock: Any = None,
        observe: Callable[[int, int], None] = lambda texts, symbols: None,
    ):
        """``observe``: called after every step with the texts that are being written and the symbols it has drawn."""
        self.name, self.tokenizer, self.room = name, tokenizer, room or Room()
        self._invariant, self._lock, self._observe = invariant, lock or nullcontext(), observe
        self._rows: Rows = language_rows(model)
        self._places = self._most_places()
        self._pool = self._rows.pool(self._places)
        self._together = isinstance(self._rows, LanguageRows) and self._pool is not None
        step = without(self._rows.step, forbidden_symbols(lines))
        self._running: Running[Writing] = Running(step, drawing(), self._rows.device)
        self._waiting: deque[Generation] = deque()
        self._reading: list[_Reading] = []
        self._changed = threading.Condition()
        self._closed = False
        self.steps = 0
        """Steps of the batch so far."""
        self.drawn = 0
        """Symbols drawn so far."""
        self._thread = threading.Thread(target=self._run, name=f"generate {name}", daemon=True)
        self._thread.start()

    # ------------------------------------------------------------------ for those who ask

    def submit(self, request: Generation) -> None:
        """Queue a request; its listener hears of it. Raises a `Refusal` where it can never fit (422), too many wait
        (429), or the engine is closed (503)."""
        rows, places = self._needs(request)
        most = self._long_rows if _is_long(request) else self.room.slots
        if rows > most:
            raise unusable(
                f"{rows} texts at a time are more than this server writes ({most}); ask for fewer."
            )
        if places > self._places:
            raise unusable(
                "the requested texts are longer than this server can hold; ask for fewer or shorter ones."
            )
        with self._changed:
            if self._closed:
                raise leaving()
            if len(self._waiting) >= self.room.queue:
                raise busy(self.name)
            self._waiting.append(request)
            self._changed.notify()

    def cancel(self, request: Generation) -> None:
        """No one listens any more: before the next step its rows are free. Nothing happens where it is done."""
        with self._changed:
            request.left = True
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return len(self._waiting)

    @property
    def rows(self) -> int:
        """Texts that are being written or whose prompt is being read."""
        return sum(len(group.draws) for group in self._groups())

    @property
    def pages(self) -> int:
        """Pages of the past in use."""
        return 0 if self._pool is None else self._pool.used

    def close(self) -> None:
        """Take no more requests; those that were accepted are finished, then the thread ends."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def join(self, seconds: float | None = None) -> None:
        """Wait for the thread to end."""
        self._thread.join(seconds)

    # ------------------------------------------------------------------ the thread

    def _run(self) -> None:
        while self._admit():
            try:
                with self._lock, batch_invariant(self._rows.device, self._invariant):
                    self._read_prompts()
                    self._advance()
            except BaseException as error:  # the server lives on, whatever a model does
                self._fail(error)

    def _admit(self) -> bool:
        """Wait for work, forget those who left, begin what there is room for; False once all is done and closed."""
        with self._changed:
            while True:
                self._forget_left()
                if self._waiting or self._reading or self._running.groups:
                    break
                if self._closed:
                    return False
                self._changed.wait()
            while request := self._next():
                self._waiting.remove(request)
                self._begin(request)
        return True

    @property
    def _long_rows(self) -> int:
        """Rows that long requests may have together."""
        return max(1, self.room.slots // 2)

    def _next(self) -> Generation | None:
        """The request that begins now, if there is room for one: the first of its kind, which none of its kind overtakes."""
        firsts: dict[bool, Generation] = {}
        for request in self._waiting:
            firsts.setdefault(_is_long(request), request)
        rows, places = Counter[bool](), Counter[bool]()
        for running in (group.request for group in self._groups()):
            more, longer = self._needs(running)
            rows[_is_long(running)] += more
            places[_is_long(running)] += longer
        for long, request in firsts.items():
            more, longer = self._needs(request)
            share = self._long_rows if long else self.room.slots - self._long_rows * (True in firsts)
            if (
                rows.total() + more <= self.room.slots
                and places.total() + longer <= self._places
                and (rows[long] + more <= share or not rows.total())
                and not (long and places[True] and places[True] + longer > self._places * 3 // 4)
            ):
                return request
        return None

    def _begin(self, request: Generation) -> None:
        symbols = list(request.prompt[:-1])
        if not request.echo:
            symbols = list(self._rows.needed(symbols))
        state = self._rows.start(1, self._pool)
        self._reading.append(_Reading(Writing(request, self.tokenizer), symbols, state, []))

    def _forget_left(self) -> None:
        if any(request.left for request in self._waiting):
            kept = [request for request in self._waiting if not request.left]
            self._waiting.clear()
            self._waiting.extend(kept)
        self._reading = [each for each in self._reading if not each.group.request.left]
        for group in [group for group in self._running.groups if group.request.left]:
            self._running.leave(group)

    @torch.no_grad()
    def _read_prompts(self) -> None:
        """A chunk of prompts; what is read whole joins the batch."""
        budget = CHUNK if self._rows.device.type == "cpu" else 16 * CHUNK
        now: list[_Reading] = []
        for each in self._reading:
            size = min(CHUNK, len(each.symbols))
            if size and (not now or size <= budget):
                now.append(each)
                budget -= size
        groups = [now] if self._together and now else [[each] for each in now]
        for together in groups:
            self._read(together)
        done = [each for each in self._reading if not each.symbols]
        self._reading = [each for each in self._reading if each.symbols]
        for each in done:
            request = each.group.request
            if request.echo:
                _tell(request, [Piece(-1, "", tuple(each.scores))])
            if request.limit:
                self._running.join([each.group], each.state)
            else:
                _tell(request, [Piece(index, "", (), "length") for index in range(request.n)])

    def _read(self, together: list[_Reading]) -> None:
        pieces = [each.symbols[:CHUNK] for each in together]
        outputs = any(each.group.request.echo for each in together)
        state = join_rows([each.state for each in together])
        found, state = self._rows.extend(pieces, state, outputs=outputs)
        for row, (each, piece) in enumerate(zip(together, pieces, strict=True)):
            each.state = state if len(together) == 1 else select_rows(state, torch.tensor([row]))
            each.symbols = each.symbols[len(piece) :]
            if each.group.request.echo:
                self._score(each, found[row])

    def _score(self, each: _Reading, log_probs: torch.Tensor) -> None:
        """log p of the prompt's symbols that follow those just read."""
        request, at = each.group.request, len(each.scores) + 1
        for row, symbol in zip(log_probs.double().cpu().numpy(), request.prompt[at:], strict=False):
            best = ranked(row, request.alternatives) if request.alternatives else ()
            others = tuple((int(i), min(float(row[i]), 0.0)) for i in best)
            each.scores.append(Token(symbol, min(float(row[symbol]), 0.0), others))

    @torch.no_grad()
    def _advance(self) -> None:
        groups = list(self._running.groups)
        if not groups:
            return
        self._running.advance()
        if self._rows.device.type == "cuda":
            check_kernels()
        self.steps += 1
        before = self.drawn
        for group in groups:
            pieces = group.pieces()
            self.drawn += len(pieces)
            if pieces:
                _tell(group.request, pieces)
            if group.error is not None:
                group.request.listener((), group.error)
        self._observe(self._running.rows, self.drawn - before)

    def _fail(self, error: BaseException) -> None:
        """All that run end with the error; those that wait do not."""
        groups = self._groups()
        self._reading.clear()
        self._running.clear()
        for group in groups:
            group.request.listener((), error)

    # ------------------------------------------------------------------ room

    def _groups(self) -> list[Writing]:
        return [each.group for each in self._reading] + list(self._running.groups)

    def _needs(self, request: Generation) -> tuple[int, int]:
        """Rows of a request, and places of the past that it may take at most."""
        context = self._rows.context
        if context is None:
            return request.n, 0
        length = len(request.prompt) + request.limit
        if (
            length > context
        ):  # when a window is full, half of it is read again while the old one is still there
            length = context + context // 2
        return request.n, request.n * (-(-length // PAGE) + 2) * PAGE

    def _most_places(self) -> int:
        rows = self._rows
        if not isinstance(rows, LanguageRows) or rows.context is None:
            return 0
        if self.room.places is not None:
            return self.room.places
        kept = rows.pool(0)
        assert kept is not None
        layers, _, _, width = kept.kept.shape
        each = layers * width * kept.kept.element_size()
        longest = self._needs(Generation([0], 2 * rows.context, 0, lambda *_: None))[1]
        memory = MEMORY
        if rows.device.type == "cuda":
            memory = max(memory, torch.cuda.mem_get_info(rows.device)[0] // 4)
        return int(max(longest, min(memory // each, self.room.slots * longest)))


def _is_long(request: Generation) -> bool:
    return request.n * request.limit > SHORT


def _tell(request: Generation, pieces: list[Piece]) -> None:
    if not request.left:
        request.listener(pieces, None)
