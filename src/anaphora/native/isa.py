"""The instruction set that C kernels are compiled for.

``ANAPHORA_ISA`` chooses it: ``baseline`` (x86-64 without fused multiply-add), ``avx2``, ``avx512`` or ``native``, which
is the default. Where it is not set, ``ATEN_CPU_CAPABILITY`` (``default``, ``avx2``, ``avx512``) is followed, so that one
variable sets what PyTorch and these kernels use.
"""

from __future__ import annotations

import hashlib
import os
import platform
from functools import cache
from pathlib import Path

from anaphora.errors import AnaphoraError

_MARCH = {"baseline": "x86-64", "avx2": "x86-64-v3", "avx512": "x86-64-v4"}
# What /proc/cpuinfo must list; the names of the x86-64 psABI levels.
_AVX2 = frozenset({"avx2", "fma", "bmi1", "bmi2", "f16c", "movbe", "abm"})
_NEEDED = {
    "baseline": frozenset[str](),
    "avx2": _AVX2,
    "avx512": _AVX2 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"},
}
_ATEN = {"default": "baseline", "avx2": "avx2", "avx512": "avx512"}


@cache
def _cpu_facts() -> tuple[str, ...]:
    """The lines of /proc/cpuinfo that the compiler's ``native`` depends on; none where there is no such file."""
    wanted = ("model name", "flags", "Features", "CPU part")
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        return ()
    return tuple(sorted({line for line in text.splitlines() if line.startswith(wanted)}))


def executable() -> list[str]:
    """The words for ``ANAPHORA_ISA`` that this CPU can execute."""
    if platform.machine() not in ("x86_64", "AMD64"):
        return ["native"]
    has = {flag for line in _cpu_facts() if line.startswith("flags") for flag in line.split()}
    return [*(name for name, needs in _NEEDED.items() if needs <= has), "native"]


def isa() -> str:
    """The word in force; one that is unknown or that this CPU cannot execute is an error."""
    word = os.environ.get("ANAPHORA_ISA", "")
    if not word:
        followed = _ATEN.get(os.environ.get("ATEN_CPU_CAPABILITY", ""), "native")
        return followed if followed in executable() else "native"
    if word not in executable():
        known = word in _MARCH
        what = "names an instruction set this CPU cannot execute" if known else "is not an instruction set"
        raise AnaphoraError(f"ANAPHORA_ISA={word} {what}; use one of {', '.join(executable())}, or unset it.")
    return word


def march_flags() -> tuple[str, ...]:
    """The compiler's flags for the instruction set in force."""
    word = isa()
    # Instructions of the level, but scheduled for the CPU at hand.
    return ("-march=native",) if word == "native" else (f"-march={_MARCH[word]}", "-mtune=native")


@cache
def cpu() -> str:
    """Identifies the CPU that ``native`` flags are resolved for."""
    facts = "\n".join(_cpu_facts()) or platform.processor()
    return platform.machine() + hashlib.sha256(facts.encode()).hexdigest()
