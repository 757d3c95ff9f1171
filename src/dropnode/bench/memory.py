"""The memory of this process, as the operating system counts it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
CLEAR = Path("/proc/self/clear_refs")


def resident_mb() -> float:
    """Return the megabytes that the process uses now; the peak where only that is known."""
    return _status_mb("VmRSS") if STATUS.exists() else peak_mb()


def peak_mb() -> float:
    """Return the peak memory of the process in megabytes."""
    if STATUS.exists():
        # Not getrusage: on Linux a new process inherits the peak of its parent.
        return _status_mb("VmHWM")
    import resource

    units = 1e6 if sys.platform == "darwin" else 1e3
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / units


def forget_peak() -> None:
    """Reset the peak to the memory in use now, where the system allows it."""
    try:
        CLEAR.write_text("5")
    except OSError:
        return


def _status_mb(field: str) -> float:
    found = re.search(rf"^{field}:\s+(\d+) kB", STATUS.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6
