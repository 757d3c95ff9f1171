"""``dropnode trials``: list, export or import the trials of an experiment's folder."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import AsJson, tell

if TYPE_CHECKING:
    from dropnode.experiments.record import Record
    from dropnode.experiments.store import Store


def trials(
    folder: Annotated[Path, typer.Argument(help="An experiment's folder.")],
    action: Annotated[str, typer.Argument(help="list, export or import.")] = "list",
    file: Annotated[
        Path | None,
        typer.Argument(help="File to export or import: .csv, .json, .csv.gz, .json.gz, .parquet."),
    ] = None,
    dataset: Annotated[str | None, typer.Option(help="Only trials of this dataset.")] = None,
    method: Annotated[str | None, typer.Option(help="Only trials of this method.")] = None,
    status: Annotated[
        str | None, typer.Option(help="Only trials with this status: done, failed.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List the trials in an experiment's folder, export them to a file, or import them."""
    from dropnode.errors import ConfigError
    from dropnode.experiments.exchange import (
        add_missing,
        check_replaceable,
        export_trials,
        read_trials,
        row_of,
    )
    from dropnode.experiments.experiment import check_folder, open_trials
    from dropnode.experiments.store import Store
    from dropnode.locks import FolderLock
    from dropnode.settings import suggestion

    actions = ("list", "export", "import")
    if action not in actions:
        raise ConfigError(f"unknown action {action!r}{suggestion(action, actions)}")
    if (action == "list") != (file is None):
        raise ConfigError(
            "list takes no file; did you mean export or import?"
            if file
            else f"{action} needs a file: dropnode trials {folder} {action} trials.csv.gz"
        )
    if action == "import":
        assert file is not None
        if dataset or method or status:
            raise ConfigError("import does not filter; leave out --dataset, --method and --status")
        check_folder(folder)
        # Read before the folder is made, so that a file that is refused leaves nothing behind.
        found = read_trials(file)
        with FolderLock(folder), Store(folder) as store:
            taken = add_missing(store, found)
        tell(as_json, {"imported": taken}, f"{taken} trials imported into {folder}")
        return
    with open_trials(folder) as store:
        records = _select(store, dataset, method, status)
        if action == "export":
            assert file is not None
            check_replaceable(file)
            count = export_trials(records, file)
            tell(as_json, {"exported": count}, f"{count} trials exported to {file}")
        elif as_json:
            print(json.dumps({"trials": [row_of(record) for record in records]}))
        else:
            _print_trials(records)


def _select(
    store: Store, dataset: str | None, method: str | None, status: str | None
) -> list[Record]:
    """Return the trials with these properties; a value that no trial has is an error."""
    from dropnode.errors import ConfigError
    from dropnode.settings import suggestion

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
            *map(Text, (trial.dataset, trial.method, trial.preset, trial.split)),
            record.status,
            str(trial.seed),
            *percent,
            str(metrics.get("epochs", "")),
            "" if record.seconds is None else f"{record.seconds:.1f}",
            Text(record.error or ""),
        )
    # In a file or a pipe, columns are not cut to the width of a terminal.
    console = Console(highlight=False)
    (console if console.is_terminal else Console(highlight=False, width=200)).print(table)
    print(f"{len(records)} trials")
