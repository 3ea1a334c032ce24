"""Run the numeric tests as other processors compute: ``make test-cpus``.

    tools/cpus.py                     # every row, two at a time
    tools/cpus.py baseline no-home    # these rows; --list shows what each runs

A row ties the instruction sets of our kernels (ANAPHORA_ISA), of PyTorch (ATEN_CPU_CAPABILITY) and of oneDNN
(ONEDNN_MAX_CPU_ISA) to one level of x86-64 and runs the tests whose numbers depend on it: kernels, nn, search, models, and
the contract of one case for each task. Three short rows at the lowest level stand for other machines: one has no C
compiler, one no home folder, and in one two test runs share an empty cache of kernels from the first moment on.

The exit code is 0 if no test of any row fails. Rows this processor cannot execute are left out, which is printed.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from digests import TIED

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = ("kernels", "nn", "search", "models")
LEFT_OUT = {
    "kernels/test_*gpu*": "kernels for GPUs, whose threads are played by fibres",
    "kernels/test_*_cuda.py": "the same",
    "kernels/test_decode_emulated.py": "the same",
    "kernels/test_persistent_*": "the same",
    "kernels/test_matrix_scan.py": "kernels for GPUs, in the interpreter of Triton",
    "kernels/test_triton_source.py": "the same",
    "kernels/test_cuda_graph.py": "what is captured on a GPU",
    "kernels/test_tuning.py": "speeds of GPUs",
    "kernels/test_instruction_sets.py": "builds the kernels for every instruction set by itself",
    "kernels/test_arguments.py": "what reaches a kernel, not what it computes",
    "kernels/test_native_arguments.py": "the same",
    "kernels/test_recurrence_drawn.py": "drawn cells; test_matrix_cells.py and nn/test_cells.py have the usual ones",
    "kernels/test_recurrence_runs.py": "threads and forks, compared with one thread",
    "kernels/test_recurrence_tracing.py": "what is seen in a step, not what it computes",
    "kernels/test_rings.py": "the same",
    "kernels/test_schedule.py": "the same",
    "nn/test_*_cuda.py": "needs a GPU",
    "nn/test_costs.py": "what is counted, not what is computed",
    "nn/test_fingerprint.py": "whether something changed, not what is computed",
    "nn/test_recurrent_bits.py": "builds the kernels for every instruction set by itself",
    "nn/test_recurrent_explain.py": "which backend is chosen, not what it computes",
    "nn/test_recurrent_fuzz.py": "that nothing crashes",
    "nn/test_recurrent_operator.py": "what PyTorch's compiler sees",
    "nn/test_threads.py": "threads, compared with one thread",
    "search/test_cancellation.py": "when a search stops",
    "search/test_lexicon_automaton.py": "no floating point",
    "search/test_lexicon_tree.py": "the same",
    "search/test_search_argmax.py": "what is refused",
    "models/test_embeddings_vectors.py": "files and what is refused",
    "models/test_hmm_manners.py": "the same",
    "models/test_hostile_models.py": "the same",
    "models/test_ngram_arpa.py": "files",
}
"""Files of these folders that no row runs, and why their results are the same on every processor."""
CONTRACT = ("train", "batch", "command", "exported")
"""Checks of the contract in which results of two paths or of two processes meet."""
SHORT = (
    "kernels/test_compiler.py",
    "kernels/test_dispatch.py",
    "kernels/test_kernel_cache.py",
    "nn/test_crf.py",
    "nn/test_recurrent_steps.py",
    "search/test_ctc_decoding.py",
)
"""What the rows of other machines run: what is compiled, where it is kept, and what stands in for it."""
COPIED = (
    "kernels/test_kernel_cache.py",
    "kernels/test_packed_native.py",
    "nn/test_crf.py",
    "nn/test_grid_lstm.py",
)
"""What two copies run at once, each kernel of which both find missing."""


@dataclass(frozen=True)
class Row:
    """The tests that a processor, or a machine, is to pass."""

    name: str
    about: str
    words: Sequence[str]
    environment: dict[str, str] = field(default_factory=dict)
    copies: int = 1


def tied(word: str) -> dict[str, str]:
    """Return the variables that tie everything to one instruction set."""
    aten, onednn = TIED[word]
    return {"ANAPHORA_ISA": word, "ATEN_CPU_CAPABILITY": aten, "ONEDNN_MAX_CPU_ISA": onednn}


def rows(scratch: Path) -> list[Row]:
    """Return all rows; what they write lies in ``scratch``."""
    whole = [f"tests/{folder}" for folder in FOLDERS]
    whole += [f"--ignore-glob=tests/{path}" for path in LEFT_OUT]
    contract = contracts()
    lowest = tied("baseline")
    empty = scratch / "no programs"
    empty.mkdir()
    short, copied = (
        [*(f"tests/{path}" for path in some), *contract[: len(CONTRACT)]] for some in (SHORT, COPIED)
    )
    return [
        *(Row(word, f"everything at {word}", [*whole, *contract], tied(word)) for word in TIED),
        Row("no-compiler", "no program on the path", short, {**lowest, "PATH": str(empty), "CC": ""}),
        Row("no-home", "a home folder that cannot be made", short, {**lowest, "HOME": f"{os.devnull}/home"}),
        Row("two-copies", "two runs, one empty cache", copied, {**lowest, "ANAPHORA_CACHE": str(scratch / "cache")}, 2),
    ]  # fmt: skip


def contracts() -> list[str]:
    """Return the tests of the contract for the first case of each task."""
    sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests" / "contract")]
    from cases import CASES
    from check_task import CHECKS

    firsts = {case.task: name for name, case in reversed(CASES.items())}
    return [
        f"tests/contract/test_contract.py::test_contract[{name}-{check}]"
        for name in reversed(firsts.values())
        for check in CONTRACT
        if CHECKS[check].applies(CASES[name])
    ]


@dataclass
class Outcome:
    """What became of a row."""

    row: Row
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """CPU seconds, those of processes that tests started included: they do not grow on a busy machine."""
    output: str = ""


def run(row: Row, scratch: Path) -> Outcome:
    """Run the tests of a row, in several processes at once if it has copies, and add them up."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", **row.environment}
    begun, outcome = time.monotonic(), Outcome(row)
    started = []
    for copy in range(row.copies):
        place = scratch / f"{row.name}-{copy}"
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-n",
            "0",
            "-m",
            "not slow",
            "-p",
            "no:cacheprovider",
        ]
        command += [f"--junitxml={place}.xml", f"--basetemp={place}", "--tb=short", *row.words]
        log = open(f"{place}.log", "wb")  # noqa: SIM115
        started.append(
            (place, log, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log))
        )
    for place, log, process in started:
        _, status, usage = os.wait4(process.pid, 0)
        code = process.returncode = os.waitstatus_to_exitcode(status)
        outcome.cpu += usage.ru_utime + usage.ru_stime
        log.close()
        text = Path(f"{place}.log").read_text(errors="replace")
        try:
            suite = next(ElementTree.parse(f"{place}.xml").getroot().iter("testsuite"))
        except (OSError, ElementTree.ParseError):
            outcome.failed += 1
        else:
            tests, skipped, failures, errors = (
                int(suite.get(word, 0)) for word in ("tests", "skipped", "failures", "errors")
            )
            outcome.failed += failures + errors + (code != 0 and not failures + errors)
            outcome.skipped += skipped
            outcome.passed += tests - skipped - failures - errors
        if code != 0:
            outcome.output += text
    outcome.seconds = time.monotonic() - begun
    return outcome


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("rows", nargs="*", help="rows to run [all]")
    parser.add_argument("--jobs", type=int, default=2, help="rows that run at once [2]")
    parser.add_argument("--list", action="store_true", help="print what each row runs")
    asked = parser.parse_args(words)
    from anaphora.native import isa

    with tempfile.TemporaryDirectory(prefix="cpus-") as folder:
        scratch = Path(folder)
        chosen = [row for row in rows(scratch) if not asked.rows or row.name in asked.rows]
        if unknown := set(asked.rows) - {row.name for row in chosen}:
            parser.error(f"there is no row {min(unknown)!r}")
        if asked.list:
            for row in chosen:
                print(
                    f"{row.name}: {row.about}", *(f"{key}={value}" for key, value in row.environment.items())
                )
                print("   ", "\n    ".join(row.words))
            return 0
        executable = isa.executable()
        missing = [row for row in chosen if row.environment["ANAPHORA_ISA"] not in executable]
        begun = time.monotonic()
        with ThreadPoolExecutor(asked.jobs) as threads:
            outcomes = list(
                threads.map(lambda row: run(row, scratch), [row for row in chosen if row not in missing])
            )
    for one in outcomes:
        if one.failed:
            print(f"---- {one.row.name}\n{one.output}")
    print(f"{'row':12} {'passed':>7} {'failed':>7} {'skipped':>8} {'seconds':>8} {'CPU':>6}")
    for one in outcomes:
        print(
            f"{one.row.name:12} {one.passed:7} {one.failed:7} {one.skipped:8} {one.seconds:8.0f} {one.cpu:6.0f}"
        )
    for row in missing:
        print(f"{row.name:12} left out: this processor cannot execute it")
    print(f"{len(outcomes)} rows, {time.monotonic() - begun:.0f} s")
    return int(any(one.failed or not one.passed for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
