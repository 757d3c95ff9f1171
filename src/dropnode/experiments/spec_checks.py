"""Checks of the parts of a spec: names, references, published figures, claims and plots.

What would only fail after everything has run, or can never hold, is an error when the spec is read.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from numbers import Real
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.measures import MEASURES, NUMBERS, STANDARD
from dropnode.experiments.references import Reference
from dropnode.experiments.spec import Claim, Figure, Plot, Row
from dropnode.settings import check_keys, shown, suggestion

LONGEST_NAME = 100
"""Characters of a row's name or label; tables and figures have no room for more."""


def check_name(where: str, text: str) -> str:
    """Return the name or label of a row, or raise an error if tables cannot show it."""
    if not text.strip() or len(text) > LONGEST_NAME:
        raise ConfigError(
            f"{where} is {shown(text)} with {len(text):,} characters; expected a text of 1 to "
            f"{LONGEST_NAME} characters"
        )
    return text


def distinct(where: str, references: Iterable[str]) -> tuple[str, ...]:
    """Return references in their canonical form; the same graph twice is an error."""
    written: dict[tuple[str, str], str] = {}
    found = []
    for text in references:
        reference = Reference.parse(text)
        # A file may be named by several paths.
        source = reference.catalogue_name or os.path.realpath(reference.source)
        before = written.get((source, reference.recipe))
        if before is not None:
            again = "twice" if text == before else f"and {before!r}, which are the same graph"
            raise ConfigError(f"{where} has {text!r} {again}; expected each once")
        written[source, reference.recipe] = text
        found.append(str(reference))
    return tuple(found)


def check_figure(where: str, value: float | tuple[float, ...]) -> Figure:
    """Return a published accuracy, in percent, and its deviation if there is one."""
    parts = value if isinstance(value, tuple) else (value,)
    if len(parts) not in (1, 2):
        raise ConfigError(f"{where} is {list(parts)!r}; expected a mean, or [mean, deviation]")
    if not all(0 <= part <= 100 for part in parts):
        raise ConfigError(
            f"{where} is {list(parts)!r}; expected a mean and a deviation in percent, from 0 to 100"
        )
    return parts[0], parts[1] if len(parts) == 2 else None


def check_names(names: Sequence[str]) -> None:
    """Raise an error if two rows, or a series and another row, have one name."""
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two rows are called {name!r}; rename one of them")


def check_claim(claim: Claim, datasets: tuple[str, ...], measures: tuple[str, ...]) -> Claim:
    """Return a claim with canonical references, or raise an error if it cannot be tested."""
    told, measure = f"claim {claim.claim!r}", claim.measure
    if measure not in MEASURES or MEASURES[measure].kind not in NUMBERS:
        known = [name for name, one in MEASURES.items() if one.kind in NUMBERS]
        raise ConfigError(
            f"{told} is about {measure!r}, which is no measure that is one number"
            f"{suggestion(measure, known)}"
        )
    if measure not in (*STANDARD, *measures):
        raise ConfigError(
            f"{told} is about {measure!r}, which the trials do not store; add it to measures"
        )
    _check_size(claim, told)
    named = distinct(f"datasets of {told}", claim.datasets)
    against = None if claim.against is None else str(Reference.parse(claim.against))
    wider_than = None if claim.wider_than is None else str(Reference.parse(claim.wider_than))
    if against is not None and wider_than is not None:
        raise ConfigError(f"{told} has both against and wider_than; leave one of them out")
    compared = (*named, *(other for other in (against, wider_than) if other is not None))
    check_keys(dict.fromkeys(compared), (), datasets, f"datasets of {told}")
    for dataset in named or datasets:
        if claim.better == claim.than and dataset == (against or dataset):
            raise ConfigError(
                f"{told} compares {claim.better!r} on {dataset} with itself; name another row, or "
                "give `against` another dataset than those of `datasets`"
            )
        if dataset == wider_than:
            raise ConfigError(
                f"{told} compares the difference on {dataset} with itself; give `wider_than` "
                "another dataset than those of `datasets`"
            )
    return replace(claim, datasets=named, against=against, wider_than=wider_than)


