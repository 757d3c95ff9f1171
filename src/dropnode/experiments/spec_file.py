"""Spec files: an experiment as YAML, read strictly.

An unknown key, dataset, method or setting is an error before anything is run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.measures import check_measures
from dropnode.experiments.references import Reference
from dropnode.experiments.spec import Claim, Plot, Row, Search, Spec, combinations
from dropnode.experiments.spec_checks import (
    check_claim,
    check_figure,
    check_name,
    check_plots,
    distinct,
)
from dropnode.methods.table import configuration
from dropnode.settings import (
    check_keys,
    continued,
    count,
    read_record,
    read_value,
    read_yaml,
    repeats,
    seed,
    shown,
    suggestion,
    yaml_text,
)


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
        return _spec(name, read_record(_SpecRecord, read_yaml(text), "spec"), text)
    except ConfigError as error:
        raise ConfigError(f"spec {name}: {error}") from error


@dataclass(frozen=True)
class _RowRecord:
    """A row as the file has it.

    Attributes
    ----------
    method : the method that is trained
    name : how the rest of the file calls the row; by default the method's name
    label : how tables call the row; by default its name
    preset : the preset to start from, instead of the file's; also by catalogue name, such as
        ``{cora: fast, pubmed: tuned}``
    set : configuration keys and values on top of the preset and of the file's ``set``
    seeds : number of seeds, instead of the file's; also by dataset, such as ``{cora: 100}``
    paper : the published accuracy by dataset: a mean, or ``[mean, deviation]``, in percent
    choose : keys whose value validation chooses, with the values to try
    vary : one key and its values; the row becomes a series with a row for each value
    """

    method: str
    name: str | None = None
    label: str | None = None
    preset: str | Mapping[str, str] | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    seeds: int | Mapping[str, int] | None = None
    paper: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    choose: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    vary: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class _SearchRecord:
    """A search as the file has it.

    Attributes
    ----------
    method : the method that is trained
    stages : grids of keys and values to try, each with what the earlier stages chose
    """

    method: str
    stages: tuple[Mapping[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class _SpecRecord:
    """The keys of a spec file.

    Attributes
    ----------
    title : the heading of tables and report
    datasets : references: names, ``.npz`` files, or transforms of these
    seeds : seeds per row and dataset; also by dataset, such as ``{cora: 100}``
    description : a paragraph for the report
    optional : datasets that are left out, and named in the results, if their files cannot be had
    preset : the preset of every row; by default ``official`` where there is one, else ``default``
    set : configuration keys and values for every row, on top of the preset
    splits : splits to draw for datasets without a published one; each has all seeds
    first_split : the seed of the first split
    measures : measures that the tables show beside the test accuracy; every trial stores them
    plots : measures to draw against a setting that rows vary, or against an option of a transform
    rows : the methods to compare; either these or ``search``
    include : a spec of the package whose rows and claims follow this file's
    reference : the name of the row that every other row is compared with
    claims : claims to test, each about two rows
    search : settings to choose by validation, in stages; either this or ``rows``
    """

    title: str
    datasets: tuple[str, ...]
    seeds: int | Mapping[str, int]
    description: str | None = None
    optional: tuple[str, ...] = ()
    preset: str | None = None
    set: Mapping[str, Any] = field(default_factory=dict)
    splits: int = repeats(default=1)
    first_split: int = seed(default=0)
    measures: tuple[str, ...] = ()
    plots: tuple[Plot, ...] = ()
    rows: tuple[_RowRecord, ...] | None = None
    include: str | None = None
    reference: str | None = None
    claims: tuple[Claim, ...] = ()
    search: _SearchRecord | None = None


def _spec(name: str, record: _SpecRecord, text: str) -> Spec:
    if (record.rows is None) == (record.search is None):
        raise ConfigError("expected either rows or a search, and not both")
    for key in ("reference", "claims", "include"):
        if record.search is not None and getattr(record, key):
            raise ConfigError(f"{key} is for rows, but the spec has a search; remove {key}")
    datasets = distinct("datasets", record.datasets)
    rows = tuple(made for row in record.rows or () for made in _rows(row, record, datasets))
    claims = tuple(check_claim(claim, datasets, record.measures) for claim in record.claims)
    if record.include is not None:
        included = _included(record.include, datasets)
        rows, claims = rows + included.rows, claims + included.claims
    check_measures(record.measures)
    plots = check_plots(record.plots, rows, datasets, record.measures)
    names = [row.name for row in rows]
    for row in names:
        if names.count(row) > 1:
            raise ConfigError(f"two rows are called {row!r}; rename one of them")
    if record.reference is not None and record.reference not in names:
        raise ConfigError(
            f"reference {record.reference!r} is not a row{suggestion(record.reference, names)}"
        )
    for claim in claims:
        for side in (claim.better, claim.than):
            if side not in names:
                raise ConfigError(
                    f"claim {claim.claim!r} is about {side!r}, which is not a row"
                    f"{suggestion(side, names)}"
                )
    return Spec(
        name,
        record.title,
        (record.description or "").strip(),
        datasets,
        record.splits,
        rows,
        record.reference,
        claims,
        None if record.search is None else _search(record.search, record, datasets),
        text,
        tuple(dict.fromkeys((*record.measures, *_drawn(plots)))),
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
    """Return the spec whose rows and claims are added after the spec's own."""
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


