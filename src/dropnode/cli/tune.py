"""``dropnode tune``: search for settings of a method, by validation accuracy."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console

from dropnode.cli.common import WORK_ERROR, AsJson
from dropnode.cli.engines import find_engine

if TYPE_CHECKING:
    from dropnode.experiments.record import Record
    from dropnode.experiments.runner import Cell
    from dropnode.experiments.tuning import Tuned

SEARCHES = ("staged", "optuna", "controller", "random")

ENGINE, TIMEOUT = "local", 7200.0
"""Where trials run, and how many seconds each, if nobody says."""


def tune(
    dataset: Annotated[
        str,
        typer.Argument(help="A dataset, a graph's file (.npz), or either with transforms."),
    ],
    out: Annotated[Path, typer.Option(help="Folder of the search, which can be continued.")],
    method: Annotated[str, typer.Option(help="The method; see: dropnode methods.")] = "grand",
    preset: Annotated[
        str | None, typer.Option(help="A named configuration to start from; default: default.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="A key that all settings share."),
    ] = None,
    try_: Annotated[
        list[str] | None,
        typer.Option(
            "--try",
            metavar="KEY=A,B,C",
            help="Values to try, instead of the method's usual ones; each option is a stage.",
        ),
    ] = None,
    search: Annotated[
        str | None,
        typer.Option(
            help="staged: the paper's search, a grid per stage; optuna: proposals by Optuna. For "
            "graphnas, controller or random: proposals of architectures."
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Settings to propose (Optuna: 50, GraphNAS: 100); a staged search has its own.",
        ),
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trainings per setting.")] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the proposals.")] = 0,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, for datasets without a published split.")
    ] = 0,
    engine: Annotated[str, typer.Option(help="local: this machine; ray: a Ray cluster.")] = ENGINE,
    address: Annotated[
        str | None, typer.Option(help="Address of the Ray cluster; by default Ray starts here.")
    ] = None,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Trials at a time; by default one per core.")
    ] = None,
    timeout: Annotated[
        float, typer.Option(min=1.0, help="Seconds after which a trial counts as failed.")
    ] = TIMEOUT,
    as_json: AsJson = False,
) -> None:
    """Search for the settings of a method with the highest validation accuracy."""
    from dropnode.errors import ConfigError
    from dropnode.experiments.references import Reference
    from dropnode.experiments.spec import Search
    from dropnode.experiments.tuning import Tuning, stages_of
    from dropnode.experiments.tuning import tune as run_search
    from dropnode.settings import read_changes, suggestion

    console = Console(stderr=True, highlight=False)
    chosen = search or ("controller" if method == "graphnas" else "staged")
    if chosen not in SEARCHES:
        raise ConfigError(f"unknown search {chosen!r}{suggestion(chosen, SEARCHES)}")
    start = preset if chosen in ("controller", "random") else preset or "default"
    changes, dataset = read_changes(set_ or []), str(Reference.parse(dataset))
    if chosen in ("controller", "random"):
        if method != "graphnas":
            raise ConfigError(
                f"--search {chosen} proposes architectures of graphnas; for {method}, use staged "
                "or optuna"
            )
        unused = {
            "--engine": engine != ENGINE,
            "--address": address is not None,
            "--jobs": jobs is not None,
            "--timeout": timeout != TIMEOUT,
            "--seeds": seeds != 1,
            "--try": bool(try_),
        }
        if given := [option for option, is_given in unused.items() if is_given]:
            raise ConfigError(
                f"{', '.join(given)}: --search {chosen} trains one architecture after the other in "
                "this process, and proposes all of its values; leave that out"
            )
        found = _architecture(
            dataset, preset, chosen, changes, trials, seed, split_seed, out, console
        )
    else:
        if chosen == "staged" and trials is not None:
            raise ConfigError(
                f"--trials {trials}, but a staged search tries all its values; add --search optuna"
            )
        stages = _stages(try_) if try_ else stages_of(method)
        values = Search(method, start, changes, seeds, stages)
        run, _ = find_engine(engine, address, jobs, timeout)
        found = run_search(
            Tuning(dataset, values, chosen, seed, split_seed),
            out,
            run,
            trials=trials or 50,
            observers=[_Log(console)],
        )
    if as_json:
        print(json.dumps({"dataset": dataset, "method": method, **asdict(found), "out": str(out)}))
    else:
        _print(dataset, method, start, found, out)
    if found.interrupted:
        note = "Interrupted: the best so far is kept. Run the same command again to continue."
        console.print(note, style="yellow")
        raise typer.Exit(WORK_ERROR)


def _stages(texts: list[str]) -> tuple[dict[str, tuple[Any, ...]], ...]:
    """Return the stages of ``--try`` options.

    Examples
    --------
    >>> _stages(["order=2,4", "hidden_dropout=0.2,0.5"])
    ({'order': (2, 4)}, {'hidden_dropout': (0.2, 0.5)})
    """
    from dropnode.errors import ConfigError
    from dropnode.settings import read_changes

    stages = []
    for text in texts:
        key, sign, values = text.partition("=")
        if not (key.strip() and sign):
            raise ConfigError(f"--try {text!r}; expected KEY=A,B, such as order=2,4,8")
        tried = [read_changes([f"{key}={value}"])[key.strip()] for value in values.split(",")]
        stages.append({key.strip(): tuple(dict.fromkeys(tried))})
    return tuple(stages)


def _architecture(
    dataset: str,
    preset: str | None,
    search: str,
    changes: Mapping[str, Any],
    trials: int | None,
    seed: int,
    split_seed: int,
    out: Path,
    console: Console,
) -> Tuned:
    """Run GraphNAS's own search."""
    from dropnode.experiments import architectures
    from dropnode.experiments.references import Reference
    from dropnode.experiments.tuning import Tuned, validation_data, write_found
    from dropnode.methods.table import make_method

    name = Reference.parse(dataset).catalogue_name
    changes = {"max_epochs": 100} | dict(changes)
    child = make_method("graphnas", name, preset, changes).method.config
    settings = architectures.SearchSettings(child, samples=trials or 100)
    graph = validation_data(dataset, split_seed).graph(dataset, split_seed)
    assert graph.split is not None
    best = 0.0

    def show(number: int, sample: architectures.Child) -> None:
        nonlocal best
        best = max(best, sample.val_accuracy)
        console.print(
            f"[{number}/{settings.samples}] {sample.architecture}: validation "
            f"{100 * sample.val_accuracy:.1f} %, best {100 * best:.1f} %",
            soft_wrap=True,
            markup=False,
        )

    run = {
        "controller": architectures.controlled_search,
        "random": architectures.random_search,
    }[search]
    found = run(graph, graph.split, settings, seed, out, on_sample=show)
    tuned = Tuned(
        {"architecture": found.best.architecture},
        found.best.val_accuracy,
        len(found.children),
        len(found.samples),
    )
    write_found(out, tuned, changes, {"request": {"dataset": dataset, "method": "graphnas"}})
    return tuned


