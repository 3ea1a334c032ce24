"""The rows all benchmarks give: how one measure of ours compares with a peer's.

``{"row", "peer", "ours", "theirs", "unit", "ratio", "goal"}``: ``ratio`` is how many times better we are than
the peer (1 or more is ahead) and ``goal`` the target ratio, None where there is none.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from typing import Any

KEYS = ("row", "peer", "ours", "theirs", "unit", "ratio", "goal")


def row(
    name: str,
    peer: str,
    ours: float,
    theirs: float,
    unit: str,
    *,
    goal: float | None,
    more_is_better: bool = False,
) -> dict[str, Any]:
    """One comparison of numbers with a unit; by default less is better."""
    ratio = ours / theirs if more_is_better else theirs / ours
    figures = {"ours": float(f"{ours:.4g}"), "theirs": float(f"{theirs:.4g}")}
    return {"row": name, "peer": peer, **figures, "unit": unit, "ratio": round(ratio, 2), "goal": goal}


def against(peer: str, measure: Callable[[], list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """The rows that ``measure`` gives, or none, and a sentence, where the peer is not installed."""
    try:
        return measure()
    except ModuleNotFoundError:
        print(f"{peer} is not installed, so its rows are left out: pip install {peer}", file=sys.stderr)
        return []


def show(rows: list[dict[str, Any]], *, as_json: bool) -> None:
    """Print the rows, for people or as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2, ensure_ascii=False))
        return
    for r in rows:
        goal = "no goal" if r["goal"] is None else f"goal {r['goal']:g}"
        print(
            f"{r['row']}: {r['ours']:g} {r['unit']}, {r['peer']} {r['theirs']:g} {r['unit']}: "
            f"ratio {r['ratio']:g} ({goal})"
        )
