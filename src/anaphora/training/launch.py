"""What a job of ``torchrun`` remembers while it restarts its processes (``--max-restarts``): which run it began.

The store is torchrun's own, which lives as long as the job. So a folder that held a run before the job is never taken for
one of the job's own, and a restarted ``train`` goes on with what it began.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterator
from typing import Any

PATIENCE = datetime.timedelta(seconds=5)


def restarts() -> int:
    """How often torchrun has restarted this process's group; 0 outside torchrun."""
    count = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    return int(count) if count.isdigit() else 0


def remember(name: str, value: str) -> None:
    """Keep ``value`` for the restarted processes; does nothing outside torchrun."""
    for store in _store():
        with contextlib.suppress(RuntimeError):
            store.set(f"anaphora/{name}", value)


def recall(name: str) -> str | None:
    """What was kept under ``name`` by the processes before a restart."""
    for store in _store() if restarts() else ():
        with contextlib.suppress(RuntimeError):
            if store.check([f"anaphora/{name}"]):
                return str(store.get(f"anaphora/{name}").decode())
    return None


def _store() -> Iterator[Any]:
    """The job's store, where there is one that can be reached."""
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    try:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*place, is_master=False, timeout=PATIENCE, wait_for_workers=False)
    except (KeyError, ValueError, RuntimeError):
        return
    yield store
