"""Spec files: an experiment as YAML, read strictly.

An unknown key, dataset, method or setting is an error before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterable
from importlib import resources
from pathlib import Path

from dropnode.errors import ConfigError
from dropnode.experiments.measures import check_measures
from dropnode.experiments.spec import Plot, Spec
from dropnode.experiments.spec_checks import (
    check_claim,
    check_names,
    check_plots,
    check_sides,
    distinct,
)
from dropnode.experiments.spec_records import SpecRecord
from dropnode.experiments.spec_rows import rows_of, search_of
from dropnode.settings import continued, read_record, read_yaml, suggestion, yaml_text


def spec_names() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("dropnode.experiments") / "specs"
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_spec(name: str) -> Spec:
    """Read a spec of the package by its name, or a file whose name ends in .yaml.

    Examples
    --------
    >>> load_spec("table1-grand").rows[0].paper["cora"]
    (85.4, 0.4)
    """
    if name.endswith((".yaml", ".yml")):
        try:
            text = yaml_text(Path(name))
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read ({error}); expected a spec file") from error
        return parse_spec(Path(name).stem, text)
    if name not in spec_names():
        unknown = f"unknown experiment {name!r}{suggestion(name, spec_names())}"
        raise ConfigError(continued(unknown, "or give the path of a spec file that ends in .yaml"))
    file = resources.files("dropnode.experiments") / "specs" / f"{name}.yaml"
    return parse_spec(name, file.read_text(encoding="utf-8"))


def parse_spec(name: str, text: str) -> Spec:
    """Check the text of a spec and return the experiment that it describes."""
    try:
        return _spec(name, read_record(SpecRecord, read_yaml(text), "spec"), text)
    except ConfigError as error:
        raise ConfigError(f"spec {name}: {error}") from error


def _spec(name: str, record: SpecRecord, text: str) -> Spec:
    if (record.rows is None) == (record.search is None):
        raise ConfigError("expected either rows or a search, and not both")
    for key in ("reference", "claims", "include"):
        if record.search is not None and getattr(record, key):
            raise ConfigError(f"{key} is for rows, but the spec has a search; remove {key}")
    datasets = distinct("datasets", record.datasets)
    rows = tuple(made for row in record.rows or () for made in rows_of(row, record, datasets))
    # A series is a name, too: plots and --methods mean all of its rows by it.
    names = [row.name or row.method for row in record.rows or ()]
    claims, measures = record.claims, record.measures
    check_measures(measures)
    if record.include is not None:
        included = _included(record.include, datasets)
        rows, claims = rows + included.rows, claims + included.claims
        measures = tuple(dict.fromkeys((*measures, *included.measures)))
        names += dict.fromkeys(row.series or row.name for row in included.rows)
    check_names(names)
    check_names([row.name for row in rows])
    claims = tuple(check_claim(claim, datasets, measures) for claim in claims)
    plots = check_plots(record.plots, rows, datasets, measures)
    names = [row.name for row in rows]
    if record.reference is not None and record.reference not in names:
        raise ConfigError(
            f"reference {record.reference!r} is not a row{suggestion(record.reference, names)}"
        )
    for claim in claims:
        check_sides(claim, rows, datasets)
    return Spec(
        name,
        record.title,
        (record.description or "").strip(),
        datasets,
        record.splits,
        rows,
        record.reference,
        claims,
        None if record.search is None else search_of(record.search, record, datasets),
        text,
        tuple(dict.fromkeys((*measures, *_drawn(plots)))),
        plots,
        record.first_split,
        _optional(record.optional, datasets),
    )


def _optional(names: tuple[str, ...], datasets: tuple[str, ...]) -> tuple[str, ...]:
    optional = distinct("optional", names)
    for name in optional:
        if name not in datasets:
            raise ConfigError(
                f"optional has {name!r}, which is not one of the datasets"
                f"{suggestion(name, datasets)}"
            )
    return optional


def _included(name: str, datasets: tuple[str, ...]) -> Spec:
    """Return the spec whose rows, claims and measures are added after the spec's own."""
    # Not a file: its place may change, and it may include the file that includes it.
    if name not in spec_names():
        unknown = f"include: unknown experiment {name!r}{suggestion(name, spec_names())}"
        raise ConfigError(continued(unknown, "only experiments of the package can be included"))
    included = load_spec(name)
    if included.search or included.datasets != datasets:
        raise ConfigError(
            f"include {name!r} has the datasets {', '.join(included.datasets)}; expected a spec "
            f"with rows on {', '.join(datasets)}"
        )
    return included


def _drawn(plots: Iterable[Plot]) -> list[str]:
    """Return the measures that plots draw beside the test accuracy, which every row has."""
    return [name for plot in plots for name in plot.measures if name != "test_accuracy"]
