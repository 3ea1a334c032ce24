"""Who has started: the processes of one start find each other in a store that may remember earlier starts.

``torchrun --max-restarts`` keeps one store for all its starts, and a killed process leaves in it the addresses at which it
was to be reached. A process that reads those waits for an answer that never comes, or is refused the connection. How often
torchrun has restarted does not tell starts apart: on several machines each counts its own failures alone. So rank 0 draws
a name for the start, and answers each process under a name which that process has just drawn itself.
"""

from __future__ import annotations

import secrets
import time

from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]

from anaphora.errors import TrainingError

PAUSE = 0.02
"""Seconds between two looks into the store."""


def roll_call(store: Store, rank: int, world: int, patience: float) -> Store:
    """Wait until all processes of this start are there; the part of ``store`` that they alone read and write.

    Raises `TrainingError` where one has not come after ``patience`` seconds.
    """
    end, own = time.monotonic() + patience, secrets.token_hex(8)
    if rank:
        store.set(f"anaphora/called/{rank}", own)
        _wait(store, f"anaphora/answered/{own}", rank, end)
        start = store.get(f"anaphora/answered/{own}").decode()
    else:
        start = own
    part = PrefixStore(f"anaphora/start/{start}", store)
    if rank:
        part.set(f"here/{rank}", "")
        _wait(part, "all", rank, end)
    else:
        for other in range(1, world):
            _await(store, part, other, start, end)
        part.set("all", "")
    return part


def _await(store: Store, part: Store, other: int, start: str, end: float) -> None:
    """Answer ``other`` until it is here; the name that it called may be that of a process which is no more."""
    answered = ""
    while not part.check([f"here/{other}"]):
        if store.check([f"anaphora/called/{other}"]):
            name = store.get(f"anaphora/called/{other}").decode()
            if name != answered:
                store.set(f"anaphora/answered/{name}", start)
                answered = name
        if time.monotonic() > end:
            raise TrainingError(f"rank {other} did not start in time; start all processes again.")
        time.sleep(PAUSE)


def _wait(store: Store, key: str, rank: int, end: float) -> None:
    while not store.check([key]):  # rather than ``store.wait``, which no signal interrupts
        if time.monotonic() > end:
            raise TrainingError(
                f"rank {rank} timed out: not all other processes started; start all of them again."
            )
        time.sleep(PAUSE)
