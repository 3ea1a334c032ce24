"""Run the benchmarks a laptop can run and write docs/measured/benchmarks.md. Run: python benchmarks/run.py [NAME …]

With names, only those run, and the others keep the figures that are on the page. Takes some minutes; the machine
should have nothing else to do.
"""

from __future__ import annotations

import argparse
import ast
import json
import platform
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rows import KEYS

HERE = Path(__file__).resolve().parent
PAGE = HERE.parent / "docs" / "measured" / "benchmarks.md"
SECONDS = 1800  # for one benchmark
BENCHMARKS = (
    "startup",
    "memory",
    "recurrence",
    "streaming",
    "crf",
    "mdlstm",
    "cost_table",
    "features",
    "ctc_loss",
    "ctc_beam",
    "beam",
    "hmm",
    "kalman",
    "var",
    "ngram",
    "word2vec",
    "studio_page",
    "studio_load",
)
HEAD = """# Benchmarks

Written by `make bench` (or `python benchmarks/run.py`). A ratio says how many times better we are than the peer,
measured in the same process where both run; 1 or more is ahead, and the goal is the ratio we ask of ourselves.
"""


@dataclass(frozen=True)
class Section:
    """A benchmark on the page: its name and the lines below its heading."""

    name: str
    text: str

    def __str__(self) -> str:
        return f"## {self.name}\n\n{self.text}\n"


def measure(name: str) -> tuple[Section, bool]:
    """Run one benchmark; its section, and whether it ran."""
    command = [sys.executable, str(HERE / f"{name}.py"), "--json"]
    print(f"{name} …", file=sys.stderr, flush=True)
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=SECONDS, cwd=HERE.parent)
        rows = json.loads(done.stdout) if done.returncode == 0 else None
    except (subprocess.TimeoutExpired, ValueError):
        rows = None
    about = f"{summary(name)}\n\n`python benchmarks/{name}.py` on {machine()}:\n\n"
    if rows is None:
        return Section(name, f"{about}It did not run to its end here."), False
    if not rows:
        return Section(
            name, f"{about}The peer is not installed here, so there is nothing to compare with."
        ), True
    return Section(name, about + table(rows)), True


def summary(name: str) -> str:
    """The first sentence of the benchmark's own description."""
    text = ast.get_docstring(ast.parse((HERE / f"{name}.py").read_text(encoding="utf-8"))) or name
    return re.split(r"\s+Run:|\n\n", text, maxsplit=1)[0].strip().replace("``", "`")


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| measure | peer | ours | theirs | ratio | goal |", "|---|---|---|---|---|---|"]
    for r in rows:
        missing = [key for key in KEYS if key not in r]
        if missing:
            raise SystemExit(f"a row lacks {', '.join(missing)}: {r}")
        ours, theirs = (f"{r[side]:g} {r['unit']}".rstrip() for side in ("ours", "theirs"))
        goal = "none" if r["goal"] is None else f"{r['goal']:g}"
        missed = r["goal"] is not None and r["ratio"] < r["goal"]
        cells = (r["row"], r["peer"], ours, theirs, f"{r['ratio']:g}", f"{goal} (missed)" if missed else goal)
        lines.append("| " + " | ".join(str(cell).replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)


def overview(sections: list[Section]) -> str:
    """How many goals are reached, and which are missed, with links to their sections."""
    rows = [
        (section.name, line.strip("| ").split(" | "))
        for section in sections
        for line in section.text.splitlines()
        if line.startswith("| ") and not line.startswith("| measure |")
    ]
    goals = [(name, cells) for name, cells in rows if cells[-1] != "none"]
    missed = [
        f"- [{name}](#{name}): {cells[0]}, {cells[-2]} of {cells[-1].removesuffix(' (missed)')}"
        for name, cells in goals
        if cells[-1].endswith("(missed)")
    ]
    reached = f"**{len(goals) - len(missed)} of {len(goals)} goals are reached.**"
    return "\n".join([f"{reached} Missed:" if missed else reached, *([""] if missed else []), *missed, ""])


def machine() -> str:
    """Processor, cores, memory and versions; nothing that names the machine."""
    import psutil
    import torch

    memory = psutil.virtual_memory().total / 2**30
    return (
        f"{processor()}, {psutil.cpu_count()} cores, {memory:.0f} GiB, {platform.system()}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def processor() -> str:
    """Its model as the system names it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*:\s*(.+)$", info.read_text(), re.MULTILINE) if info.exists() else None
    return found[1].strip() if found else platform.processor() or platform.machine()


def kept() -> dict[str, Section]:
    """The sections that are on the page now."""
    text = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    parts = re.split(r"^## (\w+)\n\n", text, flags=re.MULTILINE)[1:]
    return {name: Section(name, body.strip()) for name, body in zip(parts[::2], parts[1::2], strict=True)}


def write(sections: list[Section]) -> None:
    PAGE.write_text("\n".join([HEAD, overview(sections), *map(str, sections)]), encoding="utf-8")


def main() -> int:
    present = [name for name in BENCHMARKS if (HERE / f"{name}.py").exists()]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"any of {', '.join(present)}; all by default"
    )
    asked = parser.parse_args().names or present
    unknown = [name for name in asked if name not in present]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not a benchmark; there are {', '.join(present)}")
    sections, fine = kept(), True
    for name in asked:
        section, ran = measure(name)
        if ran and "|" not in section.text and name in sections:
            continue  # without its peer it has nothing newer to say
        sections[name] = section
        fine = fine and ran
        write([sections[known] for known in present if known in sections])
    print(f"wrote {PAGE.relative_to(HERE.parent)}", file=sys.stderr)
    return 0 if fine else 1


if __name__ == "__main__":
    raise SystemExit(main())
