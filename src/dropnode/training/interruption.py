"""Ctrl-C at the end of an epoch: the weights in the middle of a step could not be resumed from."""

from __future__ import annotations

import signal
import threading
from types import FrameType, TracebackType
from typing import Self


class Interruption:
    """Holds Ctrl-C back inside a ``with`` block until :meth:`check`; a second one acts at once.

    It does nothing if ``active`` is false, outside the main thread, which alone receives Ctrl-C,
    or if the program handles it in its own way.
    """

    def __init__(self, active: bool = True) -> None:
        self.pending = False
        self.active = active

    def check(self) -> None:
        """Raise ``KeyboardInterrupt`` if Ctrl-C was pressed."""
        if self.pending:
            raise KeyboardInterrupt

    def __enter__(self) -> Self:
        self.active = (
            self.active
            and threading.current_thread() is threading.main_thread()
            and signal.getsignal(signal.SIGINT) is signal.default_int_handler
        )
        if self.active:
            signal.signal(signal.SIGINT, self._receive)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.active:
            signal.signal(signal.SIGINT, signal.default_int_handler)
            if error is None:
                self.check()

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if self.pending:
            signal.default_int_handler(number, frame)
        self.pending = True
