"""What version 0.2 breaks of the contract. Each is a strict expected failure; the change that repairs it removes it here.

The ids are those of the reviews of 0.2, and of what this contract itself found:

- contract 1: a wrong number of features is reported of "input 2", or of a file without its folder, where a file was given;
- contract 2: the server calls input 2 "recording 2", or even "recording 1".
"""

from __future__ import annotations

from fnmatch import fnmatch

FAULTS: list[tuple[str, str, str]] = [
    ("language-*", "empty", "border 3.17"),
    ("embed-*", "empty", "border 3.17"),
    ("*-vectors-*", "refuses-width-command", "contract 1"),
    ("tag-frames-*", "refuses-width-command", "contract 1"),
    ("transcribe-frames-*", "refuses-width-command", "contract 1"),
    ("transcribe-frames-*", "refuses-width-http", "contract 2"),
    ("transcribe-sound-*", "refuses-loud-http", "contract 2"),
]
"""Cases (a pattern), checks (a pattern), and the fault."""


def fault_of(case: str, check: str) -> str | None:
    """Why a check of a case is known to fail."""
    return next(
        (why for cases, checks, why in FAULTS if fnmatch(case, cases) and fnmatch(check, checks)), None
    )
