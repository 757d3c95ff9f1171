"""``grand reproduce``, ``grand runs`` and ``grand report``: experiments and what they came to."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from grand.cli.common import WORK_ERROR, AsJson

if TYPE_CHECKING:
    from grand.experiments.runner import Engine
    from grand.experiments.store import Record, Store


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="table1-grand, presets, hyperparameters, or a spec file.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for trials, results and report.")],
    datasets: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these datasets; commas between.")
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these rows; commas between.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="So many seeds in every cell, instead of the spec's.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local: processes here; ray: a Ray cluster.")] = (
        "local"
    ),
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster; without it, Ray starts here.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time. Without it: one a core.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a trial counts as failed.")
    ] = 7200.0,
    retry: Annotated[
        bool, typer.Option("--retry", help="Run trials that failed before once more.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Run an experiment, or what its folder lacks of it, and write tables and a report."""
    from grand.experiments.experiment import Part
    from grand.experiments.experiment import reproduce as run_experiment
    from grand.experiments.live import LiveTable
    from grand.experiments.spec import load_spec

    spec = load_spec(experiment)
    part = Part(_names(datasets), _names(methods), seeds)
    console = Console(stderr=True)
    run, at_once = _engine(engine, address, jobs, timeout)
    with LiveTable(spec.name, at_once, console) as table:
        results = run_experiment(
            spec,
            out,
            run,
            part=part,
            retry=retry,
            watchers=[table],
            command=f"grand {shlex.join(sys.argv[1:])}",
        )
    if as_json:
        print(json.dumps(results))
    else:
        _print_results(results, out)
    if results["interrupted"]:
        note = f"Interrupted: {results['missing']} trials are missing. The same command goes on."
        console.print(note, style="yellow", highlight=False)
    failed = results["failed"]
    if failed:
        see = f"grand runs {shlex.quote(str(out))} --status failed"
        note = f"{failed} trials failed; see: {see}; --retry runs them."
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if failed or results["interrupted"]:
        raise typer.Exit(WORK_ERROR)


