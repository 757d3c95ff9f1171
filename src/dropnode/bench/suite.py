"""The benchmark as a whole: run some parts, and collect their results and the machine's data."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from dropnode.bench import accuracy, baselines, epochs, growth, scale, throughput
from dropnode.bench.parts import PARTS, QUICK_PARTS
from dropnode.bench.timing import Announce, quiet
from dropnode.errors import ConfigError
from dropnode.settings import suggestion

_PACKAGES = ("dropnode", "torch", "torch_geometric", "numpy", "numba")


def run(
    only: Iterable[str] | None = None, *, full: bool = False, announce: Announce = quiet
) -> dict[str, Any]:
    """Measure some parts and return plain JSON values.

    Parameters
    ----------
    only : iterable of str, optional
        Some of :data:`~dropnode.bench.parts.PARTS`; by default those of ``QUICK_PARTS``, or all if
        ``full``.
    full : bool
        Whether to measure larger graphs too.
    announce : callable
        Called with a text about the current measurement.
    """
    parts = list(only) if only is not None else list(PARTS if full else QUICK_PARTS)
    for part in parts:
        if part not in PARTS:
            raise ConfigError(f"the benchmark has no part {part!r}{suggestion(part, PARTS)}")
    started = time.perf_counter()
    result: dict[str, Any] = {"machine": machine()}
    if "epoch" in parts:
        result["epoch"] = epochs.measure(announce)
    if "baselines" in parts:
        result["baselines"] = baselines.measure(announce)
    if "propagation" in parts:
        result["propagation"], bandwidth = throughput.measure(announce)
        result["bandwidth_gb_s"] = bandwidth.median
        result["bandwidth_iqr_gb_s"] = bandwidth.iqr
    if "scaling" in parts:
        sizes = growth.SIZES + (growth.LARGE_SIZES if full else ())
        result["scaling"], result["exponents"] = growth.measure(sizes, announce)
    if "accuracy" in parts:
        result["accuracy"] = accuracy.measure(announce)
    if "scale" in parts:
        sizes = scale.SIZES + (scale.LARGE_SIZES if full else ())
        result["scale"], result["scale_exponents"] = scale.measure(sizes, announce=announce)
    result["seconds"] = time.perf_counter() - started
    return result


def machine() -> dict[str, Any]:
    """Return what is known of this machine, and its load before the measurement."""
    return {
        "cpu": _cpu_model(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "system": platform.platform(terse=True),
        "python": platform.python_version(),
        **{name: _version(name) for name in _PACKAGES},
    }


def _cpu_model() -> str:
    details = Path("/proc/cpuinfo")
    for line in details.read_text().splitlines() if details.exists() else ():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
