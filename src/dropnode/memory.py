"""How much memory there is, and an error for work that needs more.

Linux grants memory that it does not have and then kills the process, without a word. Work of a size
that a caller or a file chooses is therefore compared with the available memory before it begins.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path

from dropnode.errors import WorkError

GROUPS = (
    ("/sys/fs/cgroup", "memory.max", "memory.current", ""),
    ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
)
"""Both versions of control groups: the folder of a container, the files in it with its limit and
with what it uses, and how lines of its statistics begin."""


def check_memory(needed: int, what: str, cure: str, error: type[WorkError] = WorkError) -> None:
    """Raise an error if work needs more bytes than are available; ``cure`` says what to do.

    Examples
    --------
    >>> check_memory(10**18, "training", "lower hidden")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    dropnode.errors.WorkError: training needs at least 1,000,000,000.0 GB of memory, and ... GB ...
    """
    limit = available_memory()
    if limit is not None and needed > limit:
        raise error(
            f"{what} needs at least {gigabytes(needed)} of memory, and {gigabytes(limit)} are "
            f"available; {cure}"
        )


def available_memory() -> int | None:
    """Return the bytes that this process may still use; None on a system that does not tell."""
    found = []
    with suppress(OSError):
        text = Path("/proc/meminfo").read_text(encoding="utf-8")
        found += [1024 * int(kilobytes) for kilobytes in re.findall(r"MemAvailable: +(\d+)", text)]
    if not found:
        with suppress(AttributeError, ValueError, OSError):
            found.append(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    for group in GROUPS:
        # Without a limit, the file has a word.
        with suppress(OSError, ValueError):
            found.append(_left(*group))
    return min(found, default=None)


def _left(folder: str, limit: str, used: str, prefix: str) -> int:
    """Return the bytes below the limit of a container, those that hold files among them.

    Linux forgets the content of files, which is on the disk, where a process needs the memory.
    """

    def text(name: str) -> str:
        return (Path(folder) / name).read_text(encoding="utf-8")

    most, files = int(text(limit)), 0
    with suppress(OSError):
        numbers = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", text("memory.stat"), re.M)
        files = sum(map(int, numbers))
    return max(most - max(int(text(used)) - files, 0), 0)


def gigabytes(size: int) -> str:
    """Return a number of bytes as text, such as ``1.5 GB``; few of them as they are."""
    return f"{size:,} bytes" if size < 10**7 else f"{size / 1e9:,.1f} GB"
