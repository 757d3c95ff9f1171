"""``dropnode graphnas``: search for an architecture with GraphNAS."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from dropnode.cli.common import AsJson


def graphnas(
    dataset: Annotated[str, typer.Argument(help="A dataset's name; see: dropnode datasets list.")],
    out: Annotated[Path, typer.Option(help="Folder of the search, which can be continued.")],
    samples: Annotated[
        int, typer.Option(min=1, help="Number of architectures to propose, counting repetitions.")
    ] = 100,
    epochs: Annotated[int, typer.Option(min=1, help="Most epochs per architecture.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="Seed of all randomness.")] = 0,
    split_seed: Annotated[
        int, typer.Option(min=0, help="Seed of the split, for datasets without a published split.")
    ] = 0,
    random: Annotated[
        bool, typer.Option("--random", help="Propose architectures at random, for comparison.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Search for an architecture of two graph layers with GraphNAS, by validation accuracy."""
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

    def show(number: int, sample: Child) -> None:
        nonlocal best
        best = max(best, sample.val_accuracy)
        console.print(
            f"[{number}/{samples}] {sample.architecture}: validation "
            f"{100 * sample.val_accuracy:.1f} %, best {100 * best:.1f} %",
            soft_wrap=True,
            markup=False,
        )

    run = random_search if random else controlled_search
    found = run(graph, graph.split, settings, seed, out, on_sample=show)
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
    print(f"validation {100 * found.best.val_accuracy:.1f} %; all of them are in {out}")
    print(
        f"train it: dropnode train {dataset} --method graphnas "
        f"--set architecture={found.best.architecture}"
    )
