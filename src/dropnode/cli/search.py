"""``dropnode search``: GraphNAS looks for an architecture."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.cli.common import AsJson


def search(
    dataset: Annotated[str, typer.Argument(help="A dataset's name; see: dropnode datasets list.")],
    out: Annotated[Path, typer.Option(help="Folder for the search; called again, it goes on.")],
    samples: Annotated[
        int, typer.Option(min=1, help="Architectures to propose, repetitions included.")
    ] = 100,
    epochs: Annotated[
        int, typer.Option(min=1, help="Epochs that each is trained for at most.")
    ] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Everything random follows from it.")] = 0,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Draws the split of datasets that have no published one.")
    ] = 0,
    random: Annotated[
        bool, typer.Option("--random", help="Propose by chance, for a comparison.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search an architecture of two graph layers with GraphNAS, by validation accuracy."""
    from dropnode.data import load_dataset
    from dropnode.experiments.architectures import (
        Child,
        SearchSettings,
        controlled_search,
        random_search,
    )
    from dropnode.methods.table import make_method

    graph = load_dataset(dataset, split_seed=split_seed)
    assert graph.split is not None
    child = make_method("graphnas", dataset, changes={"max_epochs": epochs}).method.config
    settings = SearchSettings(child, samples=samples)
    console = Console(stderr=True, highlight=False)
    best = 0.0

    def tell(number: int, sample: Child) -> None:
        nonlocal best
        best = max(best, sample.val_accuracy)
        console.print(
            f"[{number}/{samples}] {sample.architecture}: validation "
            f"{100 * sample.val_accuracy:.1f} %, best {100 * best:.1f} %",
            soft_wrap=True,
            markup=False,
        )

    look = random_search if random else controlled_search
    found = look(graph, graph.split, settings, seed, out, on_sample=tell)
    if as_json:
        result = {
            "dataset": dataset,
            "seed": seed,
            "samples": len(found.samples),
            "children": len(found.children),
            "best": asdict(found.best),
            "out": str(out),
        }
        print(json.dumps(result))
        return
    print(f"best of {len(found.children)} architectures: {found.best.architecture}")
    print(f"validation {100 * found.best.val_accuracy:.1f} %; all are in {out}")
    print(
        f"train it: dropnode train {dataset} --method graphnas "
        f"--set architecture={found.best.architecture}"
    )
