"""What share of a training went into measuring dev data: python benchmarks/evaluation_share.py RUN…

Read from ``timings.jsonl``: the seconds of all evaluations and of judging the finalists, against those from the start to the last
line. At most a tenth is the goal; the exit status is 1 where a run took more.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

MOST = 0.10


def share(run: Path) -> dict[str, Any]:
    """Seconds of training, evaluations and finalists of a run, all its parts together."""
    path = run / "timings.jsonl"
    if not path.is_file():
        raise SystemExit(f"{path} is not there: name the folder of a run.")
    lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    whole, part = 0.0, 0.0
    for line in lines:
        if line.get("event") in ("start", "resume"):
            whole, part = whole + part, 0.0  # seconds count from there
        part = max(part, line.get("seconds") or 0.0)
    took = {
        event: sum(line.get("took") or 0.0 for line in lines if line.get("event") == event)
        for event in ("evaluate", "finalists")
    }
    seconds = whole + part
    found = {
        "run": str(run),
        "seconds": round(seconds, 1),
        **{key: round(value, 1) for key, value in took.items()},
    }
    return {**found, "share": round(sum(took.values()) / seconds, 4) if seconds else 0.0}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    parser.add_argument("--json", action="store_true")
    given = parser.parse_args()
    rows = [share(run) for run in given.runs]
    for row in rows:
        print(
            json.dumps(row)
            if given.json
            else f"{row['run']}: {row['seconds']} s, evaluations {row['evaluate']} s, finalists {row['finalists']} s = {row['share']:.1%}"
        )
    return int(any(row["share"] > MOST for row in rows))


if __name__ == "__main__":
    sys.exit(main())
