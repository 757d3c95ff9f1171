"""Compiled kernels on disk: one file each, with a checksum.

Numba's own cache trusts its files. A damaged one would end every later process, or run as machine
code. Here a file that is not exactly what was written counts as missing, and a file that cannot be
written is not written. Either way the kernel is compiled, and the result is the same.

Every version of the sources has a folder. Those of versions that nobody has used for a month are
removed when a new one is made.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from dropnode.files import remove_leftovers, write_bytes

STALE = 30 * 86_400.0
"""Seconds without use after which a folder is removed."""

_DIGEST = sha256().digest_size
_FOLDER = re.compile(r"[0-9a-f]{16}")
_FILE = re.compile(r"[\w.]+-[0-9a-f]{32}\.kernel")


class KernelCache(NullCache):
    """The cache of one kernel, with one file per signature and processor.

    Files are written atomically, so processes that compile the same kernel at the same time only
    replace a file by an equal one.

    Parameters
    ----------
    function : callable
        The kernel before compilation.
    folder : Path
        Belongs to one version of the sources. It is created when the first file is written.
    """

    def __init__(self, function: Callable[..., Any], folder: Path) -> None:
        self.function, self.folder = function, folder

    @property
    def cache_path(self) -> str:
        """The folder, for numba's statistics."""
        return str(self.folder)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the compiled kernel, or None if there is no intact file of it."""
        target_context.refresh()
        path = self._path(sig, target_context.codegen())
        try:
            stored = path.read_bytes()
        except OSError:
            return None
        checksum, data = stored[:_DIGEST], stored[_DIGEST:]
        if checksum != _checksum(path, data):
            return None
        with suppress(OSError):
            os.utime(self.folder)  # It is in use, see remove_stale.
        try:
            return CompileResult._rebuild(target_context, *pickle.loads(data))
        except Exception:
            # The file is what was written, but the libraries here cannot use it. Whatever the
            # reason, compiling the kernel again is the remedy.
            return None

    def save_overload(self, sig: Any, cres: Any) -> None:
        """Write a compiled kernel, if the folder can be written and the code does not forbid it."""
        # Such code has addresses of this process in it.
        if cres.library.has_dynamic_globals:
            return
        path = self._path(sig, cres.codegen)
        data = dumps(cres._reduce())
        with suppress(OSError):
            is_new = not self.folder.exists()
            write_bytes(path, _checksum(path, data) + data)
            if is_new:
                remove_stale(self.folder.parent)

    def _path(self, sig: Any, codegen: Any) -> Path:
        """Return the file whose name says everything that the machine code depends on."""
        function = self.function
        values = [cell.cell_contents for cell in function.__closure__ or ()]
        key = repr(
            (
                function.__module__,
                function.__code__.co_firstlineno,
                values,
                sig,
                codegen.magic_tuple(),
                numba.__version__,
                sys.implementation.cache_tag,
            )
        )
        name = function.__qualname__.replace("<locals>.", "")
        return self.folder / f"{name}-{sha256(key.encode()).hexdigest()[:32]}.kernel"


def remove_stale(home: Path) -> None:
    """Remove the kernels of versions that no process has used for :data:`STALE` seconds.

    Only files with the names of ours are removed, and a folder only if nothing else is in it. A
    process of such a version that starts at this moment compiles again.
    """
    for folder in [path for path in home.iterdir() if _FOLDER.fullmatch(path.name)]:
        # Loading a kernel and writing one both set the time of the folder.
        with suppress(OSError):
            if folder.is_symlink() or time.time() - folder.stat().st_mtime < STALE:
                continue
            remove_leftovers(folder)
            for path in folder.iterdir():
                if _FILE.fullmatch(path.name):
                    path.unlink(missing_ok=True)
            folder.rmdir()


def _checksum(path: Path, data: bytes) -> bytes:
    # With the name, so that an intact file under the name of another kernel is noticed.
    return sha256(path.name.encode() + data).digest()
