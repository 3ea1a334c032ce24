"""Several processes of one command, started by ``torchrun``: which of them speaks."""

from __future__ import annotations

import datetime
import hashlib
import os
import time

PATIENCE = datetime.timedelta(seconds=5)
WAIT = 1.0
"""A process whose message another has printed waits so many seconds: torchrun ends all when one ends."""


def first_process() -> bool:
    """Under torchrun the first process speaks for all."""
    return os.environ.get("RANK", "0") == "0"


def first_to_say(sentence: str) -> bool:
    """Whether no other process of this command has printed ``sentence``, which all of them may have met.

    A mistake that one process alone meets is printed by that one, so it is not simply the first process that prints:
    they agree through the store with which torchrun brought them together.
    """
    if os.environ.get("WORLD_SIZE", "1") == "1" or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return True
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    key = f"anaphora/{attempt}/{hashlib.sha256(sentence.encode()).hexdigest()}"
    try:
        from torch.distributed import TCPStore  # type: ignore[attr-defined]

        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*place, is_master=False, timeout=PATIENCE, wait_for_workers=False)
        first = store.add(key, 1) == 1
    except (KeyError, ValueError, ImportError, RuntimeError):  # better twice than never
        return True
    if not first:
        time.sleep(WAIT)
    return first
