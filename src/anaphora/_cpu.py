"""A guard for CPUs that advertise AMX and then trap on it, as some virtual machines do."""

from __future__ import annotations

import os
from pathlib import Path


def avoid_broken_amx() -> None:
    """Cap oneDNN below AMX, before torch is imported, on CPUs that advertise it.

    On guests that pass the flag through without the state component, the first bfloat16 product ends
    the process with SIGILL (uxlfoundation/oneDNN#5689). A value the user has set is left alone.
    """
    if "ONEDNN_MAX_CPU_ISA" in os.environ:
        return
    try:
        flags = Path("/proc/cpuinfo").read_text()[:8192]
    except OSError:
        return
    if "amx_bf16" in flags:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_FP16"
