"""``dropnode train``: train one seed or several."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from dropnode.cli.common import WORK_ERROR, AsJson
from dropnode.cli.engines import find_trainer

if TYPE_CHECKING:
    from dropnode.experiments.run import Request
    from dropnode.experiments.run_folder import RunResult


def train(
    dataset: Annotated[
        str,
        typer.Argument(
            help="A name (see: dropnode datasets list), the path of an .npz file, or a folder of "
            "dropnode convert; also with transforms, such as cora@random-edges:rate=0.1",
        ),
    ] = ("digits"),
    method: Annotated[
        str,
        typer.Option(help="The method; see: dropnode methods."),
    ] = "grand",
    preset: Annotated[
        str | None,
        typer.Option(
            help="A named configuration; see: dropnode presets. Default: official if the "
            "dataset has it, otherwise default."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Seed of weights, masks and all other randomness.")
    ] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train this many seeds, starting at --seed; report the spread."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds at a time, each on one core. Default: one per core."),
    ] = None,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, for datasets without a published split.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one key of the preset, such as order=4; may be repeated, the last value "
            "of a key counts.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Device to compute on: cpu, cuda or mps.")] = "cpu",
    engine: Annotated[
        str,
        typer.Option(help="local: this process trains. ray: workers of a Ray cluster train."),
    ] = "local",
    workers: Annotated[
        int | None,
        typer.Option(min=1, help="With --engine ray: processes that train together."),
    ] = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="With --engine ray: a running cluster, auto or host:port. Default: start Ray on "
            "this machine."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for model, predictions, curves, history and checkpoints; with --seeds, "
            "one such folder per seed."
        ),
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue the run in --out, bit-identically."),
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between checkpoints.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Train a method on a dataset and report its test accuracy."""
    from dropnode.errors import ConfigError
    from dropnode.experiments.run import Request, run
    from dropnode.settings import read_changes
    from dropnode.training.progress import ProgressBar

    together = find_trainer(engine, method, workers, address)
    if seeds is not None and engine == "ray":
        raise ConfigError(
            "--seeds trains on the cores of this machine; leave out --engine ray, or train one "
            "seed after the other with --seed"
        )

    if resume and out is None:
        raise ConfigError("--resume needs the folder of the run; add --out DIR")
    if jobs is not None and seeds is None:
        raise ConfigError(f"--jobs {jobs} is the number of seeds to train at a time; add --seeds N")
    changes = read_changes(set_ or [])
    request = Request(
        dataset, method, preset, seed, split_seed, changes, device, workers=workers or 1
    )
    console = Console(stderr=True)
    if seeds is not None:
        _train_seeds(request, seeds, jobs, out, resume, checkpoint_every, as_json, console)
        return
    with ProgressBar(f"{method} on {dataset}", console) as bar:
        result = run(
            request,
            out=out,
            resume=resume,
            callbacks=[bar],
            checkpoint_every=checkpoint_every,
            train=together,
        )
    if as_json:
        print(json.dumps(asdict(result)))
    else:
        _print_result(result)
    if result.interrupted:
        console.print(_interruption(result), style="yellow", highlight=False, soft_wrap=True)
        raise typer.Exit(WORK_ERROR)


def _train_seeds(
    request: Request,
    seeds: int,
    jobs: int | None,
    out: Path | None,
    resume: bool,
    checkpoint_every: float,
    as_json: bool,
    console: Console,
) -> None:
    from dropnode.cli.seeds import print_failures, print_seeds
    from dropnode.engines.base import cores, usable_jobs
    from dropnode.experiments.seeds import run_seeds
    from dropnode.experiments.seeds_bar import SeedsBar

    if jobs is not None and jobs > cores():
        notice = f"--jobs {jobs} lowered to {cores()}, the cores that this process may use"
        console.print(notice, style="yellow", highlight=False, soft_wrap=True)
    jobs = usable_jobs(jobs, seeds)
    with SeedsBar(f"{request.method} on {request.dataset}", seeds, jobs, console) as bar:
        summary = run_seeds(
            request,
            seeds,
            jobs=jobs,
            out=out,
            resume=resume,
            observers=[bar],
            checkpoint_every=checkpoint_every,
        )
    if as_json:
        print(json.dumps(asdict(summary)))
    else:
        print_seeds(summary, out, Console(highlight=False))
    print_failures(summary, out, console)
    if summary.failed:
        raise typer.Exit(WORK_ERROR)


def _print_result(result: RunResult) -> None:
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    accuracy = result.test_accuracy
    table.add_row("test accuracy", "no test labels" if accuracy is None else _percent(accuracy))
    if result.val_accuracy is not None:
        table.add_row("validation", f"{_percent(result.val_accuracy)}, loss {result.val_loss:.3f}")
    table.add_row("kept epoch", f"{result.best_epoch:,} of {result.epochs:,}")
    table.add_row(
        "time", f"{result.seconds:.1f} s, {1000 * result.seconds_per_epoch:.1f} ms per epoch"
    )
    table.add_row("split", Text(result.split))
    if result.out:
        table.add_row("saved in", Text(result.out))
    console.print(
        f"[bold]{result.method}[/] on [bold]{escape(result.dataset)}[/], "
        f"preset {result.preset}, seed {result.seed}"
    )
    console.print(table)
    console.print(_next_steps(result), soft_wrap=True)


def _next_steps(result: RunResult) -> str:
    dropnode, python = escape(_typed("dropnode")), escape(_typed("python"))
    dataset, folder = escape(result.dataset), escape(result.out or "")
    lines = ["", "[bold]Try next[/]"]
    if folder:
        load = (
            f"from dropnode import GrandClassifier as G; print(G.load('{folder}/model').predict())"
        )
        lines.append(f"  look at {folder}/curves.png and {folder}/predictions.csv")
        lines.append(f'  {python} -c "{load}"')
    else:
        lines.append(f"  {dropnode} train {dataset} --out runs/first   keep model, curves, history")
    if dataset == "digits":
        lines.append(f"  {dropnode} train citeseer   the paper's benchmark, fetched once")
    lines.append(f"  {dropnode} train {dataset} --method grand-no-cr   an ablation")
    lines.append(f"  {dropnode} train {dataset} --method gcn   a baseline, under the same protocol")
    lines.append(f"  {dropnode} train {dataset} --set order=2 --seed 1   another setting")
    lines.append(
        f"  {dropnode} train {dataset} --seeds 5   mean and spread over seeds, on all cores"
    )
    return "\n".join(lines)


def _typed(program: str) -> str:
    """Return what to type to run a program of this environment."""
    ours = Path(sys.executable).parent / program
    found = shutil.which(program)
    if found is None or Path(found).parent != ours.parent:
        return os.path.relpath(ours)
    return program


def _interruption(result: RunResult) -> str:
    kept = f"Interrupted: kept the best model so far, from epoch {result.best_epoch:,}."
    if result.out:
        kept += " Run the same command with --resume to continue."
    return kept


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
