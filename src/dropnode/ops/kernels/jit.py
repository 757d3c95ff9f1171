"""Compilation of kernels, cached for each version of their sources."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba import njit

from dropnode.files import user_cache
from dropnode.ops.kernels.cache import KernelCache

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}
"""Release the interpreter lock, and divide by zero as NumPy does."""


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function on its first call, or load it from the user's cache.

    Numba's own cache checks only the file of the function, and would use outdated code after a
    change in a function that it calls. Here the name of the cache folder is a hash of the sources
    of everything that it may call.
    """
    compiled: Any = njit(**OPTIONS)(function)
    home = user_cache()
    if home is not None:
        sources = _sources(Path(function.__code__.co_filename).parent)
        compiled._cache = KernelCache(function, home / "kernels" / sources)
    return compiled


def inlined(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile a function that is inlined into the kernels that call it."""
    compiled: Callable[..., Any] = njit(forceinline=True, _nrt=False, **OPTIONS)(function)
    return compiled


@cache
def _sources(home: Path) -> str:
    """Return a hash of the kernels of a folder, which may call those of this folder."""
    digest = sha256()
    for folder in sorted({home, Path(__file__).parent}):
        for source in sorted(folder.glob("*.py")):
            digest.update(source.read_bytes())
    return digest.hexdigest()[:16]
