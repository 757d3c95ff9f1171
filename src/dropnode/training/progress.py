"""Progress of runs for a person to watch: a live bar, or a line in a log every few seconds."""

from __future__ import annotations

import time
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from dropnode.training import Outcome, Phase


class Bar:
    """A live line for the duration of a ``with`` block; nothing if the console is no terminal."""

    def __init__(self, title: str, console: Console, *more: ProgressColumn) -> None:
        self.title, self.console = title, console
        wide = console.width >= 100
        self.bar = Progress(
            *([TextColumn("{task.description}", style="bold", markup=False)] if wide else []),
            BarColumn(bar_width=16 if wide else 8),
            TextColumn("{task.fields[shown]}", markup=False),
            *more,
            console=console,
            transient=True,
            refresh_per_second=8,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(title, total=None, shown="preparing")

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        self.bar.stop()

    def log(self, text: str) -> None:
        """Write a line if the console is no terminal and so has no live one."""
        if not self.console.is_terminal:
            self.console.print(
                f"{self.title}: {text}", highlight=False, markup=False, soft_wrap=True
            )


class ProgressBar(Bar):
    """A training callback that reports epoch, losses, validation accuracy and time left.

    The time left is an upper bound: early stopping may end training before. With ``closing``, a log
    also has a line at the end, however short the training was.
    """

    def __init__(self, title: str, console: Console, *, closing: bool = False) -> None:
        super().__init__(title, console)
        self.closing = closing
        self.started = self.phase_started = self.last_line = time.monotonic()
        self.first_epoch = self.last_epoch = 0
        self.unlogged: str | None = None

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        super().__exit__(kind, *details)
        if self.closing and kind is None and self.unlogged is not None:
            self.log(f"{self.unlogged}  done in {clock(time.monotonic() - self.started)}")

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Show the last epoch."""
        record = outcome.history[-1]
        epoch = int(record["epoch"])
        now = time.monotonic()
        if not self.first_epoch or epoch <= self.last_epoch:
            # Every phase counts its epochs anew. A resumed one does not start at epoch 1, and its
            # earlier epochs took no time here.
            self.first_epoch, self.phase_started = epoch, now
        self.last_epoch = epoch
        pace = (now - self.phase_started) / max(epoch - self.first_epoch, 1)
        self.unlogged = self._line(record, phase)
        shown = f"{self.unlogged}  {clock(pace * (phase.max_epochs - epoch))} left at most"
        self.bar.update(self.task, total=phase.max_epochs, completed=epoch, shown=shown)
        if now - self.last_line >= 10:
            self.log(shown)
            self.last_line, self.unlogged = now, None

    def _line(self, record: dict[str, float], phase: Phase) -> str:
        losses = [record[name] for name in ("supervised", "consistency") if name in record]
        told = [f"epoch {int(record['epoch'])}/{phase.max_epochs}"]
        told.append("loss " + " + ".join(f"{loss:.3f}" for loss in losses or [record["loss"]]))
        if record["val_loss"] == record["val_loss"]:  # not NaN: there is something to validate on
            told.append(f"val {record['val_loss']:.3f}, {100 * record['val_accuracy']:.1f} %")
        return "  ".join(told)


class StepsBar(Bar):
    """A bar of steps out of a known number, with the time left."""

    def __init__(self, title: str, console: Console) -> None:
        super().__init__(title, console)
        self.started = self.last_line = time.monotonic()
        self.first: int | None = None

    def watch(self, done: int, total: int) -> None:
        """Show that so many of all steps are done."""
        now = time.monotonic()
        if self.first is None or done < self.first:
            # Steps of an earlier run took no time here.
            self.first, self.started = done, now
        shown = f"{done:,}/{total:,}"
        if done > self.first:
            left = (now - self.started) / (done - self.first) * (total - done)
            shown += f"  about {clock(left)} left"
        self.bar.update(self.task, total=total, completed=done, shown=shown)
        if now - self.last_line >= 10:
            self.log(shown)
            self.last_line = now


def clock(seconds: float) -> str:
    """Return a duration as hours, minutes and seconds.

    Examples
    --------
    >>> clock(65), clock(3725)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
