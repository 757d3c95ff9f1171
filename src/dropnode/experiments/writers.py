"""Results as files that people and programs read: JSON, CSV, Markdown and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from dropnode.csv_text import csv_lines
from dropnode.experiments import measures
from dropnode.experiments.results import ClaimResult, Results, RowResult
from dropnode.experiments.statistics import Difference, Summary
from dropnode.files import atomic_write, write_json

NOTHING = "–"


def write_results(folder: Path, results: Results) -> None:
    """Write ``results.json``, ``.csv``, ``.md`` and ``.tex`` into a folder."""
    for ending, content in (
        ("csv", as_csv(results)),
        ("md", as_markdown(results)),
        ("tex", as_latex(results)),
    ):
        with atomic_write(folder / f"results.{ending}", "w") as file:
            file.write(content)
    write_json(folder / "results.json", results.as_json())


def as_csv(results: Results) -> str:
    """Return the results as CSV, one line per row or per setting of a search."""
    values = results.as_json()
    if results.rows:
        names = (
            "dataset method label preset mean std ci95 n asked failed paper paper_std difference "
            "median seconds"
        ).split()
        lines = [[row[name] for name in names] for row in values["rows"]]
        for measure in results.measure_names():
            names += [measure, f"{measure}_std"]
            for line, row in zip(lines, results.rows, strict=True):
                summary = row.measures[measure]
                line += [summary.mean, summary.std]
        if choices(results):
            names.append("chosen")
            for line, row in zip(lines, results.rows, strict=True):
                line.append(setting(row.chosen))
    else:
        names = "dataset stage setting val_mean val_std test_mean test_std n asked chosen".split()
        lines = [
            [
                stage.dataset,
                stage.stage,
                setting(row.changes),
                *(getattr(row, name) for name in names[3:]),
            ]
            for stage in results.stages
            for row in stage.rows
        ]
    return csv_lines([names, *lines])


def as_markdown(results: Results) -> str:
    """Return the results as Markdown tables, with the command that produced them.

    Text from outside is shown as it is: what Markdown or HTML would act on is escaped.
    """
    command = results.command.replace("\n", "\n    ")
    title = markdown_text(" ".join(results.title.split()))
    parts = [f"# {title}", markdown_text(results.description), f"    {command}"]
    if results.rows:
        compared = any(row.paper is not None for row in results.rows)
        told = "Test accuracy in percent: mean ± standard deviation (seeds)"
        parts.append(f"{told}, and the paper's" if compared else told)
        parts.append(_markdown(*_grid(results, "", _ours_and_paper)))
    if results.absent:
        parts.append(markdown_text(absence(results)))
    if chosen := choices(results):
        parts.append("## Settings chosen by validation")
        heads = ["", *(dataset.name for dataset in results.datasets)]
        parts.append(_markdown(heads, [[label, *settings] for label, settings in chosen]))
    for name in results.measure_names():
        parts.append(f"## {measure_title(name)}\n\nMean ± standard deviation (seeds)")
        parts.append(_markdown(*_grid(results, "", partial(_measured_by, name))))
    for stage in results.stages:
        parts.append(f"## {markdown_text(stage.dataset)}, stage {stage.stage}")
        lines = [
            [
                f"**{setting(row.changes)}**" if row.chosen else setting(row.changes),
                mean_and_std(row.val_mean, row.val_std),
                mean_and_std(row.test_mean, row.test_std),
                str(row.n),
            ]
            for row in stage.rows
        ]
        parts.append(_markdown(["setting", "validation (%)", "test (%)", "seeds"], lines))
    if results.claims:
        parts.append(f"## Claims\n\n{tests_of_claims(results)}")
        lines = [
            [
                claim.claim,
                claim_datasets(claim),
                *claimed(claim),
                number(claim.paper, "+g"),
                number(claim.p_holm, ".2g"),
                f"{claim.n_better}, {claim.n_than}",
                claim.verdict,
            ]
            for claim in results.claims
        ]
        heads = [
            "claim",
            "dataset",
            "difference",
            "95 % interval",
            "paper",
            "p",
            "seeds",
            "verdict",
        ]
        parts.append(_markdown(heads, lines))
    if results.comparisons:
        parts.append("## Against the reference")
        lines = [
            [
                f"{one.first} – {one.second}",
                one.dataset,
                number(one.test.difference, "+.2f"),
                interval(one.test.low, one.test.high),
                number(one.p_holm, ".2g"),
                number(one.wilcoxon_holm, ".2g"),
            ]
            for one in results.comparisons
        ]
        heads = ["pair", "dataset", "difference", "95 % interval", "p", "Wilcoxon p"]
        parts.append(_markdown(heads, lines))
    return "\n\n".join(part for part in parts if part) + "\n"


def as_latex(results: Results) -> str:
    """Return the results as LaTeX tabulars: accuracy, further measures, and stages."""
    tables = []
    if results.rows:
        tables.append(_latex(*_grid(results, "Method", _latex_accuracy)))
    for name in results.measure_names():
        tables.append(_latex(*_grid(results, measure_title(name), partial(_latex_measure, name))))
    for stage in results.stages:
        lines = [
            [
                setting(row.changes),
                _latex_mean_and_std(row.val_mean, row.val_std),
                _latex_mean_and_std(row.test_mean, row.test_std),
            ]
            for row in stage.rows
        ]
        heads = [f"{stage.dataset}, stage {stage.stage}", "validation", "test"]
        tables.append(_latex(heads, lines))
    return "\n".join(tables)


def tests_of_claims(results: Results) -> str:
    """Return a sentence that names the tests behind the p-values of the claims."""
    text = names_of_tests(results.claims)
    return f"{text[0].upper()}{text[1:]}; two-sided, corrected by Holm over all claims."


def names_of_tests(tests: Iterable[Difference | ClaimResult]) -> str:
    """Return the names of the tests that p-values come from, and when each was applied.

    Examples
    --------
    >>> names_of_tests([Difference(1.0, 0.5, 1.5, 0.01, None, 20, 20)])
    "Welch's test of all trials"
    """
    used = list(tests)
    applied = {
        "": ("Welch's test of all trials", [one for one in used if not _splits(one)]),
        "where splits are not shared": (
            "Welch's test of the means of each split",
            [one for one in used if one.unpaired_splits],
        ),
        "where methods share several splits": (
            "a t-test of the differences between the means of each split",
            [one for one in used if one.splits],
        ),
    }
    told = [(when, name) for when, (name, those) in applied.items() if those]
    return told[0][1] + "".join(f" or, {when}, {name}" for when, name in told[1:])


def _splits(test: Difference | ClaimResult) -> int | None:
    return test.splits or test.unpaired_splits


def measure_title(name: str) -> str:
    """Return the title of a measure in tables, with its unit.

    Examples
    --------
    >>> measure_title("val_accuracy"), measure_title("val_loss")
    ('validation accuracy (%)', 'validation loss')
    """
    measure = measures.MEASURES[name]
    return f"{measure.title} (%)" if measure.kind == "fraction" else measure.title


def measured(summary: Summary, name: str) -> str:
    """Return mean and standard deviation of a measure, with three digits or more."""
    decimals = 2
    if measures.MEASURES[name].kind != "fraction" and summary.mean:
        decimals = min(max(2 - math.floor(math.log10(abs(summary.mean))), 0), 6)
    return mean_and_std(summary.mean, summary.std, decimals)


def absence(results: Results) -> str:
    """Return the sentence about the datasets that could not be had."""
    names = ", ".join(results.absent)
    return (
        f"Left out, because the files could not be had: {names}. To see where they come "
        "from: dropnode datasets get NAME"
    )


def choices(results: Results) -> list[tuple[str, list[str]]]:
    """Return the label of each method with settings left to validation, and its choices."""
    return [
        (label, [NOTHING if row is None else setting(row.chosen) or NOTHING for row in rows])
        for label, rows in results.by_label()
        if any(row is not None and row.chosen for row in rows)
    ]


def setting(changes: Mapping[str, Any]) -> str:
    """Return a setting as text.

    Examples
    --------
    >>> setting({"order": 4, "hidden": 16})
    'order=4, hidden=16'
    """
    return ", ".join(f"{key}={value}" for key, value in changes.items())


_MARKDOWN = str.maketrans(
    {"&": "&amp;", "<": "&lt;", "|": r"\|", "[": r"\[", "\\": r"\\", "`": r"\`"}
)


def markdown_text(text: str) -> str:
    r"""Return text that Markdown shows as it is: without HTML, links, code or columns.

    Examples
    --------
    >>> markdown_text("<script> a|b [x](y)")
    '&lt;script> a\\|b \\[x](y)'
    """
    return text.translate(_MARKDOWN)


def mean_and_std(mean: float | None, deviation: float | None, decimals: int = 2) -> str:
    """Return a mean and its standard deviation, if known, as text.

    Examples
    --------
    >>> mean_and_std(85.416, 0.4), mean_and_std(85.4, None), mean_and_std(None, None)
    ('85.42 ± 0.40', '85.40', '–')
    """
    if mean is None:
        return NOTHING
    return f"{mean:.{decimals}f}" + ("" if deviation is None else f" ± {deviation:.{decimals}f}")


def interval(low: float | None, high: float | None, decimals: int = 2) -> str:
    """Return a confidence interval as text, or a dash."""
    if low is None or high is None:
        return NOTHING
    return f"{low:+.{decimals}f} to {high:+.{decimals}f}"


def claimed(claim: ClaimResult) -> tuple[str, str]:
    """Return the difference that a claim is about, and its interval.

    Those of accuracies, in percentage points, have two decimals. Those of a measure have as many
    as tell the bounds apart: losses may differ in the fourth.
    """
    decimals = 2
    if claim.measure and claim.low is not None and claim.high is not None:
        width = claim.high - claim.low
        decimals = min(max(1 - math.floor(math.log10(width)), 2), 6) if width else 2
    return number(claim.difference, f"+.{decimals}f"), interval(claim.low, claim.high, decimals)


def claim_datasets(claim: ClaimResult) -> str:
    """Return where a claim was tested; with two datasets, that of the better row first."""
    if claim.wider_than:
        return f"{claim.dataset} minus {claim.wider_than}"
    return f"{claim.dataset}, {claim.against}" if claim.against else claim.dataset


def number(value: float | None, form: str) -> str:
    """Return a number as text, or a dash."""
    return NOTHING if value is None else format(value, form)


def _grid(
    results: Results, corner: str, show: Callable[[RowResult | None], str]
) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows of a table with a row per method and a column per dataset."""
    heads = [corner, *(dataset.name for dataset in results.datasets)]
    return heads, [[label, *map(show, rows)] for label, rows in results.by_label()]


