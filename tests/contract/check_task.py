"""The contract of a task: what must hold for every one of them, through the public API and the command alone.

`check_task` proves it for one case, which is a tiny model of the task with data for it (`cases.Case`):

    check_task(CASES["classify-text-lstm"], folder)

Each of `CHECKS` has a name and looks at one promise; ``test_contract.py`` runs them one by one.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import promises  # noqa: F401  (its checks)
import refused  # noqa: F401  (its checks)
from cases import Case
from checks import CHECKS, Subject
from doors import Served

from trained_runs import Store

__all__ = ["CHECKS", "check_task"]


def check_task(case: Case, folder: Path, only: Collection[str] = ()) -> list[str]:
    """Prove the contract for a case, or ``only`` the checks of these names; the names of those that were run."""
    trained = Store(folder).make("case", case)
    held: list[Served] = []

    def serve() -> Served:
        held.append(held[0] if held else Served({"case": trained.run}))
        return held[0]

    names = [name for name, one in CHECKS.items() if one.applies(case) and (not only or name in only)]
    try:
        for number, name in enumerate(names):
            place = folder / f"check-{number}"
            place.mkdir()
            CHECKS[name].run(Subject("case", trained, place, serve))
    finally:
        for server in held[:1]:
            server.end()
    return names
