"""A plugin of pytest: no kernel is compiled, nor loaded from the cache, which is a fresh one."""

from __future__ import annotations

from typing import Any, NoReturn

from numba.core.dispatcher import Dispatcher


def refuse(self: Any, signature: object) -> NoReturn:
    raise AssertionError(f"the kernel {self.py_func.__qualname__} is called")


Dispatcher.compile = refuse
