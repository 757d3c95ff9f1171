"""What a person sees while a run goes on: a live bar, or now and then a line in a log."""

from __future__ import annotations

import time
from types import TracebackType

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from grand.training import Outcome, Phase


class ProgressBar:
    """A training callback that reports epoch, losses, validation accuracy and time left.

    The time left is what remains if training is not stopped early, so it is a bound.
    """

    def __init__(self, title: str, console: Console) -> None:
        self.title, self.console = title, console
        self.started = time.monotonic()
        self.first_epoch = 0
        self.last_line = self.started
        wide = console.width >= 100
        self.bar = Progress(
            *([TextColumn("[bold]{task.description}")] if wide else []),
            BarColumn(bar_width=16 if wide else 8),
            TextColumn("{task.fields[shown]}"),
            console=console,
            transient=True,
            refresh_per_second=8,
            disable=not console.is_terminal,
        )
        self.task = self.bar.add_task(title, total=None, shown="preparing")

    def __enter__(self) -> ProgressBar:
        self.bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Show the epoch that is over."""
        record = outcome.history[-1]
        epoch = int(record["epoch"])
        now = time.monotonic()
        if not self.first_epoch:
            # A resumed run starts late: what came before took no time of ours.
            self.first_epoch, self.started = epoch, now
        pace = (now - self.started) / max(epoch - self.first_epoch, 1)
        shown = self._line(record, phase, pace * (phase.max_epochs - epoch))
        self.bar.update(self.task, total=phase.max_epochs, completed=epoch, shown=shown)
        if not self.console.is_terminal and now - self.last_line >= 10:
            self.console.print(f"{self.title}: {shown}", highlight=False, soft_wrap=True)
            self.last_line = now

    def _line(self, record: dict[str, float], phase: Phase, left: float) -> str:
        losses = [record[name] for name in ("supervised", "consistency") if name in record]
        told = [f"epoch {int(record['epoch'])}/{phase.max_epochs}"]
        told.append("loss " + " + ".join(f"{loss:.3f}" for loss in losses or [record["loss"]]))
        if record["val_loss"] == record["val_loss"]:  # not NaN: there is something to validate on
            told.append(f"val {record['val_loss']:.3f}, {100 * record['val_accuracy']:.1f} %")
        told.append(f"{int(left // 60)}:{int(left % 60):02d} left at most")
        return "  ".join(told)
