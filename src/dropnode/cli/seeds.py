"""Printing the results of several seeds."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from dropnode.experiments.run_folder import RunResult
from dropnode.experiments.seeds import INTERRUPTED, SeedsResult


def print_seeds(summary: SeedsResult, out: Path | None, console: Console) -> None:
    """Print a line per seed, and their mean."""
    console.print(
        f"[bold]{summary.method}[/] on [bold]{escape(summary.dataset)}[/], "
        f"preset {summary.preset}, split {escape(summary.split)}",
        soft_wrap=True,
    )
    if summary.runs:
        console.print(_table(summary.runs))
    mean, deviation, half = summary.mean, summary.std, summary.ci95
    if mean is not None:
        std = "" if deviation is None else f" ± {100 * deviation:.2f}"
        console.print(f"mean over {summary.n} seeds: {100 * mean:.2f}{std} %")
    if mean is not None and half is not None:
        low, high = 100 * (mean - half), 100 * (mean + half)
        console.print(f"95 % interval of the mean: {low:.2f} to {high:.2f} %")
    if out is not None:
        console.print(f"saved in {out}", markup=False, soft_wrap=True)


def print_failures(summary: SeedsResult, out: Path | None, console: Console) -> None:
    """Print a line per seed that failed, and one for all that were interrupted."""
    failures = [failure for failure in summary.failed if failure.error != INTERRUPTED]
    for failure in failures:
        line = f"dropnode: seed {failure.seed}: {' '.join(failure.error.split())}"
        console.print(line, highlight=False, markup=False, soft_wrap=True)
    if len(failures) < len(summary.failed):
        kept = f"Interrupted: {len(summary.runs)} of {len(summary.seeds)} seeds are done."
        if out is not None:
            kept += " Run the same command with --resume to continue."
        console.print(kept, style="yellow", highlight=False, soft_wrap=True)


def _table(runs: list[RunResult]) -> Table:
    table = Table(box=None, header_style="bold")
    for column in ("seed", "test", "validation", "epochs", "seconds"):
        table.add_column(column, justify="right")
    for result in runs:
        accuracies = (result.test_accuracy, result.val_accuracy)
        table.add_row(
            str(result.seed),
            *("" if accuracy is None else f"{100 * accuracy:.1f} %" for accuracy in accuracies),
            f"{result.epochs:,}",
            f"{result.seconds:.1f}",
        )
    return table