def runs(
    folder: Annotated[Path, typer.Argument(help="An experiment's folder.")],
    action: Annotated[str, typer.Argument(help="list, export or import.")] = "list",
    file: Annotated[
        Path | None, typer.Argument(help="To export to or import from: .csv, .json or .parquet.")
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only trials of this dataset.")] = None,
    method: Annotated[str | None, typer.Option(help="Only trials of this method.")] = None,
    status: Annotated[str | None, typer.Option(help="Only trials that are done or failed.")] = None,
    as_json: AsJson = False,
) -> None:
    """List the trials in an experiment's folder, or carry them from one to another."""
    from grand.experiments.exchange import export_trials, import_trials, row_of
    from grand.experiments.store import FILE, OneDriver, Store
    from grand.strict import ConfigError, suggestion

    actions = ("list", "export", "import")
    if action not in actions:
        raise ConfigError(f"unknown action {action!r}{suggestion(action, actions)}")
    if (action == "list") != (file is None):
        raise ConfigError(
            "list takes no file; did you mean export or import?"
            if file
            else f"{action} needs a file: grand runs {folder} {action} trials.csv"
        )
    if action != "import" and not (folder / FILE).exists():
        raise ConfigError(f"{folder} holds no trials; run grand reproduce ... --out {folder} first")
    if action == "import":
        assert file is not None
        if dataset or method or status:
            raise ConfigError("import takes over every trial of a file; leave the filters out")
        with OneDriver(folder), Store(folder) as store:
            taken = import_trials(store, file)
        _tell(as_json, {"imported": taken}, f"{taken} trials imported into {folder}")
        return
    with Store(folder) as store:
        records = _select(store, dataset, method, status)
        if action == "export":
            assert file is not None
            count = export_trials(records, file)
            _tell(as_json, {"exported": count}, f"{count} trials exported to {file}")
        elif as_json:
            print(json.dumps({"trials": [row_of(record) for record in records]}))
        else:
            _print_trials(records)


def report(
    folder: Annotated[Path, typer.Argument(help="An experiment's folder.")], as_json: AsJson = False
) -> None:
    """Sum up an experiment's folder anew and write its report.html; nothing is run."""
    from grand.experiments.experiment import report as write

    page = write(folder)
    _tell(as_json, {"report": str(page)}, f"open {page}")


def _engine(name: str, address: str | None, jobs: int | None, timeout: float) -> tuple[Engine, int]:
    """Return the engine asked for, and how many trials it runs at a time."""
    from grand.experiments.engines import cores, run_local, usable_jobs
    from grand.experiments.trials import run_trial
    from grand.strict import ConfigError, suggestion

    if name == "local":
        if address is not None:
            raise ConfigError("--address is that of a Ray cluster: add --engine ray")
        at_once = usable_jobs(jobs, cores())
        return lambda trials, data: run_local(
            run_trial, trials, at_once, shared=data, timeout=timeout
        ), at_once
    if name == "ray":
        from grand.experiments.ray_engine import run_ray

        return lambda trials, data: run_ray(
            run_trial, trials, address=address, jobs=jobs, shared=data, timeout=timeout
        ), jobs or cores()
    raise ConfigError(f"unknown engine {name!r}{suggestion(name, ('local', 'ray'))}")


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _select(
    store: Store, dataset: str | None, method: str | None, status: str | None
) -> list[Record]:
    """Return the trials with these properties; one that no trial can have is an error."""
    from grand.strict import ConfigError, suggestion

    records = list(store.records())
    for name, value, known in (
        ("dataset", dataset, {record.trial.dataset for record in records}),
        ("method", method, {record.trial.method for record in records}),
        ("status", status, {"done", "failed"}),
    ):
        if value is not None and value not in known:
            raise ConfigError(
                f"no trial has the {name} {value!r}{suggestion(value, sorted(known))}"
            )
    return [
        record
        for record in records
        if dataset in (None, record.trial.dataset)
        and method in (None, record.trial.method)
        and status in (None, record.status)
    ]


def _tell(as_json: bool, values: dict[str, Any], line: str) -> None:
    print(json.dumps(values) if as_json else line)


def _print_results(results: dict[str, Any], out: Path) -> None:
    from grand.experiments.writers import by_label, setting, spread

    console = Console(highlight=False)
    datasets = [dataset["name"] for dataset in results["datasets"]]
    if results["rows"]:
        table = Table(
            box=None, header_style="bold", title=Text(results["title"]), title_justify="left"
        )
        table.add_column("")
        for dataset in datasets:
            table.add_column(dataset, justify="right")
            table.add_column("paper", justify="right", style="dim")
        for label, rows in by_label(results, datasets):
            shown = []
            for row in rows:
                if row is None:
                    shown += ["", ""]
                    continue
                shown.append(f"{spread(row['mean'], row['std'])} ({row['n']})")
                shown.append("" if row["paper"] is None else f"{row['paper']:.1f}")
            table.add_row(Text(label), *shown)
        console.print(table)
    for stage in results["search"] or []:
        table = Table(box=None, header_style="bold")
        heads = (f"{stage['dataset']}, stage {stage['stage']}", "validation", "test", "seeds")
        for head in heads:
            table.add_column(head, justify="left" if head == heads[0] else "right")
        for row in stage["rows"]:
            table.add_row(
                Text(f"{setting(row)}{' *' if row['chosen'] else ''}"),
                spread(row["val_mean"], row["val_std"]),
                spread(row["test_mean"], row["test_std"]),
                str(row["n"]),
                style="bold" if row["chosen"] else None,
            )
        console.print(table)
    console.print(f"open {out / 'report.html'}", markup=False, soft_wrap=True)


def _print_trials(records: list[Record]) -> None:
    table = Table(box=None, header_style="bold")
    for column in ("id", "dataset", "method", "preset", "split", "status"):
        table.add_column(column, no_wrap=True)
    for column in ("seed", "test", "validation", "epochs", "seconds"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("error", overflow="fold")
    for record in records:
        trial, metrics = record.trial, record.metrics
        percent = [
            "" if metrics.get(name) is None else f"{100 * metrics[name]:.1f} %"
            for name in ("test_accuracy", "val_accuracy")
        ]
        table.add_row(
            trial.id,
            trial.dataset,
            trial.method,
            trial.preset,
            trial.split,
            record.status,
            str(trial.seed),
            *percent,
            str(metrics.get("epochs", "")),
            "" if record.seconds is None else f"{record.seconds:.1f}",
            Text(record.error or ""),
        )
    # Into a file or a pipe, every column as wide as it needs to be.
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=200)).print(table)
    print(f"{len(records)} trials")
