"""The display of a running experiment: a live table, or a log line per trial."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dropnode.experiments.record import Record
from dropnode.experiments.runner import Cell, chosen_cells
from dropnode.experiments.statistics import summarise
from dropnode.experiments.writers import mean_and_std
from dropnode.training.progress import clock


class LiveTable:
    """An observer that shows each cell's current mean and standard deviation, and the time left.

    Parameters
    ----------
    title : str
    jobs : int
        Trials that run at the same time.
    console : Console
        If it is not a terminal, every trial that ends is printed as a line instead.
    """

    def __init__(self, title: str, jobs: int, console: Console) -> None:
        self.title, self.jobs, self.console = title, jobs, console
        self.cells: Sequence[Cell] = ()
        self.ended: dict[str, Record] = {}
        self.asked: set[str] = set()
        self.changed = time.monotonic()
        self.live = Live(
            get_renderable=self.render, console=console, transient=True, refresh_per_second=2
        )

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Store the planned trials, and those that ended before."""
        self.cells = cells
        self.changed = time.monotonic()
        self.asked = {trial.id for cell in cells for trial in cell.trials}
        self.ended = {key: record for key, record in ended.items() if key in self.asked}
        if not self.console.is_terminal:
            self._say(f"{self.title}: {len(self.ended)} of {len(self.asked)} trials are stored")

    def on_end(self, record: Record) -> None:
        """Add a trial that ended."""
        self.ended[record.trial.id] = record
        self.changed = time.monotonic()
        if self.console.is_terminal:
            return
        trial = record.trial
        cell = next(c for c in self.cells if trial.id in {one.id for one in c.trials})
        news = f"failed: {' '.join((record.error or '').split())}"
        if record.status == "done":
            news = f"{_percent(record)} {self.shown(cell)}"
        place = f"{trial.dataset} {cell.name} seed {trial.seed}"
        self._say(f"[{len(self.ended)}/{len(self.asked)}] {place}: {news}{self._left_text()}")

    def render(self) -> RenderableType:
        """Return the current table."""
        datasets = list(dict.fromkeys(cell.dataset for cell in self.cells))
        # Of a row that leaves settings to validation, the best one so far, as in the results.
        shown_cells = chosen_cells(self.cells, self.ended.get)
        places = {(cell.name, cell.dataset): cell for cell in shown_cells}
        table = Table(box=None, header_style="bold")
        # As texts, because rich would read brackets in names as markup.
        table.add_column(Text(self.title))
        for dataset in datasets:
            table.add_column(Text(dataset), justify="right")
        for name, label in {cell.name: cell.label for cell in self.cells}.items():
            shown = [places.get((name, dataset)) for dataset in datasets]
            texts = ["" if cell is None else self.shown(cell) for cell in shown]
            table.add_row(Text(label), *texts)
        return Group(table, Text(self.status(), style="bold"))

    def shown(self, cell: Cell) -> str:
        """Return the current mean and deviation of a cell, and how many trials are done."""
        ended = [self.ended[trial.id] for trial in cell.trials if trial.id in self.ended]
        scores = [
            100 * record.metrics["test_accuracy"]
            for record in ended
            if record.metrics.get("test_accuracy") is not None
        ]
        summary = summarise(scores)
        failed = sum(record.status == "failed" for record in ended)
        done = f"{len(ended) - failed}/{len(cell.trials)}"
        lost = f", {failed} failed" if failed else ""
        return f"{mean_and_std(summary.mean, summary.std)} ({done}{lost})"

    def status(self) -> str:
        """Return the number of trials by status, and the time left."""
        failed = sum(record.status == "failed" for record in self.ended.values())
        remaining = len(self.asked) - len(self.ended)
        return (
            f"{len(self.ended) - failed} done, {failed} failed, "
            f"{min(self.jobs, remaining)} running, {len(self.asked)} in all{self._left_text()}"
        )

    def seconds_left(self) -> float | None:
        """Estimate the time left from finished trials of the same cell, or else of any cell."""
        known = [r.seconds for r in self.ended.values() if r.seconds is not None]
        if not known:
            return None
        total, counted = 0.0, set(self.ended)
        for cell in self.cells:
            missing = len({trial.id for trial in cell.trials} - counted)
            counted |= {trial.id for trial in cell.trials}
            ended = [self.ended[trial.id] for trial in cell.trials if trial.id in self.ended]
            took = [record.seconds for record in ended if record.seconds is not None]
            total += missing * (median(took) if took else fmean(known))
        return total / max(1, min(self.jobs, len(self.asked) - len(self.ended)))

    def _left_text(self) -> str:
        left = self.seconds_left()
        if not left:
            return ""
        return f", about {clock(max(left - (time.monotonic() - self.changed), 0))} left"

    def _say(self, line: str) -> None:
        self.console.print(line, highlight=False, markup=False, soft_wrap=True)


def _percent(record: Record) -> str:
    accuracy = record.metrics.get("test_accuracy")
    return "no test labels" if accuracy is None else f"{100 * accuracy:.1f} %"