def _print(dataset: str, method: str, preset: str | None, found: Tuned, out: Path) -> None:
    from dropnode.experiments.tuning import BEST

    setting = ", ".join(f"{key}={value}" for key, value in found.setting.items())
    print(f"best of {found.settings} settings, in {found.trials} trials: {setting}")
    print(f"validation {100 * found.val_accuracy:.1f} %; no label of a test node was read")
    start = "" if preset is None else f"--preset {preset} "
    print(f"train it: dropnode train {dataset} --method {method} {start}--set @{out / BEST}")


class _Log:
    """Prints a line for every trial that ends."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.names: dict[str, str] = {}
        self.ended = 0

    def on_plan(self, cells: Sequence[Cell], ended: Mapping[str, Record]) -> None:
        """Remember which setting a trial tries."""
        self.names |= {trial.id: cell.label for cell in cells for trial in cell.trials}

    def on_end(self, record: Record) -> None:
        """Print the validation accuracy of a trial."""
        self.ended += 1
        accuracy = record.metrics.get("val_accuracy")
        told = f"failed: {record.error}"
        if accuracy is not None:
            told = f"validation {100 * accuracy:.1f} %"
        self.console.print(
            f"[{self.ended}] {self.names[record.trial.id]}, seed {record.trial.seed}: {told}",
            soft_wrap=True,
            markup=False,
        )
