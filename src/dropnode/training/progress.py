"""What a person sees while runs go on: a live bar, or now and then a line in a log."""

from __future__ import annotations

import time
from statistics import fmean, stdev
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from dropnode.training import Outcome, Phase


class _Bar:
    """A live line while a ``with`` block lasts, gone afterwards; nothing where it cannot move."""

    def __init__(self, title: str, console: Console, *more: ProgressColumn) -> None:
        self.title, self.console = title, console
        wide = console.width >= 100
        self.bar = Progress(
            *([TextColumn("[bold]{task.description}")] if wide else []),
            BarColumn(bar_width=16 if wide else 8),
            TextColumn("{task.fields[shown]}"),
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.bar.stop()

    def log(self, text: str) -> None:
        """Write a line where there is no live one."""
        if not self.console.is_terminal:
            self.console.print(
                f"{self.title}: {text}", highlight=False, markup=False, soft_wrap=True
            )


class ProgressBar(_Bar):
    """A training callback that reports epoch, losses, validation accuracy and time left.

    The time left is what remains if training is not stopped early, so it is a bound.
    """

    def __init__(self, title: str, console: Console) -> None:
        super().__init__(title, console)
        self.started = self.last_line = time.monotonic()
        self.first_epoch = 0

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
        if now - self.last_line >= 10:
            self.log(shown)
            self.last_line = now

    def _line(self, record: dict[str, float], phase: Phase, left: float) -> str:
        losses = [record[name] for name in ("supervised", "consistency") if name in record]
        told = [f"epoch {int(record['epoch'])}/{phase.max_epochs}"]
        told.append("loss " + " + ".join(f"{loss:.3f}" for loss in losses or [record["loss"]]))
        if record["val_loss"] == record["val_loss"]:  # not NaN: there is something to validate on
            told.append(f"val {record['val_loss']:.3f}, {100 * record['val_accuracy']:.1f} %")
        told.append(f"{clock(left)} left at most")
        return "  ".join(told)


class SeedsBar(_Bar):
    """Reports how many seeds are done, their accuracy so far, and the time left.

    Parameters
    ----------
    title : str
    seeds, jobs : int
        How many there are in all, and at a time.
    console : Console
    """

    def __init__(self, title: str, seeds: int, jobs: int, console: Console) -> None:
        super().__init__(title, console, _TimeLeft())
        self.seeds, self.jobs = seeds, jobs
        self.done = 0
        self.accuracies: list[float] = []
        self.durations: list[float] = []
        self.bar.update(self.task, total=seeds, shown=self._line(), end=None)

    def on_result(self, seed: int, result: dict[str, Any]) -> None:
        """Count in what a seed came to."""
        accuracy = result["test_accuracy"]
        if accuracy is not None:
            self.accuracies.append(accuracy)
        self.durations.append(result["seconds"])
        self._advance(f"seed {seed}" + ("" if accuracy is None else f" {100 * accuracy:.1f} %"))

    def on_failure(self, seed: int, error: str) -> None:
        """Count in a seed that came to nothing."""
        self._advance(f"seed {seed} failed")

    def _advance(self, news: str) -> None:
        self.done += 1
        left = self._left()
        end = None if left is None else time.monotonic() + left
        self.bar.update(self.task, completed=self.done, shown=self._line(), end=end)
        told = "" if left is None else f"  about {clock(left)} left"
        self.log(f"{news}  {self._line()}{told}")

    def _line(self) -> str:
        told = f"{self.done}/{self.seeds} seeds"
        if self.accuracies:
            told += f"  test {100 * fmean(self.accuracies):.1f}"
            told += f" ± {100 * stdev(self.accuracies):.1f} %" if len(self.accuracies) > 1 else " %"
        return told

    def _left(self) -> float | None:
        """Estimate the seconds left, taking the seeds that run just now for half done."""
        remaining = self.seeds - self.done
        if not (self.durations and remaining):
            return None
        others = min(self.jobs - 1, remaining)
        return fmean(self.durations) * (remaining - others / 2) / min(self.jobs, remaining)


class _TimeLeft(ProgressColumn):
    """Counts down to the moment in the task's ``end``, if there is one yet."""

    def render(self, task: Task) -> Text:
        end = task.fields["end"]
        return Text("" if end is None else f"about {clock(max(end - time.monotonic(), 0))} left")


def clock(seconds: float) -> str:
    """Return a time as people read it.

    Examples
    --------
    >>> clock(65), clock(3725)
    ('1:05', '1:02:05')
    """
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
