"""The results of an experiment as tables in the terminal."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from dropnode.experiments.results import Results, RowResult


def print_results(results: Results, out: Path) -> None:
    """Print the tables, and where the report is."""
    from dropnode.experiments.writers import absence, mean_and_std, setting

    console = Console(highlight=False)
    if results.rows:
        console.print(
            _by_method(results) if len(results.datasets) <= 3 else _by_dataset_and_method(results)
        )
    if results.absent:
        console.print(absence(results), markup=False, soft_wrap=True)
    for stage in results.stages:
        table = Table(box=None, header_style="bold")
        table.add_column(Text(f"{stage.dataset}, stage {stage.stage}"))
        for head in ("validation", "test", "seeds"):
            table.add_column(head, justify="right")
        for line in stage.rows:
            table.add_row(
                Text(f"{setting(line.changes)}{' *' if line.chosen else ''}"),
                mean_and_std(line.val_mean, line.val_std),
                mean_and_std(line.test_mean, line.test_std),
                str(line.n),
                style="bold" if line.chosen else None,
            )
        console.print(table)
    console.print(f"open {out / 'report.html'}", markup=False, soft_wrap=True)


def _by_method(results: Results) -> Table:
    """Return a table with a column per dataset, as the paper's."""
    title = Text(results.title)
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    table.add_column("")
    compared = _compared(results)
    for dataset in results.datasets:
        table.add_column(Text(dataset.name), justify="right")
        if compared:
            table.add_column("paper", justify="right", style="dim")
    for label, rows in results.by_label():
        table.add_row(Text(label), *(cell for row in rows for cell in _cells(row, compared)))
    return table


def _by_dataset_and_method(results: Results) -> Table:
    """Return a table with a line per dataset and method, for more columns than a terminal has."""
    title = Text(results.title)
    table = Table(box=None, header_style="bold", title=title, title_justify="left")
    for head in ("dataset", ""):
        table.add_column(head)
    table.add_column("accuracy", justify="right")
    compared = _compared(results)
    if compared:
        table.add_column("paper", justify="right", style="dim")
    for row in results.rows:
        table.add_row(Text(row.dataset), Text(row.label), *_cells(row, compared))
    return table


def _compared(results: Results) -> bool:
    """Return whether a paper's figure is known for any row."""
    return any(row.paper is not None for row in results.rows)


def _cells(row: RowResult | None, compared: bool) -> list[str]:
    """Return our accuracy, and the paper's where the table has a column for it."""
    from dropnode.experiments.writers import mean_and_std

    if row is None:
        return [""] * (1 + compared)
    ours = f"{mean_and_std(row.accuracy.mean, row.accuracy.std)} ({row.accuracy.n})"
    return [ours, "" if row.paper is None else f"{row.paper:.1f}"][: 1 + compared]
