"""Specs: what an experiment consists of, as a YAML file with the published figures beside it.

A spec has either ``rows``, methods to compare on datasets, or a ``search`` in stages. Reading is
strict: an unknown key, dataset, method or setting is an error, before anything is run.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

from dropnode.data import dataset_names
from dropnode.errors import ConfigError
from dropnode.methods.table import make_method
from dropnode.settings import read_yaml, suggestion

Figure = tuple[float, float | None]
"""A published mean and, where there is one, its standard deviation, in percent."""


@dataclass(frozen=True)
class Row:
    """A line of the table: one method, on every dataset that ``seeds`` has a number for."""

    name: str
    method: str
    label: str
    preset: str | None
    changes: Mapping[str, Any]
    seeds: Mapping[str, int]
    paper: Mapping[str, Figure]


@dataclass(frozen=True)
class Claim:
    """A row that is said to be better than another."""

    claim: str
    better: str
    than: str


@dataclass(frozen=True)
class Search:
    """Stages of settings: each tries its grid with what the earlier ones chose."""

    method: str
    preset: str | None
    changes: Mapping[str, Any]
    seeds: int
    stages: tuple[Mapping[str, tuple[Any, ...]], ...]


@dataclass(frozen=True)
class Spec:
    """An experiment.

    Attributes
    ----------
    name, title, description : str
    datasets : tuple of str
    splits : int
        How many splits every dataset without a published one is drawn; each has all seeds.
    rows : tuple of Row
    reference : str or None
        The row that every other is compared with.
    claims : tuple of Claim
    search : Search or None
    """

    name: str
    title: str
    description: str
    datasets: tuple[str, ...]
    splits: int
    rows: tuple[Row, ...]
    reference: str | None
    claims: tuple[Claim, ...]
    search: Search | None
    text: str = field(repr=False)
    measures: tuple[str, ...] = ()

    def only(
        self,
        datasets: Iterable[str] | None = None,
        methods: Iterable[str] | None = None,
        seeds: int | None = None,
    ) -> Spec:
        """Return the part of a spec with some of its datasets and rows, and other seeds."""
        chosen = self
        if datasets is not None:
            kept = _chosen("dataset", datasets, self.datasets)
            rows = tuple(
                replace(row, seeds={name: row.seeds[name] for name in kept if name in row.seeds})
                for row in self.rows
            )
            chosen = replace(chosen, datasets=kept, rows=rows)
        if methods is not None:
            names = _chosen("method", methods, [row.name for row in self.rows])
            rows = tuple(row for row in chosen.rows if row.name in names)
            claims = tuple(c for c in self.claims if {c.better, c.than} <= set(names))
            reference = self.reference if self.reference in names else None
            chosen = replace(chosen, rows=rows, claims=claims, reference=reference)
        if seeds is not None:
            if seeds < 1:
                raise ConfigError(f"{seeds} seeds; expected at least 1")
            rows = tuple(replace(row, seeds=dict.fromkeys(row.seeds, seeds)) for row in chosen.rows)
            search = chosen.search and replace(chosen.search, seeds=seeds)
            chosen = replace(chosen, rows=rows, search=search)
        return chosen


def spec_names() -> list[str]:
    """Return the names of the specs that come with the package."""
    folder = resources.files("dropnode.experiments") / "specs"
    return sorted(Path(file.name).stem for file in folder.iterdir() if file.name.endswith(".yaml"))


def load_spec(name: str) -> Spec:
    """Read a spec that comes with the package, by its name, or a file that ends in .yaml.

    Examples
    --------
    >>> load_spec("table1-grand").rows[0].paper["cora"]
    (85.4, 0.4)
    """
    if name.endswith((".yaml", ".yml")):
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"{name} cannot be read ({error}); expected a spec file") from error
        return parse_spec(Path(name).stem, text)
    if name not in spec_names():
        raise ConfigError(
            f"unknown experiment {name!r}{suggestion(name, spec_names())}; or a file of your own "
            "that ends in .yaml"
        )
    file = resources.files("dropnode.experiments") / "specs" / f"{name}.yaml"
    return parse_spec(name, file.read_text(encoding="utf-8"))


def parse_spec(name: str, text: str) -> Spec:
    """Check the text of a spec and return what it says."""
    try:
        return _spec(name, _mapping("the spec", read_yaml(text)), text)
    except ConfigError as error:
        raise ConfigError(f"spec {name}: {error}") from error


def _spec(name: str, values: dict[str, Any], text: str) -> Spec:
    _check_keys(
        "the spec",
        values,
        required=("title", "datasets", "seeds"),
        optional="description preset set splits reference include rows claims search".split(),
    )
    datasets = tuple(_words("datasets", values["datasets"]))
    for dataset in datasets:
        if dataset not in dataset_names():
            raise ConfigError(f"unknown dataset {dataset!r}{suggestion(dataset, dataset_names())}")
    if ("rows" in values) == ("search" in values):
        raise ConfigError("expected either rows to compare or a search, and not both")
    rows = tuple(_row(row, values, datasets) for row in _list("rows", values.get("rows", [])))
    if "rows" in values and not rows:
        raise ConfigError("rows is []; expected at least one")
    included = _included(values["include"], datasets) if "include" in values else None
    if included:
        rows += included.rows
    for key in ("reference", "claims", "include"):
        if key in values and "search" in values:
            raise ConfigError(f"{key} of a search; only rows are compared")
    if not isinstance(values["seeds"], dict):
        _count("seeds", values["seeds"])
    names = [row.name for row in rows]
    for row in names:
        if names.count(row) > 1:
            raise ConfigError(f"two rows are called {row!r}; give one of them a name of its own")
    reference = values.get("reference")
    if reference is not None and reference not in names:
        raise ConfigError(f"reference {reference!r} is no row{suggestion(str(reference), names)}")
    claims = tuple(_claim(claim, names) for claim in _list("claims", values.get("claims", [])))
    if included:
        claims += included.claims
    search = _search(values["search"], values, datasets) if "search" in values else None
    return Spec(
        name,
        _word("title", values["title"]),
        str(values.get("description") or "").strip(),
        datasets,
        _count("splits", values.get("splits", 1)),
        rows,
        reference,
        claims,
        search,
        text,
    )


def _included(name: Any, datasets: tuple[str, ...]) -> Spec:
    """Return the spec of the package whose rows and claims are to follow the spec's own."""
    included = load_spec(_word("include", name))
    if included.search or included.datasets != datasets:
        raise ConfigError(
            f"include of {name!r}, which is about {', '.join(included.datasets)}; expected rows "
            f"about {', '.join(datasets)}"
        )
    return included


