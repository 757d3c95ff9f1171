"""A plugin of pytest: calling a kernel that is not compiled yet, as none is, is an error."""

from __future__ import annotations

from typing import Any, NoReturn

from numba.core.dispatcher import Dispatcher


def pytest_configure() -> None:
    Dispatcher.compile = _refuse


def _refuse(self: Any, signature: object) -> NoReturn:
    raise AssertionError(f"the kernel {self.py_func.__qualname__} is called")
