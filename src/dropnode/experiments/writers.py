"""Results as files that people and programs read: JSON, CSV, Markdown and LaTeX."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dropnode.files import atomic_write, write_json

NOTHING = "–"


def write_results(folder: Path, results: dict[str, Any]) -> None:
    """Write ``results.json``, ``.csv``, ``.md`` and ``.tex`` into a folder."""
    for ending, content in (
        ("csv", as_csv(results)),
        ("md", as_markdown(results)),
        ("tex", as_latex(results)),
    ):
        with atomic_write(folder / f"results.{ending}", "w") as file:
            file.write(content)
    write_json(folder / "results.json", results)


def as_csv(results: dict[str, Any]) -> str:
    """Return one line a cell, or one a setting of a search."""
    if results["rows"]:
        names = (
            "dataset method label preset mean std ci95 n asked failed paper paper_std difference "
            "median seconds"
        ).split()
        lines = [[row[name] for name in names] for row in results["rows"]]
    else:
        names = "dataset stage setting val_mean val_std test_mean test_std n asked chosen".split()
        lines = [
            [stage["dataset"], stage["stage"], setting(row), *(row[name] for name in names[3:])]
            for stage in results["search"] or []
            for row in stage["rows"]
        ]
    target = io.StringIO()
    writer = csv.writer(target, lineterminator="\n")
    writer.writerows([names, *lines])
    return target.getvalue()


def as_markdown(results: dict[str, Any]) -> str:
    """Return the tables of an experiment, and the command that made them."""
    parts = [f"# {results['title']}", results["description"], f"    {results['command']}"]
    datasets = [dataset["name"] for dataset in results["datasets"]]
    if results["rows"]:
        parts.append("Test accuracy in percent: mean ± standard deviation (seeds), and the paper's")
        lines = [
            [label, *(_ours_and_paper(row) for row in rows)]
            for label, rows in by_label(results, datasets)
        ]
        parts.append(_markdown(["", *datasets], lines))
    for stage in results["search"] or []:
        parts.append(f"## {stage['dataset']}, stage {stage['stage']}")
        lines = [
            [
                f"**{setting(row)}**" if row["chosen"] else setting(row),
                spread(row["val_mean"], row["val_std"]),
                spread(row["test_mean"], row["test_std"]),
                str(row["n"]),
            ]
            for row in stage["rows"]
        ]
        parts.append(_markdown(["setting", "validation (%)", "test (%)", "seeds"], lines))
    if results["claims"]:
        parts.append("## Claims\n\nWelch's test, two-sided, corrected by Holm over all lines.")
        lines = [
            [
                one["claim"],
                one["dataset"],
                number(one["difference"], "+.2f"),
                number(one["p_holm"], ".2g"),
                f"{one['n_better']}, {one['n_than']}",
                one["verdict"],
            ]
            for one in results["claims"]
        ]
        parts.append(_markdown(["claim", "dataset", "difference", "p", "seeds", "verdict"], lines))
    if results["comparisons"]:
        parts.append("## Against the reference")
        lines = [
            [
                f"{one['first']} – {one['second']}",
                one["dataset"],
                number(one["difference"], "+.2f"),
                f"{number(one['low'], '+.2f')} to {number(one['high'], '+.2f')}",
                number(one["welch_holm"], ".2g"),
                number(one["wilcoxon_holm"], ".2g"),
            ]
            for one in results["comparisons"]
        ]
        heads = ["pair", "dataset", "difference", "95 % interval", "Welch p", "Wilcoxon p"]
        parts.append(_markdown(heads, lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def as_latex(results: dict[str, Any]) -> str:
    """Return the result table as a LaTeX tabular; of a search, one a stage."""
    datasets = [dataset["name"] for dataset in results["datasets"]]
    tables = []
    if results["rows"]:
        lines = [
            [label, *(_latex_cell(row) for row in rows)]
            for label, rows in by_label(results, datasets)
        ]
        tables.append(_latex(["Method", *datasets], lines))
    for stage in results["search"] or []:
        lines = [
            [
                setting(row),
                _latex_spread(row["val_mean"], row["val_std"]),
                _latex_spread(row["test_mean"], row["test_std"]),
            ]
            for row in stage["rows"]
        ]
        heads = [f"{stage['dataset']}, stage {stage['stage']}", "validation", "test"]
        tables.append(_latex(heads, lines))
    return "\n".join(tables)


def by_label(
    results: dict[str, Any], datasets: Sequence[str]
) -> list[tuple[str, list[dict[str, Any] | None]]]:
    """Return each method's label, and its cell on every dataset."""
    cells = {(row["method"], row["dataset"]): row for row in results["rows"]}
    labels = {row["method"]: row["label"] for row in results["rows"]}
    return [
        (label, [cells.get((method, dataset)) for dataset in datasets])
        for method, label in labels.items()
    ]


def setting(row: dict[str, Any]) -> str:
    """Return what a setting of a search changes, as text."""
    return ", ".join(f"{key}={value}" for key, value in row["changes"].items())


def spread(mean: float | None, deviation: float | None) -> str:
    """Return a mean and its standard deviation, as far as there are any.

    Examples
    --------
    >>> spread(85.416, 0.4), spread(85.4, None), spread(None, None)
    ('85.42 ± 0.40', '85.40', '–')
    """
    if mean is None:
        return NOTHING
    return f"{mean:.2f}" + ("" if deviation is None else f" ± {deviation:.2f}")


def number(value: float | None, form: str) -> str:
    """Return a number as text, or a dash."""
    return NOTHING if value is None else format(value, form)


def _ours_and_paper(row: dict[str, Any] | None) -> str:
    if row is None:
        return NOTHING
    text = f"{spread(row['mean'], row['std'])} ({row['n']})"
    if row["failed"]:
        text += f", {row['failed']} failed"
    if row["paper"] is not None:
        deviation = "" if row["paper_std"] is None else f" ± {row['paper_std']:.1f}"
        text += f" / {row['paper']:.1f}{deviation}"
    return text


def _markdown(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    escaped = [[" ".join(cell.split()).replace("|", "\\|") for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def _latex_cell(row: dict[str, Any] | None) -> str:
    return "--" if row is None else _latex_spread(row["mean"], row["std"])


def _latex_spread(mean: float | None, deviation: float | None) -> str:
    if mean is None:
        return "--"
    return f"${mean:.1f}" + ("$" if deviation is None else f" \\pm {deviation:.1f}$")


def _latex(heads: list[str], lines: list[list[str]]) -> str:
    rows = [" & ".join(map(_latex_text, heads)) + r" \\", r"\hline"]
    rows += [" & ".join([_latex_text(line[0]), *line[1:]]) + r" \\" for line in lines]
    body = "\n".join(f"  {row}" for row in rows)
    return f"\\begin{{tabular}}{{l{'c' * (len(heads) - 1)}}}\n{body}\n\\end{{tabular}}\n"


_LATEX = str.maketrans(
    {mark: f"\\{mark}" for mark in "&%$#_{}"}
    | {"\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}", "\n": " "}
)


def _latex_text(text: str) -> str:
    return " ".join(text.split()).translate(_LATEX)
