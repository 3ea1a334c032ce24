"""Captured graphs kept for shapes that come again: which are in use, which may go."""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar


class Held(Protocol):
    """Something that takes room."""

    @property
    def nbytes(self) -> int: ...


Item = TypeVar("Item", bound=Held)
COPIES = 4  # captures of the same shapes at once, those in use included
KEYS = 4096  # shapes remembered


@dataclass
class _Entry(Generic[Item]):
    free: list[Item] = field(default_factory=list)
    made: int = 0  # free and in use
    seen: int = 0  # times the key has come
    wanted: int = 2  # times it must have come before it is captured
    gone: bool = False  # dropped, with its owner or by clear(): nothing is given back to it


class Captures(Generic[Item]):
    """Captures by key, the least recently used dropped beyond ``limit`` bytes.

    Capturing takes longer than a run, so a key is captured only when it comes again; one that was dropped has to come
    four times as often before it is captured again: shapes that never stay must not cost more than they give.
    """

    def __init__(self, limit: int):
        self.limit, self.nbytes = limit, 0
        self._lock = threading.RLock()
        self._entries: OrderedDict[tuple[Hashable, ...], _Entry[Item]] = OrderedDict()
        self._owners: set[int] = set()
        self._in_use: dict[int, _Entry[Item]] = {}  # by the item's identity

    def take(self, key: tuple[Hashable, ...], owner: object, make: Callable[[], Item]) -> Item | None:
        """A capture for the caller alone until it is given back; None while the key is new or all are in use.

        All of an owner's captures go when it goes.
        """
        key = (id(owner), *key)
        with self._lock:
            entry = self._entries.setdefault(key, _Entry())
            self._entries.move_to_end(key)
            if entry.free:
                found = entry.free.pop()
                self._in_use[id(found)] = entry
                return found
            entry.seen += 1
            if entry.seen < entry.wanted or entry.made >= COPIES:
                self._forget_keys()
                return None
            entry.made += 1
            if id(owner) not in self._owners:
                self._owners.add(id(owner))
                weakref.finalize(owner, self._forget, id(owner))
        try:
            made = make()
        except (
            RuntimeError
        ):  # no memory for it, say: the caller runs without a capture, which shows any other error
            with self._lock:
                entry.made -= 1
                entry.seen, entry.wanted = 0, 4 * entry.wanted
            return None
        with self._lock:
            self.nbytes += made.nbytes
            self._in_use[id(made)] = entry
            self._shrink()
        return made

    def give_back(self, item: Item) -> None:
        """Others may use it now: callers with the key and the owner it was made for, no others. An owner made later may
        have the same ``id``, so the entry itself is remembered, not its key."""
        with self._lock:
            entry = self._in_use.pop(id(item), None)
            if entry is None:
                return
            if entry.gone:
                self.nbytes -= item.nbytes
                return
            entry.free.append(item)
            self._shrink()

    def clear(self) -> None:
        """Drop what is not in use and forget what was seen."""
        with self._lock:
            for key in list(self._entries):
                self._remove(key)

    def _forget(self, owner: int) -> None:
        with self._lock:
            self._owners.discard(owner)
            for key in [k for k in self._entries if k[0] == owner]:
                self._remove(key)

    def _remove(self, key: tuple[Hashable, ...]) -> None:
        entry = self._entries.pop(key)
        entry.gone = True
        for item in entry.free:
            self.nbytes -= item.nbytes

    def _shrink(self) -> None:
        for entry in self._entries.values():
            while self.nbytes > self.limit and entry.free:
                self.nbytes -= entry.free.pop().nbytes
                entry.made -= 1
                if not entry.made:
                    entry.seen, entry.wanted = 0, 4 * entry.wanted

    def _forget_keys(self) -> None:
        for key in [k for k, entry in self._entries.items() if not entry.made][
            : max(0, len(self._entries) - KEYS)
        ]:
            del self._entries[key]