def check_sides(claim: Claim, rows: Sequence[Row], datasets: tuple[str, ...]) -> None:
    """Raise an error unless the rows of a claim are trained where it is to be tested."""
    told, names = f"claim {claim.claim!r}", [row.name for row in rows]
    for side in (claim.better, claim.than):
        if side not in names:
            raise ConfigError(
                f"{told} is about {side!r}, which is not a row{suggestion(side, names)}"
            )
    trained = {(row.name, dataset) for row in rows for dataset in row.seeds}
    lacking = {
        dataset: [
            f"{row} on {place}"
            for row, place in claim.sides(dataset)
            if (row, place) not in trained
        ]
        for dataset in claim.datasets or datasets
    }
    # A claim about all datasets is tested where it can be, if that is anywhere.
    untested = [one for one in lacking.values() if one]
    if untested and (claim.datasets or len(untested) == len(lacking)):
        raise ConfigError(
            f"{told} needs {', '.join(untested[0])}, for which the row has no seeds; give it seeds "
            "there, or name other `datasets` for the claim"
        )


def _check_size(claim: Claim, told: str) -> None:
    """Raise an error unless the difference that a claim states can be one of its measure."""
    if claim.paper is None:
        if claim.size:
            raise ConfigError(
                f"{told} is about the size of a difference that it does not give; add paper: NUMBER"
            )
        return
    # Fractions are in percent; the difference of two differences is up to twice as large.
    most = 100 if claim.wider_than is None else 200
    if MEASURES[claim.measure].kind == "fraction" and abs(claim.paper) > most:
        raise ConfigError(
            f"{told} states a difference of {claim.paper:g}; expected percentage points from "
            f"-{most} to {most}"
        )


def check_plots(
    plots: Sequence[Plot],
    rows: Sequence[Row],
    datasets: tuple[str, ...],
    measures: tuple[str, ...],
) -> tuple[Plot, ...]:
    """Return plots with the names of their rows; one that cannot be drawn is an error."""
    _each_once("plots", [plot.title for plot in plots])
    return tuple(_check_plot(plot, rows, datasets, measures) for plot in plots)


def _check_plot(
    plot: Plot, rows: Sequence[Row], datasets: tuple[str, ...], measures: tuple[str, ...]
) -> Plot:
    told = f"plot {plot.title!r}"
    known = list(dict.fromkeys(row.series or row.name for row in rows))
    for name in plot.rows:
        if name not in known:
            raise ConfigError(f"{told} draws {name!r}, which is no row{suggestion(name, known)}")
    _each_once(f"rows of {told}", plot.rows)
    numbers = [name for name in (*STANDARD, *measures) if MEASURES[name].kind in NUMBERS]
    for name in plot.measures:
        if name in MEASURES and MEASURES[name].kind not in NUMBERS:
            raise ConfigError(
                f"{told} draws {name!r}, which is not a number and cannot be plotted; expected "
                f"some of {', '.join(numbers)}"
            )
        if name not in numbers:
            cure = "; add it to measures" if name in MEASURES else suggestion(name, numbers)
            raise ConfigError(
                f"{told} draws {name!r}, which is no number that the trials store{cure}"
            )
    _each_once(f"measures of {told}", plot.measures)
    drawn = [row for row in rows if (row.series or row.name) in (plot.rows or known)]
    if plot.over is None:
        _check_varied(told, drawn)
    else:
        _check_option(told, plot.over, datasets)
    return replace(plot, rows=plot.rows or tuple(known))


def _check_varied(told: str, rows: Sequence[Row]) -> None:
    """Raise an error unless rows vary a key, and only by numbers."""
    if not any(row.series for row in rows):
        raise ConfigError(
            f"{told} has nothing to draw against: none of its rows varies a key; "
            "give a row `vary`, or name the option of a transform in `over`"
        )
    for row in rows:
        for key, value in row.at.items():
            if not _is_number(value):
                raise ConfigError(
                    f"{told} draws {row.series!r} against {key} = {shown(value)}, which is not a "
                    "number; name rows that vary numbers in `rows`"
                )


def _check_option(told: str, over: str, datasets: Iterable[str]) -> None:
    """Raise an error unless an option of a transform is a number in some dataset."""
    options: Mapping[str, Any] = {
        f"{step.name}.{name}": getattr(step.options, name)
        for dataset in datasets
        for step in Reference.parse(dataset).steps
        for name in step.options.names()
    }
    if over not in options:
        raise ConfigError(
            f"{told} is over {over!r}, which no dataset has; expected "
            "TRANSFORM.OPTION, such as random-edges.rate"
        )
    if not _is_number(options[over]):
        numbers = [name for name, value in options.items() if _is_number(value)]
        raise ConfigError(
            f"{told} is over {over!r}, which is not a number; expected one of {', '.join(numbers)}"
        )


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _each_once(where: str, words: Sequence[str]) -> None:
    for word in words:
        if words.count(word) > 1:
            raise ConfigError(f"{where} has {shown(word)} twice; expected each once")