def _ours_and_paper(row: RowResult | None) -> str:
    if row is None:
        return NOTHING
    text = f"{mean_and_std(row.accuracy.mean, row.accuracy.std)} ({row.accuracy.n})"
    if row.failed:
        text += f", {row.failed} failed"
    if row.paper is not None:
        deviation = "" if row.paper_std is None else f" ± {row.paper_std:.1f}"
        text += f" / {row.paper:.1f}{deviation}"
    return text


def _measured_by(name: str, row: RowResult | None) -> str:
    if row is None:
        return NOTHING
    return f"{measured(row.measures[name], name)} ({row.measures[name].n})"


def _markdown(heads: list[str], lines: list[list[str]]) -> str:
    rows = [heads, ["---"] * len(heads), *lines]
    escaped = [[markdown_text(" ".join(cell.split())) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in escaped)


def _latex_accuracy(row: RowResult | None) -> str:
    return "--" if row is None else _latex_mean_and_std(row.accuracy.mean, row.accuracy.std)


def _latex_measure(name: str, row: RowResult | None) -> str:
    text = NOTHING if row is None else measured(row.measures[name], name)
    return "--" if text == NOTHING else "$" + text.replace("±", r"\pm") + "$"


def _latex_mean_and_std(mean: float | None, deviation: float | None) -> str:
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
