"""``dropnode reproduce``: run the missing trials of an experiment."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.cli.common import WORK_ERROR, AsJson
from dropnode.cli.engines import find_engine
from dropnode.cli.results_table import print_results
from dropnode.errors import WorkError


@contextmanager
def _resumable() -> Iterator[None]:
    """Say how to continue after Ctrl-C while it starts or sums up, when no trial is running."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise WorkError(
            "interrupted; trials that ended are stored: run the same command again to continue"
        ) from error


@_resumable()
def reproduce(
    experiment: Annotated[
        str, typer.Argument(help="A name (see: dropnode experiments) or a spec file (.yaml).")
    ],
    out: Annotated[Path, typer.Option(help="Folder for trials, results and report.")],
    datasets: Annotated[
        str | None,
        typer.Option(
            metavar="NAMES",
            help="Only these datasets of the experiment, separated by commas; a name with a comma "
            "of its own is given in full: cora,cora@random-edges:rate=0.1,seed=3",
        ),
    ] = None,
    methods: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Only these rows, separated by commas.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option(min=1, help="Seeds per row and dataset, instead of the spec's.")
    ] = None,
    splits: Annotated[
        int | None,
        typer.Option(
            min=1, help="Splits of datasets without a published one, instead of the spec's."
        ),
    ] = None,
    engine: Annotated[str, typer.Option(help="local: this machine; ray: a Ray cluster.")] = (
        "local"
    ),
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; by default Ray starts here.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time; by default one per core.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a trial counts as failed.")
    ] = 7200.0,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed trials again.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run the missing trials of an experiment, and write tables and a report."""
    from dropnode.experiments.experiment import Part
    from dropnode.experiments.experiment import reproduce as run_experiment
    from dropnode.experiments.live_table import LiveTable
    from dropnode.experiments.spec_file import load_spec

    spec = load_spec(experiment)
    rows = {name for row in spec.rows for name in (row.name, row.series)}
    part = Part(_names(datasets, spec.datasets, _canonical), _names(methods, rows), seeds, splits)
    console = Console(stderr=True)
    run, at_once = find_engine(engine, address, jobs, timeout)
    with LiveTable(spec.name, at_once, console) as table:
        outcome = run_experiment(
            spec,
            out,
            run,
            part=part,
            retry=retry,
            observers=[table],
            command=f"dropnode {shlex.join(sys.argv[1:])}",
        )
    if as_json:
        print(json.dumps(outcome.as_json()))
    else:
        print_results(outcome.results, out)
    if outcome.interrupted:
        note = (
            f"Interrupted: {outcome.missing} trials are missing. "
            "Run the same command again to continue."
        )
        console.print(note, style="yellow", highlight=False)
    for record in outcome.not_completed:
        trial, error = record.trial, " ".join((record.error or "").split())
        note = (
            f"dropnode: trial {trial.id} ({trial.dataset}, {trial.method}, seed {trial.seed}) was "
            f"not completed: {error}"
        )
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if failed := outcome.failed - len(outcome.not_completed):
        see = f"dropnode trials {shlex.quote(str(out))} --status failed"
        note = f"{failed} trials failed; see: {see}; add --retry to run them again."
        console.print(note, style="yellow", highlight=False, markup=False, soft_wrap=True)
    if outcome.failed or outcome.interrupted:
        raise typer.Exit(WORK_ERROR)


def _names(
    text: str | None, known: Collection[str], canonical: Callable[[str], str] = str
) -> tuple[str, ...] | None:
    """Return names that are separated by commas, of which a known name may have some itself.

    A known name is preferred to its parts, so ``a,b`` is one name if it is known. ``canonical``
    returns a name as it is spelt in ``known``.

    Examples
    --------
    >>> _names("cora,sbm@random-edges:rate=0.1,seed=3", ["sbm@random-edges:rate=0.1,seed=3"])
    ('cora', 'sbm@random-edges:rate=0.1,seed=3')
    """
    if text is None:
        return None
    parts, names = text.split(","), []
    while parts:
        for count in range(len(parts), 0, -1):
            name = canonical(",".join(parts[:count]).strip())
            if name in known or count == 1:
                break
        names.append(name)
        del parts[:count]
    return tuple(name for name in names if name)


def _canonical(text: str) -> str:
    """Return a reference in its canonical form; other text as it is."""
    from dropnode.errors import ConfigError
    from dropnode.experiments.references import Reference

    try:
        return str(Reference.parse(text))
    except ConfigError:
        return text
