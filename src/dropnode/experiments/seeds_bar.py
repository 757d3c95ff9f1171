"""The progress display for the training of several seeds."""

from __future__ import annotations

import time
from statistics import fmean, stdev

from rich.console import Console
from rich.progress import ProgressColumn, Task
from rich.text import Text

from dropnode.experiments.run_folder import RunResult
from dropnode.training.progress import Bar, clock


class SeedsBar(Bar):
    """A bar that shows how many seeds are done, their accuracy so far, and the time left.

    Parameters
    ----------
    title : str
    seeds, jobs : int
        Number of seeds in total, and at a time.
    console : Console
    """

    def __init__(self, title: str, seeds: int, jobs: int, console: Console) -> None:
        super().__init__(title, console, _TimeLeft())
        self.seeds, self.jobs = seeds, jobs
        self.done = 0
        self.accuracies: list[float] = []
        self.durations: list[float] = []
        self.bar.update(self.task, total=seeds, shown=self._line(), end=None)

    def on_result(self, result: RunResult) -> None:
        """Add the result of a seed."""
        accuracy = result.test_accuracy
        if accuracy is not None:
            self.accuracies.append(accuracy)
        self.durations.append(result.seconds)
        self._advance(
            f"seed {result.seed}" + ("" if accuracy is None else f" {100 * accuracy:.1f} %")
        )

    def on_failure(self, seed: int, error: str) -> None:
        """Add a seed that failed."""
        self._advance(f"seed {seed} failed")

    def _advance(self, news: str) -> None:
        self.done += 1
        left = self._left()
        end = None if left is None else time.monotonic() + left
        self.bar.update(self.task, completed=self.done, shown=self._line(), end=end)
        text = "" if left is None else f"  about {clock(left)} left"
        self.log(f"{news}  {self._line()}{text}")

    def _line(self) -> str:
        text = f"{self.done}/{self.seeds} seeds"
        if self.accuracies:
            text += f"  test {100 * fmean(self.accuracies):.1f}"
            text += f" ± {100 * stdev(self.accuracies):.1f} %" if len(self.accuracies) > 1 else " %"
        return text

    def _left(self) -> float | None:
        """Estimate the seconds left; seeds that are running count as half done."""
        remaining = self.seeds - self.done
        if not (self.durations and remaining):
            return None
        others = min(self.jobs - 1, remaining)
        return fmean(self.durations) * (remaining - others / 2) / min(self.jobs, remaining)


class _TimeLeft(ProgressColumn):
    """Counts down to the time in the task's ``end``, if it is set."""

    def render(self, task: Task) -> Text:
        end = task.fields["end"]
        return Text("" if end is None else f"about {clock(max(end - time.monotonic(), 0))} left")
