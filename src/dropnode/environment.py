"""The software and the machine that a result or a model depends on."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

import numpy as np
import torch

import dropnode


def versions() -> dict[str, str]:
    """Return the versions that a result or a model depends on."""
    return {
        "dropnode": dropnode.__version__,
        "torch": torch.__version__.partition("+")[0],
        "numpy": np.__version__,
        "python": platform.python_version(),
    }


def environment() -> dict[str, Any]:
    """Return a description of this machine and its software."""
    return {
        "platform": platform.platform(terse=True),
        "processor": _processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        return next(line.partition(":")[2].strip() for line in lines if "model name" in line)
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
