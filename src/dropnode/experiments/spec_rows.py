"""The rows and the search of a spec, made from the keys of its file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from dropnode.errors import ConfigError
from dropnode.experiments.references import Reference
from dropnode.experiments.spec import Row, Search, combinations
from dropnode.experiments.spec_checks import check_figure, check_name, distinct
from dropnode.experiments.spec_records import RowRecord, SearchRecord, SpecRecord
from dropnode.methods.table import configuration
from dropnode.settings import check_keys, count, read_value, shown


def rows_of(record: RowRecord, whole: SpecRecord, datasets: tuple[str, ...]) -> list[Row]:
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
    record: RowRecord, whole: SpecRecord, datasets: tuple[str, ...], name: str, label: str
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
    if isinstance(record.preset, Mapping):
        needed, known = (
            dict.fromkeys(Reference.parse(dataset).source for dataset in those)
            for those in (counts, datasets)
        )
        others = [source for source in known if source not in needed]
        check_keys(record.preset, needed, others, f"preset of {name}")
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


def _preset(record: RowRecord, whole: SpecRecord, dataset: str) -> str | None:
    """Return the preset of a row on a dataset; a row may have one for each source."""
    if not isinstance(record.preset, Mapping):
        return whole.preset if record.preset is None else record.preset
    return record.preset[Reference.parse(dataset).source]


def search_of(record: SearchRecord, whole: SpecRecord, datasets: tuple[str, ...]) -> Search:
    """Return the search of a record; any combination of its stages has to be valid."""
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
