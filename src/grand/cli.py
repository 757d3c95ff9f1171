"""The command line: parse, call, print.

Exit codes: 0 done; 1 the work failed; 2 the call or the input was wrong. Either failure is said in
one line on stderr, with what to do. With ``--json``, stdout holds one JSON object and nothing else.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from grand import __version__

if TYPE_CHECKING:
    from grand.runs import Request

USAGE_ERROR = 2
WORK_ERROR = 1

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    help="Few-label node classification on graphs with GRAND, graph random neural networks.",
    epilog="Start with:  grand train    then:  grand datasets list",
)
datasets_app = typer.Typer(no_args_is_help=True, help="List, describe and fetch datasets.")
app.add_typer(datasets_app, name="datasets")

AsJson = Annotated[
    bool, typer.Option("--json", help="Print one JSON object on stdout and nothing else there.")
]


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        print(f"grand {__version__}")
        raise typer.Exit


@app.command()
def train(
    dataset: Annotated[str, typer.Argument(help="A dataset's name; see: grand datasets list.")] = (
        "digits"
    ),
    method: Annotated[
        str,
        typer.Option(
            help="grand; with another perturbation grand-dropout, grand-dropedge; with another "
            "head grand-gcn, grand-gat; without a part grand-no-cr, grand-no-mdn, "
            "grand-no-sharpening, grand-no-cr-dn."
        ),
    ] = "grand",
    preset: Annotated[
        str | None,
        typer.Option(
            help="official, fast, paper or default. Without it: official where the dataset has "
            "one, else default."
        ),
    ] = None,
    seed: Annotated[
        int, typer.Option(min=0, help="Weights, masks and everything random follow from it.")
    ] = 0,
    seeds: Annotated[
        int | None,
        typer.Option(min=1, help="Train so many seeds, from --seed on; report mean and spread."),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(min=1, help="Seeds at a time, each on one core. Without it: all cores."),
    ] = None,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Draws the split of datasets that have no published one.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one key of the preset, such as order=4; may be repeated.",
        ),
    ] = None,
    device: Annotated[str, typer.Option(help="Where to compute: cpu, cuda, mps.")] = "cpu",
    out: Annotated[
        Path | None,
        typer.Option(
            help="Folder for model, predictions, curves, history and checkpoints; with --seeds, "
            "one such folder a seed."
        ),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Go on with the run in --out, to the same bits.")
    ] = False,
    checkpoint_every: Annotated[
        float, typer.Option(min=0.0, help="Seconds between checkpoints.")
    ] = 5.0,
    as_json: AsJson = False,
) -> None:
    """Train a method on a dataset and report its test accuracy."""
    from grand.config import ConfigError
    from grand.progress import ProgressBar
    from grand.runs import Request, run

    if resume and out is None:
        raise ConfigError("--resume needs the folder of the run: add --out DIR")
    if jobs is not None and seeds is None:
        raise ConfigError("--jobs says how many seeds to train at a time: add --seeds N")
    request = Request(dataset, method, preset, seed, split_seed, _changes(set_ or []), device)
    console = Console(stderr=True)
    if seeds is not None:
        _train_seeds(request, seeds, jobs, out, resume, checkpoint_every, as_json, console)
        return
    with ProgressBar(f"{method} on {dataset}", console) as bar:
        result = run(
            request, out=out, resume=resume, callbacks=[bar], checkpoint_every=checkpoint_every
        )
    if result["interrupted"]:
        console.print(_interruption(result), style="yellow", highlight=False)
    if as_json:
        print(json.dumps(result))
    else:
        _print_result(result)


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
    from grand.experiments.engines import cores, usable_jobs
    from grand.experiments.seeds import run_seeds
    from grand.experiments.tables import print_failures, print_seeds
    from grand.progress import SeedsBar

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
            watchers=[bar],
            checkpoint_every=checkpoint_every,
        )
    if as_json:
        print(json.dumps(summary))
    else:
        print_seeds(summary, out, Console(highlight=False))
    print_failures(summary, out, console)
    if summary["failed"]:
        raise typer.Exit(WORK_ERROR)


@datasets_app.command("list")
def list_datasets(as_json: AsJson = False) -> None:
    """List the datasets, their sizes, and where each is now."""
    from grand.data import dataset_names, describe

    described = [describe(name) for name in dataset_names()]
    if as_json:
        print(json.dumps({"datasets": described}))
        return
    table = Table(box=None, header_style="bold")
    table.add_column("name")
    for column in ("nodes", "edges", "features", "classes"):
        table.add_column(column, justify="right")
    table.add_column("available")
    for entry in described:
        sizes = [
            "any" if entry[size] is None else f"{entry[size]:,}"
            for size in ("nodes", "edges", "features", "classes")
        ]
        table.add_row(entry["name"], *sizes, entry["available"])
    Console().print(table)


@datasets_app.command("info")
def dataset_info(
    name: Annotated[str, typer.Argument(help="The dataset's name.")], as_json: AsJson = False
) -> None:
    """Say what a dataset is, where it comes from, and under which licence."""
    from grand.data import describe

    _print_description(describe(name), as_json)


@datasets_app.command("get")
def get_dataset(
    name: Annotated[str, typer.Argument(help="The dataset's name.")], as_json: AsJson = False
) -> None:
    """Fetch a dataset into the cache and verify it."""
    from grand.data import fetch

    _print_description(fetch(name), as_json)


@app.command()
def bench(
    only: Annotated[
        str | None,
        typer.Option(
            metavar="PARTS", help="Some of epoch,propagation,scaling,accuracy; commas between."
        ),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Also graphs of up to a million nodes, and accuracy.")
    ] = False,
    out: Annotated[Path, typer.Option(help="Folder for bench.json and bench.png.")] = Path("bench"),
    as_json: AsJson = False,
) -> None:
    """Time GRAND against a naive GRAND and PyTorch Geometric, side by side."""
    from grand.bench import picture, report, suite
    from grand.files import write_json

    parts = None if only is None else [part.strip() for part in only.split(",")]
    out.mkdir(parents=True, exist_ok=True)
    console = Console(stderr=True, highlight=False)
    with console.status("preparing") as status:
        announce = status.update if console.is_terminal else console.print
        result = suite.run(parts, full=full, announce=announce)
    write_json(out / "bench.json", result)
    drawn = picture.save_picture(out / "bench.png", result)
    if as_json:
        print(json.dumps(result))
        return
    report.print_report(result, Console(highlight=False))
    print(f"saved in {out / 'bench.json'}" + (f" and {out / 'bench.png'}" if drawn else ""))


def main() -> None:
    """Run the command line; the installed ``grand`` command calls this."""
    # Threads that wait by spinning take the core from whoever they wait for: on a machine that
    # does anything else, an epoch of a small graph gets several times slower.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    sys.exit(_run(sys.argv[1:]))


def _run(arguments: list[str]) -> int:
    """Run one command and turn every foreseeable failure into a line and an exit code."""
    try:
        return app(arguments, prog_name="grand", standalone_mode=False) or 0
    except typer.TyperException as error:
        # Words on the command line that make no sense; typer's own text names the option.
        # Called with no words at all, it has printed the help and has no text.
        message = error.format_message()
        return _fail(message, USAGE_ERROR) if message.strip() else USAGE_ERROR
    except (KeyboardInterrupt, typer.Abort):
        return _fail("interrupted before anything was learnt; nothing was kept", WORK_ERROR)
    except ValueError as error:
        # GraphError, ConfigError and an unknown dataset are ValueErrors: the input was wrong.
        return _fail(str(error), USAGE_ERROR)
    except (RuntimeError, OSError, MemoryError) as error:
        return _fail(str(error) or type(error).__name__, WORK_ERROR)


def _fail(message: str, code: int) -> int:
    print(f"grand: {' '.join(message.split())}", file=sys.stderr)
    return code


def _changes(pairs: list[str]) -> dict[str, Any]:
    from grand.config import ConfigError

    changes = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not (key and sign):
            raise ConfigError(f"--set {pair!r}; expected KEY=VALUE, such as order=4")
        changes[key.strip()] = _value(value.strip())
    return changes


def _value(text: str) -> Any:
    """Read a value as a person means it: true and false, a number, or else a word."""
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _print_result(result: dict[str, Any]) -> None:
    console = Console(highlight=False)
    table = Table.grid(padding=(0, 2))
    accuracy = result["test_accuracy"]
    table.add_row("test accuracy", "no test labels" if accuracy is None else _percent(accuracy))
    if result["val_accuracy"] is not None:
        table.add_row(
            "validation", f"{_percent(result['val_accuracy'])}, loss {result['val_loss']:.3f}"
        )
    table.add_row("kept epoch", f"{result['best_epoch']:,} of {result['epochs']:,}")
    table.add_row(
        "time", f"{result['seconds']:.1f} s, {1000 * result['seconds_per_epoch']:.1f} ms an epoch"
    )
    table.add_row("split", result["split"])
    if result["out"]:
        table.add_row("saved in", result["out"])
    console.print(
        f"[bold]{result['method']}[/] on [bold]{result['dataset']}[/], "
        f"preset {result['preset']}, seed {result['seed']}"
    )
    console.print(table)
    console.print(_next_steps(result), soft_wrap=True)


def _next_steps(result: dict[str, Any]) -> str:
    grand, python = _typed("grand"), _typed("python")
    dataset, folder = result["dataset"], result["out"]
    lines = ["", "[bold]Try next[/]"]
    if folder:
        load = f"from grand import GrandClassifier as G; print(G.load('{folder}/model').predict())"
        lines.append(f"  look at {folder}/curves.png and {folder}/predictions.csv")
        lines.append(f'  {python} -c "{load}"')
    else:
        lines.append(f"  {grand} train {dataset} --out runs/first   keep model, curves, history")
    if dataset == "digits":
        lines.append(f"  {grand} train citeseer   the paper's benchmark, fetched once")
    lines.append(f"  {grand} train {dataset} --method grand-no-cr   an ablation")
    lines.append(f"  {grand} train {dataset} --set order=2 --seed 1   another setting")
    lines.append(f"  {grand} train {dataset} --seeds 5   mean and spread over seeds, on all cores")
    return "\n".join(lines)


def _typed(program: str) -> str:
    """Return what a person has to type to run a program of this environment."""
    ours = Path(sys.executable).parent / program
    found = shutil.which(program)
    if found is None or Path(found).parent != ours.parent:
        return os.path.relpath(ours)
    return program


def _interruption(result: dict[str, Any]) -> str:
    kept = f"Interrupted: kept the best model so far, of epoch {result['best_epoch']:,}."
    if result["out"]:
        kept += " The same command with --resume goes on."
    return kept


def _print_description(entry: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(entry))
        return
    table = Table.grid(padding=(0, 2))
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for key, value in entry.items():
        if value in (None, "", {}, []):
            continue
        if isinstance(value, dict):
            shown = "\n".join(f"{name}: {_number(part)}" for name, part in value.items())
        else:
            shown = _number(value)
        table.add_row(key.replace("_", " "), shown)
    Console(highlight=False).print(table)


def _number(value: Any) -> str:
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def _percent(fraction: float) -> str:
    return f"{100 * fraction:.1f} %"