def _row(value: Any, whole: dict[str, Any], datasets: tuple[str, ...]) -> Row:
    values = _mapping("a row", value)
    _check_keys("a row", values, ("method",), ("name", "label", "preset", "set", "seeds", "paper"))
    method = str(values["method"])
    name = str(values.get("name", method))
    preset = _preset(values.get("preset", whole.get("preset")))
    changes = _changes(whole) | _changes(values)
    seeds = values.get("seeds", whole["seeds"])
    counts = dict(seeds) if isinstance(seeds, dict) else dict.fromkeys(datasets, seeds)
    _check_keys(f"seeds of {name}", counts, (), datasets)
    if not counts:
        raise ConfigError(f"seeds of {name} is {{}}; expected at least one dataset")
    for dataset in counts:
        make_method(method, dataset, preset, changes)
    paper = _mapping("paper", values.get("paper", {}))
    _check_keys(f"paper of {name}", paper, (), datasets)
    return Row(
        name,
        method,
        str(values.get("label", name)),
        preset,
        changes,
        {dataset: _count(f"seeds of {name}", count) for dataset, count in counts.items()},
        {dataset: _figure(figure) for dataset, figure in paper.items()},
    )


def _claim(value: Any, names: list[str]) -> Claim:
    values = _mapping("a claim", value)
    _check_keys("a claim", values, ("claim", "better", "than"))
    for side in ("better", "than"):
        if values[side] not in names:
            raise ConfigError(
                f"claim {values['claim']!r} is about {values[side]!r}, which is no row"
                f"{suggestion(str(values[side]), names)}"
            )
    return Claim(str(values["claim"]), values["better"], values["than"])


