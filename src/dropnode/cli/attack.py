"""``dropnode attack``: a graph with edges changed to mislead a classifier, as a file."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.analysis.attacks import KINDS
from dropnode.cli.common import AsJson

AFTER_INTERRUPTION = {
    "random": "and the same command starts again",
    "metattack": "but flips so far are kept: run the same command again to continue",
    "prbcd": "and the same command starts again",
}
"""What becomes of each kind of attack that is interrupted."""


def attack(
    dataset: Annotated[
        str, typer.Argument(help="A name (see: dropnode datasets list) or an .npz file.")
    ],
    kind: Annotated[str, typer.Option(help=f"The attack: {', '.join(KINDS)}.")],
    rate: Annotated[
        float, typer.Option(help="Edges to change, as a fraction of the graph's, such as 0.05.")
    ],
    out: Annotated[Path, typer.Option(help="The .npz file to write; train takes it by its path.")],
    seed: Annotated[int, typer.Option(min=0, help="Seed of the attack.")] = 0,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, for datasets without a published split.")
    ] = 0,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Change one option of the attack, such as mode=train; may be repeated, the last "
            "value of a key counts. An unknown key is answered with those there are.",
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Change edges of a graph to mislead a classifier, and write the result.

    Metattack is kept in the cache as it goes on: the same command continues one that was
    interrupted, and a higher rate continues from a lower one. PRBCD is kept when it is finished.
    """
    from dropnode.data import save_graph
    from dropnode.data.graph_file import check_ending
    from dropnode.errors import ConfigError, WorkError
    from dropnode.experiments.references import Reference
    from dropnode.settings import read_changes, suggestion
    from dropnode.training.progress import StepsBar

    if kind not in KINDS:
        raise ConfigError(f"unknown attack {kind!r}{suggestion(kind, KINDS)}")
    changes = read_changes(set_ or [])
    for option in ("rate", "seed"):
        if option in changes:
            raise ConfigError(f"--set {option}=...; the {option} has an option: --{option}")
    check_ending(out)
    source = Reference.parse(dataset)
    reference = source.then(KINDS[kind], {**changes, "rate": rate, "seed": seed})
    origin = f"{reference}, split seed {split_seed}"
    _check_out(out, source.source, origin)
    clean = source.load(split_seed)
    started = time.perf_counter()
    try:
        with StepsBar(f"{kind} on {dataset}", Console(stderr=True)) as bar:
            attacked = reference.last.transformed(clean, bar.watch)
    except KeyboardInterrupt as error:
        raise WorkError(
            f"interrupted; there is no result yet, {AFTER_INTERRUPTION[kind]}"
        ) from error
    save_graph(attacked, out, origin=origin)
    seconds = time.perf_counter() - started
    added = int((attacked.adjacency > clean.adjacency).nnz // 2)
    removed = int((clean.adjacency > attacked.adjacency).nnz // 2)
    if as_json:
        told = {
            "dataset": str(reference),
            "kind": kind,
            "rate": rate,
            "seed": seed,
            "split": None if clean.split is None else clean.split.name,
            "edges": clean.num_edges,
            "added": added,
            "removed": removed,
            "seconds": seconds,
            "out": str(out),
        }
        print(json.dumps(told))
        return
    print(f"{added:,} edges added and {removed:,} removed, of {clean.num_edges:,}; {seconds:.1f} s")
    print(f"train on it: dropnode train {out} --method gcn")


def _check_out(out: Path, source: str, origin: str) -> None:
    """Raise an error where the result may not be written, before hours of work rather than after.

    An attack takes long, so that a file that is there is replaced only by the result of the same
    command.
    """
    from dropnode.data.graph_file import read_graph
    from dropnode.errors import ConfigError, DropnodeError

    folder = next(parent for parent in out.absolute().parents if parent.exists())
    if out.is_dir() or not folder.is_dir() or not os.access(folder, os.W_OK):
        raise ConfigError(f"{out} cannot be written; choose another file with --out")
    if not os.path.lexists(out):
        return
    if os.path.exists(source) and os.path.samefile(source, out):
        raise ConfigError(f"{out} is the graph to attack; choose another file with --out")
    try:
        same = read_graph(out).notes[-1:] == (origin,)
    except DropnodeError:
        same = False
    if not same:
        raise ConfigError(
            f"{out} exists and is not the result of this command; choose another file with --out"
        )
