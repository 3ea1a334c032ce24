"""What ``doctor`` looks at. Each check gives findings in words: fine, worth knowing, or in the way."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from anaphora._version import __version__
from anaphora.errors import AnaphoraError
from anaphora.files.writing import scratch_file

State = Literal["fine", "note", "bad"]
PACKAGES = ("torch", "numpy", "tokenizers", "safetensors", "pydantic", "click", "rich", "sacrebleu")
OPTIONAL = {"pillow": "PNG pictures and image data", "psutil": "the memory benchmarks"}
_GIB = 1 << 30


@dataclass(frozen=True)
class Finding:
    """One thing looked at: what it is, what was found, and whether it is in the way."""

    topic: str
    state: State
    text: str


def examine() -> list[Finding]:
    """Every finding on this machine, in the order they are shown."""
    checks = (_python, _packages, _torch, _processor, _compiler, _disk, _terminal)
    return [finding for check in checks for finding in check()]


@dataclass(frozen=True)
class Tuned:
    """What was measured on one kind of GPU, and where that is kept."""

    name: str
    file: str
    thresholds: Any  # see `anaphora.engine.tuning`
    measurements: list[Any]

    def words(self) -> Iterator[tuple[str, str]]:
        """Each threshold with where it says yes."""
        from anaphora.engine.tuning import EVERYWHERE, NO_LIMIT

        for name, where in vars(self.thresholds).items():
            if where == EVERYWHERE:
                yield name, "everywhere"
            elif where.hidden == NO_LIMIT:
                yield name, "nowhere"
            else:
                yield name, f"above {where.hidden} units and {where.cells} numbers in a state (rows × units)"


def tune(say: Callable[[str], None]) -> list[Tuned]:
    """Measure recurrent layers on one GPU of each kind, and keep which backend is the fastest where."""
    import torch

    if not torch.cuda.is_available() or torch.version.hip:
        raise AnaphoraError("doctor --tune measures NVIDIA GPUs, and torch finds none here: leave it out.")
    from anaphora.engine import measure, tuning

    kinds = {torch.cuda.get_device_name(k): k for k in reversed(range(torch.cuda.device_count()))}
    found = []
    for name, index in kinds.items():
        say(f"{name}: measuring up to {measure.LAYERS} layers, for about a minute")
        measured = []
        for m in measure.measure(index):
            measured.append(m)
            times = ", ".join(f"{backend} {ms:.2f} ms" for backend, ms in m.times.items())
            say(f"  {len(measured)}/{measure.LAYERS}  {m.dtype}, {m.hidden} units, {m.batch} rows: {times}")
        fitted = tuning.fit(measured)
        file = tuning.keep(tuning.key_of(index), fitted, measured)
        found.append(Tuned(name, str(file), fitted, measured))
    return found


def _python() -> Iterator[Finding]:
    yield Finding("Python", "fine", f"{platform.python_version()}, with Anaphora {__version__}")


def _packages() -> Iterator[Finding]:
    found = {name: _version(name) for name in PACKAGES}
    for name, version in found.items():
        if version is None:
            yield Finding("packages", "bad", f"{name} is missing; install it with `pip install anaphora`")
    there = ", ".join(f"{name} {version}" for name, version in found.items() if version)
    yield Finding("packages", "fine", there)
    for name, use in OPTIONAL.items():
        if _version(name) is None:
            yield Finding("packages", "note", f"{name} is not installed; it is only needed for {use}")


def _torch() -> Iterator[Finding]:
    try:
        import torch
    except Exception as error:  # whatever stops torch from loading is what the user came to learn
        yield Finding("torch", "bad", f"cannot be loaded ({error}); install it again")
        return
    yield Finding("threads", "fine", f"{torch.get_num_threads()} for torch, {os.cpu_count()} processors")
    yield from _gpus(torch)


def _gpus(torch: Any) -> Iterator[Finding]:
    if torch.cuda.is_available():
        for index in range(torch.cuda.device_count()):
            facts = torch.cuda.get_device_properties(index)
            bf16 = "bf16" if torch.cuda.is_bf16_supported() else "no bf16"
            yield Finding(
                "GPU", "fine", f"cuda:{index} is {facts.name}, {facts.total_memory / _GIB:.0f} GiB, {bf16}"
            )
            if not _tuned(torch, index):
                yield Finding(
                    "GPU",
                    "note",
                    f"recurrent layers were never measured on cuda:{index}; `anaphora doctor --tune` finds the fastest "
                    "backend for each size",
                )
    elif torch.backends.mps.is_available():
        yield Finding("GPU", "fine", "mps (Apple)")
    elif shutil.which("nvidia-smi"):
        yield Finding("GPU", "note", f"there may be one, but torch {torch.__version__} cannot use it")
    else:
        yield Finding(
            "GPU", "note", "none; training runs on the CPU, which is enough for the embedded corpora"
        )


def _tuned(torch: Any, index: int) -> bool:
    from anaphora.engine.tuning import thresholds

    return bool(torch.version.hip) or thresholds(torch.device("cuda", index)) is not None


def _processor() -> Iterator[Finding]:
    name, flags = _cpu_facts()
    known = [
        flag for flag in ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "neon", "asimd") if flag in flags
    ]
    yield Finding("CPU", "fine", f"{name or platform.machine()}{': ' + ', '.join(known) if known else ''}")
    cap = os.environ.get("ONEDNN_MAX_CPU_ISA")
    if "amx_bf16" in flags and cap:
        yield Finding(
            "CPU",
            "note",
            f"AMX is left unused (ONEDNN_MAX_CPU_ISA={cap}), as some virtual machines trap on it",
        )


def _cpu_facts() -> tuple[str, set[str]]:
    name, flags = "", set[str]()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor(), flags
    for line in lines:
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            name = value.strip()
        elif key.strip() in ("flags", "Features"):
            flags = set(value.split())
            break
    return name, flags


def _compiler() -> Iterator[Finding]:
    found = next((path for name in ("c++", "g++", "clang++", "cl") if (path := shutil.which(name))), None)
    if found:
        yield Finding("compiler", "fine", found)
    else:
        yield Finding("compiler", "note", "none; everything works, compiled recurrences only do without")


def _disk() -> Iterator[Finding]:
    for topic, folder in (("current folder", Path.cwd()), ("temporary files", Path(tempfile.gettempdir()))):
        try:
            with scratch_file(folder):
                free = shutil.disk_usage(folder).free
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            yield Finding(
                topic, "bad", f"{folder} cannot be written ({reason}); choose another place for runs"
            )
            continue
        state: State = "fine" if free > 2 * _GIB else "note"
        more = "" if state == "fine" else "; checkpoints may not fit"
        yield Finding(topic, state, f"{folder} can be written, {free / _GIB:.1f} GiB free{more}")


def _terminal() -> Iterator[Finding]:
    encoding = (sys.stdout.encoding or "").lower().replace("-", "")
    size = shutil.get_terminal_size((80, 24))
    kind = "a terminal" if sys.stderr.isatty() else "no terminal: progress is written as plain lines"
    colour = (
        "no colour (NO_COLOR is set)" if os.environ.get("NO_COLOR") else "colour where there is a terminal"
    )
    if encoding == "utf8":
        yield Finding("terminal", "fine", f"{kind}, {size.columns} columns, UTF-8, {colour}")
    else:
        yield Finding(
            "terminal", "note", f"{kind}, encoding {encoding}: some signs will show as ?; use UTF-8"
        )


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