def _search(value: Any, whole: dict[str, Any], datasets: tuple[str, ...]) -> Search:
    values = _mapping("search", value)
    _check_keys("search", values, ("method", "stages"))
    changes = _changes(whole)
    method = _word("method", values["method"])
    preset = _preset(whole.get("preset"))
    stages: list[dict[str, tuple[Any, ...]]] = []
    for stage in _list("stages", values["stages"]):
        grid = _mapping("a stage", stage)
        if not grid:
            raise ConfigError("a stage varies nothing; give it a key and values to try")
        stages.append(
            {_word("a key", key): tuple(_list(key, tried)) for key, tried in grid.items()}
        )
        for key, tried in stages[-1].items():
            if not tried:
                raise ConfigError(f"{key} is []; expected values to try")
    if not stages:
        raise ConfigError("stages is []; expected at least one stage")
    for tried in itertools.product(*(itertools.product(*stage.values()) for stage in stages)):
        whole_setting = dict(changes)
        for stage, chosen in zip(stages, tried, strict=True):
            whole_setting |= dict(zip(stage, chosen, strict=True))
            for dataset in datasets:
                make_method(method, dataset, preset, whole_setting)
    return Search(
        method,
        preset,
        changes,
        _count("seeds", whole["seeds"]),
        tuple(stages),
    )


def _check_keys(
    where: str, values: dict[str, Any], required: Iterable[str], optional: Iterable[str] = ()
) -> None:
    known = [*required, *optional]
    for key in values:
        if key not in known:
            raise ConfigError(f"unknown key {key!r} in {where}{suggestion(str(key), known)}")
    for key in required:
        if key not in values:
            raise ConfigError(f"{where} lacks {key!r}")


def _mapping(where: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{where} is {value!r}; expected keys and values")
    return dict(value)


def _list(where: str, value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ConfigError(f"{where} is {value!r}; expected a list")
    return value


def _words(where: str, value: Any) -> list[str]:
    words = _list(where, value)
    if not words or len(set(map(str, words))) < len(words):
        raise ConfigError(f"{where} is {value!r}; expected names, each once")
    return [str(word) for word in words]


def _word(where: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ConfigError(f"{where} is {value!r}; expected a word")
    return value


def _preset(value: Any) -> str | None:
    return None if value is None else _word("preset", value)


def _changes(values: dict[str, Any]) -> dict[str, Any]:
    changes = _mapping("set", values.get("set", {}))
    return {_word("a key of set", key): value for key, value in changes.items()}


def _count(where: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ConfigError(f"{where} is {value!r}; expected a whole number of at least 1")
    return value


def _figure(value: Any) -> Figure:
    parts = value if isinstance(value, list) else [value]
    if len(parts) not in (1, 2) or not all(_is_number(part) for part in parts):
        raise ConfigError(f"a published figure is {value!r}; expected a mean, or [mean, deviation]")
    return float(parts[0]), float(parts[1]) if len(parts) == 2 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _chosen(kind: str, asked: Iterable[str], known: Iterable[str]) -> tuple[str, ...]:
    known = list(known)
    asked = list(asked)
    if not asked:
        raise ConfigError(f"no {kind} chosen; expected some of {', '.join(known)}")
    for name in asked:
        if name not in known:
            raise ConfigError(
                f"the experiment has no {kind} {name!r}{suggestion(name, known)}"
                if known
                else f"the experiment has no {kind}s to choose from"
            )
    return tuple(name for name in known if name in asked)
