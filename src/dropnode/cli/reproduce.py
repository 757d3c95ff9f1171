"""``dropnode reproduce``: run the missing trials of an experiment."""

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

from dropnode.cli.common import WORK_ERROR, AsJson

if TYPE_CHECKING:
    from dropnode.experiments.runner import Engine


def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="A name (see: dropnode experiments) or a spec file, .yaml.")
    ],
    out: Annotated[Path, typer.Option(help="Folder for trials, results and report.")],
    datasets: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these datasets, separated by commas.")
    ] = None,
    methods: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="Only these rows, separated by commas."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per cell, instead of the spec's number.")
    ] = None,
    engine: Annotated[str, typer.Option(help="local: this machine; ray: a Ray cluster.")] = (
        "local"
    ),
    address: Annotated[
        str | None,
        typer.Option(help="Of the Ray cluster. Default: Ray starts on this machine."),
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time. Default: one per core.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a trial counts as failed.")
    ] = 7200.0,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed trials again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the missing trials of an experiment, and write its tables and its report."""
    from dropnode.experiments.experiment import Part
    from dropnode.experiments.experiment import reproduce as run_experiment
    from dropnode.experiments.live import LiveTable
    from dropnode.experiments.spec import load_spec

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
            observers=[table],
            command=f"dropnode {shlex.join(sys.argv[1:])}",
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
        see = f"dropnode trials {shlex.quote(str(out))} --status failed"
        note = f"{failed} trials failed; see: {see}; --retry runs them."
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if failed or results["interrupted"]:
        raise typer.Exit(WORK_ERROR)


def _engine(name: str, address: str | None, jobs: int | None, timeout: float) -> tuple[Engine, int]:
    """Return the engine asked for, and how many trials it runs at a time."""
    from dropnode.engines.base import cores, usable_jobs
    from dropnode.engines.local import run_local
    from dropnode.errors import ConfigError
    from dropnode.experiments.run import run_trial
    from dropnode.settings import suggestion

    if name == "local":
        if address is not None:
            raise ConfigError("--address is that of a Ray cluster: add --engine ray")
        at_once = usable_jobs(jobs, cores())
        return lambda trials, data: run_local(
            run_trial, trials, at_once, shared=data, timeout=timeout
        ), at_once
    if name == "ray":
        from dropnode.engines.ray_cluster import run_ray

        return lambda trials, data: run_ray(
            run_trial, trials, address=address, jobs=jobs, shared=data, timeout=timeout
        ), jobs or cores()
    raise ConfigError(f"unknown engine {name!r}{suggestion(name, ('local', 'ray'))}")


def _names(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(name.strip() for name in text.split(",") if name.strip())


def _print_results(results: dict[str, Any], out: Path) -> None:
    from dropnode.experiments.writers import by_label, setting, spread

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
