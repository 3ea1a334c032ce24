"""What a job of ``torchrun`` remembers while it restarts its processes (``--max-restarts``): which run it began.

The store is torchrun's own, which lives as long as the job. So a folder that held a run before the job is never taken for
one of the job's own, and a restarted ``train`` goes on with what it began. Whether a process was restarted does not follow
from torchrun's count: on several machines each counts its own failures alone, and restarts for those of the others too.
"""

from __future__ import annotations

import contextlib
import datetime
import functools
import json
import os
import secrets
import sys
from collections.abc import Iterator
from typing import Any

PATIENCE = datetime.timedelta(seconds=5)


def remember(name: str, value: str) -> None:
    """Keep ``value`` for the restarted processes; does nothing outside torchrun."""
    for store in _store():
        with contextlib.suppress(RuntimeError):
            store.set(f"anaphora/{name}", json.dumps([_process(), sys.argv[1:], value]))


def recall(name: str) -> str | None:
    """What a process before a restart kept under ``name``, started with the same words; None for what this one kept."""
    for store in _store():
        with contextlib.suppress(RuntimeError):
            if store.check([f"anaphora/{name}"]):
                process, words, value = json.loads(store.get(f"anaphora/{name}"))
                if process != _process() and words == sys.argv[1:]:
                    return str(value)
    return None


@functools.cache
def _process() -> str:
    """A name that no other process has."""
    return secrets.token_hex(8)


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