def _rows(record: _RowRecord, whole: _SpecRecord, datasets: tuple[str, ...]) -> list[Row]:
    """Return the row of a record, or one for each value of the key that it varies."""
    name = check_name("name of a row", record.method if record.name is None else record.name)
    label = check_name(f"label of {name}", name if record.label is None else record.label)
    for key in (*record.choose, *record.vary):
        if key in record.set:
            raise ConfigError(
                f"{name} sets {key} and also gives values to try; leave one of them out"
            )
    if not record.vary:
        return [_row(record, whole, datasets, name, label)]
    _check_grid(record.vary)
    if len(record.vary) > 1:
        raise ConfigError(
            f"{name} varies {', '.join(record.vary)}; expected one key, and a row for each value "
            "of the others"
        )
    ((key, values),) = record.vary.items()
    if key in record.choose:
        raise ConfigError(f"{name} both varies and chooses {key}; leave one of them out")
    return [
        replace(
            _row(
                replace(record, set={**record.set, key: value}),
                whole,
                datasets,
                f"{name} {key}={value}",
                f"{label}, {key} = {value}",
            ),
            series=name,
            at={key: value},
        )
        for value in values
    ]


def _row(
    record: _RowRecord, whole: _SpecRecord, datasets: tuple[str, ...], name: str, label: str
) -> Row:
    changes = {**whole.set, **record.set}
    seeds = whole.seeds if record.seeds is None else record.seeds
    if isinstance(seeds, Mapping):
        counts = _by_dataset(f"seeds of {name}", seeds)
    else:
        counts = dict.fromkeys(datasets, seeds)
    check_keys(counts, (), datasets, f"seeds of {name}")
    if not counts:
        raise ConfigError(f"seeds of {name} is {{}}; expected at least one dataset")
    presets = {dataset: _preset(record, whole, dataset) for dataset in counts}
    _check_grid(record.choose)
    settings = [{**changes, **tried} for tried in combinations(record.choose)]
    for dataset in counts:
        _check_settings(record.method, [dataset], presets[dataset], settings)
    paper = _by_dataset(f"paper of {name}", record.paper)
    check_keys(paper, (), datasets, f"paper of {name}")
    return Row(
        name,
        record.method,
        label,
        presets,
        changes,
        {dataset: _seeds(f"seeds of {name}", number) for dataset, number in counts.items()},
        {
            dataset: check_figure(f"paper of {name} on {dataset}", figure)
            for dataset, figure in paper.items()
        },
        record.choose,
    )


def _preset(record: _RowRecord, whole: _SpecRecord, dataset: str) -> str | None:
    """Return the preset of a row on a dataset; a row may have one for each source."""
    if not isinstance(record.preset, Mapping):
        return whole.preset if record.preset is None else record.preset
    source = Reference.parse(dataset).source
    if source not in record.preset:
        raise ConfigError(f"preset of {record.name or record.method} lacks {source}")
    return record.preset[source]


def _drawn(plots: Iterable[Plot]) -> list[str]:
    """Return the measures that plots draw beside the test accuracy, which every row has."""
    return [name for plot in plots for name in plot.measures if name != "test_accuracy"]


def _search(record: _SearchRecord, whole: _SpecRecord, datasets: tuple[str, ...]) -> Search:
    for stage in record.stages:
        if not stage:
            raise ConfigError("a stage is empty; give it a key and values to try")
        _check_grid(stage)
    # Any choice of one stage may meet any choice of another, so the stages are one grid.
    grid = {f"stage {n}": tuple(combinations(s)) for n, s in enumerate(record.stages, 1)}
    for number in range(1, len(grid) + 1):
        first = dict(list(grid.items())[:number])
        settings = [
            {**whole.set}
            | {key: value for chosen in tried.values() for key, value in chosen.items()}
            for tried in combinations(first)
        ]
        _check_settings(record.method, datasets, whole.preset, settings)
    seeds = _seeds("seeds", whole.seeds)
    return Search(record.method, whole.preset, whole.set, seeds, record.stages)


def _check_grid(grid: Mapping[str, tuple[Any, ...]]) -> None:
    for key, tried in grid.items():
        if not tried:
            raise ConfigError(f"{key} is []; expected values to try")
        for value in tried:
            if tried.count(value) > 1:
                raise ConfigError(f"{key} is {shown(list(tried))}; expected each value once")


def _check_settings(
    method: str,
    datasets: Iterable[str],
    preset: str | None,
    settings: Sequence[Mapping[str, Any]],
) -> None:
    """Configure the method, so that an invalid setting is an error before anything is run."""
    names = {Reference.parse(dataset).catalogue_name for dataset in datasets}
    for name in sorted(names, key=str):
        _, config = configuration(method, name, preset)
        for setting in settings:
            config.replace(**setting)


def _by_dataset(where: str, values: Mapping[str, Any]) -> dict[str, Any]:
    return dict(zip(distinct(where, values), values.values(), strict=True))


def _seeds(where: str, value: Any) -> int:
    number: int = read_value(int, value, where, count())
    return number
