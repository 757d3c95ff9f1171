"""Compiled kernels on disk: one file each, with a checksum.

Numba's own cache trusts its files. A damaged one would end every later process, or run as machine
code. Here a file that is not exactly what was written counts as missing, and a file that cannot be
written is not written. Either way the kernel is compiled, and the result is the same.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba.core.caching import NullCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from dropnode.files import write_bytes

_DIGEST = sha256().digest_size


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
            write_bytes(path, _checksum(path, data) + data)

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


def _checksum(path: Path, data: bytes) -> bytes:
    # With the name, so that an intact file under the name of another kernel is noticed.
    return sha256(path.name.encode() + data).digest()
