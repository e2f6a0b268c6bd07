"""What a figure depends on beside the engines: the machine and its state."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

# of the long list that Linux gives, what changes the speed of matrix products
FLAGS = (
    "avx2", "f16c", "fma", "avx_vnni", "avx512f", "avx512_vnni", "avx512_bf16", "avx512_fp16", "amx_tile",
    "amx_int8", "amx_bf16", "asimd", "asimddp", "i8mm", "bf16", "sve",
)  # fmt: skip


def describe_machine() -> dict[str, Any]:
    """Processor, instruction sets, cores and how busy they are (the load average of the last minute)."""
    about = _cpuinfo()
    present = about.get("flags", about.get("Features", "")).split()
    return {
        "cpu": about.get("model name", platform.processor() or platform.machine()),
        "cpu_flags": [flag for flag in FLAGS if flag in present],
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        "system": f"{platform.system()} {platform.release()}",
        "load_average": round(os.getloadavg()[0], 2),
    }


def _cpuinfo() -> dict[str, str]:
    """The first processor's entries of /proc/cpuinfo; empty where there is none."""
    path = Path("/proc/cpuinfo")
    if not path.exists():
        return {}
    first = path.read_text().split("\n\n")[0]
    entries = (line.partition(":") for line in first.splitlines())
    return {name.strip(): value.strip() for name, _, value in entries}
