"""Write requirements-hashed.txt: every package of a checkout with the sha256 of the file that pip takes here.

    python tools/lock.py        # asks the package registry; nothing is installed

constraints.txt names the versions that were tested together; this file adds what they need themselves, and their
hashes, for CPython 3.11 on Linux x86-64. torch is left out: builds with and without CUDA have the same pin and other bytes,
so its hash depends on where it is taken from.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HASHED = ROOT / "requirements-hashed.txt"
BY_SOURCE = re.compile(r"torch|triton|nvidia-.*|cuda-.*|anaphora")
"""Names that are left out: torch, what only some of its builds need, and this package itself."""
HEAD = """\
# Written by `python tools/lock.py`: CPython 3.11, Linux x86-64. torch is not in it; see SECURITY.md.
#   pip install --no-deps torch==VERSION    (the pin of constraints.txt, from the source of your choice)
#   pip install --require-hashes -r requirements-hashed.txt
#   pip install --no-deps --no-build-isolation -e .
"""


def normal(name: str) -> str:
    """The one spelling of a package's name (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def report() -> list[dict[str, Any]]:
    """What pip would install for a checkout with its tools."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.json"
        command = [sys.executable, "-m", "pip", "install", "--dry-run", "--quiet", "--ignore-installed"]
        command += [
            "--disable-pip-version-check",
            "--report",
            str(file),
            "-c",
            "constraints.txt",
            ".[dev,export]",
            "hatchling",
        ]
        subprocess.run(command, cwd=ROOT, check=True)
        found: list[dict[str, Any]] = json.loads(file.read_text(encoding="utf-8"))["install"]
    return found


def lines(installs: list[dict[str, Any]]) -> list[str]:
    """A pin with its hash for each package, by name."""
    made = []
    for one in installs:
        name, version = normal(one["metadata"]["name"]), one["metadata"]["version"]
        if BY_SOURCE.fullmatch(name):
            continue
        digest = one["download_info"]["archive_info"]["hashes"]["sha256"]
        made.append(f"{name}=={version} \\\n    --hash=sha256:{digest}\n")
    return sorted(made)


if __name__ == "__main__":
    HASHED.write_text(HEAD + "".join(lines(report())), encoding="utf-8")
    print(f"{HASHED.name}: {HASHED.read_text(encoding='utf-8').count('--hash')} packages")
