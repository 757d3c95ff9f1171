"""Compiling kernels, once for each version of their sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit
from numba.core import config

from dropnode.files import user_cache

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Let other threads run meanwhile, and divide by zero as NumPy does."""


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function when it is first called, or take it from the user's cache.

    Numba's own cache looks at the file of the function alone, and would go on using old code after
    a change in what the function calls; here the sources of all that it may call name the folder.
    """
    settings: Any = config
    before = settings.CACHE_DIR
    settings.CACHE_DIR = str(_folder(Path(function.__code__.co_filename).parent))
    try:
        compiled: Callable[..., Any] = njit(cache=True, **OPTIONS)(function)
    except RuntimeError:
        # A home that cannot be written: compile in every process.
        compiled = njit(**OPTIONS)(function)
    finally:
        settings.CACHE_DIR = before
    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a part of kernels, whose code is put into theirs: calling it costs nothing."""
    compiled: Callable[..., Any] = njit(forceinline=True, _nrt=False, **OPTIONS)(function)
    return compiled


@cache
def _folder(home: Path) -> Path:
    """Return the cache of the kernels in a folder, which may call those in this one."""
    digest = sha256()
    for folder in sorted({home, Path(__file__).parent}):
        for source in sorted(folder.glob("*.py")):
            digest.update(source.read_bytes())
    return user_cache() / "kernels" / digest.hexdigest()[:16]
