"""The results of a benchmark as printed tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table


def print_report(result: dict[str, Any], console: Console) -> None:
    """Print one table per part that was measured."""
    console.print(_machine_line(result["machine"]), style="dim")
    for part, table in (
        ("epoch", _epoch_table),
        ("baselines", _baselines_table),
        ("propagation", _propagation_table),
        ("scaling", _scaling_table),
        ("accuracy", _accuracy_table),
        ("scale", _scale_table),
    ):
        if part in result:
            console.print()
            console.print(table(result))
    console.print(f"\nmeasured in {result['seconds']:.0f} s", style="dim")


def _machine_line(machine: dict[str, Any]) -> str:
    parts = [machine["cpu"], f"{machine['cores']} cores", f"{machine['threads']} threads"]
    if machine["load"] is not None:
        parts.append(f"load {machine['load']:.1f} before")
    versions = ("python", "torch", "torch_geometric", "numba")
    parts += [f"{name} {machine[name]}" for name in versions if machine[name] is not None]
    return ", ".join(parts)


def _epoch_table(result: dict[str, Any]) -> Table:
    table = _table(
        "One epoch: training step and validation",
        ("dataset", "path"),
        ("ms", "times as fast as naive", "as pyg-gcn"),
    )
    table.caption = "Median over rounds (interquartile range); ratios are taken within a round."
    rows = result["epoch"]
    for row, after in zip(rows, [*rows[1:], rows[-1]], strict=True):
        table.add_row(
            row["dataset"],
            row["path"],
            _spread(row["median_ms"], row["iqr_ms"]),
            _spread(row["ratio_to_naive"], row["ratio_iqr"]),
            _spread(row["ratio_to_pyg_gcn"], row["ratio_to_pyg_gcn_iqr"]),
            end_section=after["dataset"] != row["dataset"],
        )
    return table


def _baselines_table(result: dict[str, Any]) -> Table:
    table = _table(
        "One epoch of a baseline, and of the same in plain PyTorch Geometric",
        ("dataset", "method"),
        ("ms", "plain ms", "times as fast as plain"),
    )
    for row in result["baselines"]:
        table.add_row(
            row["dataset"],
            row["method"],
            digits(row["median_ms"]),
            digits(row["plain_ms"]),
            _spread(row["ratio"], row["ratio_iqr"]),
        )
    return table


def _propagation_table(result: dict[str, Any]) -> Table:
    table = _table(
        "Propagation: bytes per second that a hop has to touch at least",
        ("graph",),
        ("nodes", "columns", "hops", "ms", "GB/s", "fraction of a copy"),
    )
    table.caption = f"Copying memory reads and writes {result['bandwidth_gb_s']:.1f} GB/s here."
    if any(row["fraction_of_bandwidth"] > 1 for row in result["propagation"]):
        table.caption += " Above 1: the working set stays in cache."
    for row in result["propagation"]:
        table.add_row(
            row["graph"],
            f"{row['nodes']:,}",
            f"{row['columns']}",
            f"{row['hops']}",
            digits(row["ms"]),
            _spread(row["gb_s"], row["gb_s_iqr"]),
            f"{row['fraction_of_bandwidth']:.2f}",
        )
    return table


def _scaling_table(result: dict[str, Any]) -> Table:
    table = _table(
        "Growth with the graph",
        (),
        ("nodes", "edges", "ms per epoch", "peak MB", "without interpreter"),
    )
    table.caption = "Peak memory of a whole process; each size has its own."
    for row in result["scaling"]:
        table.add_row(
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            _spread(row["epoch_ms"], row["epoch_iqr_ms"]),
            f"{row['peak_mb']:,.0f}",
            f"{row['working_mb']:,.0f}",
        )
    powers = result["exponents"]
    shown = [f"{powers[name]:.2f}" for name in ("epoch", "peak", "working")]
    table.add_row("exponent", "", *shown, style="bold")
    return table


def _accuracy_table(result: dict[str, Any]) -> Table:
    table = _table(
        "Whole trainings, stopped by validation",
        ("dataset", "path"),
        ("seeds", "median s", "accuracy (%)", "range", "paper"),
    )
    for row in result["accuracy"]:
        accuracies = row["test_accuracy"]
        table.add_row(
            row["dataset"],
            row["path"],
            f"{len(row['seeds'])}",
            digits(row["median_seconds"]),
            f"{row['mean_accuracy']:.1f}",
            f"{min(accuracies):.1f} to {max(accuracies):.1f}",
            f"{row['paper']:.1f}",
        )
    return table


def _scale_table(result: dict[str, Any]) -> Table:
    table = _table(
        "From a graph on disk to predictions of all nodes",
        ("method",),
        ("nodes", "edges", "s", "CPU s", "peak MB", "without interpreter", "accuracy (%)"),
    )
    table.caption = "Block models with heavy-tailed degrees and weak features; presets default."
    for row in result["scale"]:
        table.add_row(
            row["method"],
            f"{row['nodes']:,}",
            f"{row['edges']:,}",
            digits(row["seconds"]),
            digits(row["cpu_seconds"]),
            f"{row['peak_mb']:,.0f}",
            f"{row['working_mb']:,.0f}",
            f"{row['test_accuracy']:.1f}",
        )
    powers = result["scale_exponents"]
    shown = [f"{powers[name]:.2f}" for name in ("seconds", "cpu_seconds", "working_mb")]
    table.add_row("exponent", "", "", *shown[:2], "", shown[2], "", style="bold")
    return table


def digits(value: float) -> str:
    """Return a number with three digits and without an exponent.

    Examples
    --------
    >>> digits(0.12345), digits(12.345), digits(1234.5)
    ('0.123', '12.3', '1,234')
    """
    return f"{value:,.{_places(value)}f}"


def _spread(median: float, iqr: float) -> str:
    return f"{digits(median)} ({iqr:,.{_places(median)}f})"


def _places(value: float) -> int:
    return next((places for places, least in ((0, 100), (1, 10), (2, 1)) if value >= least), 3)


def _table(title: str, words: Iterable[str], numbers: Iterable[str]) -> Table:
    table = Table(
        title=title,
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        box=box.SIMPLE_HEAD,
    )
    for column in words:
        table.add_column(column)
    for column in numbers:
        table.add_column(column, justify="right")
    return table
