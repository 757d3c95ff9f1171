"""The time of one epoch of our GCN and GAT, and of the same in plain PyTorch Geometric."""

from __future__ import annotations

from typing import Any

from dropnode.bench.epochs import DATASETS, ENDLESS, ROUNDS, LoopTraining
from dropnode.bench.pyg import PygTraining
from dropnode.bench.timing import Announce, alternate, headed, quiet
from dropnode.data import load_dataset
from dropnode.methods.table import make_method

# The authors' GAT on Pubmed has eight output heads; its plain counterpart has one everywhere.
CHANGES: dict[str, dict[str, Any]] = {"gcn": {}, "gat": {"output_heads": 1}}


def measure(announce: Announce = quiet) -> list[dict[str, Any]]:
    """Return one row per dataset and method: milliseconds per epoch of both, and the ratio."""
    graphs = {name: load_dataset(name) for name in DATASETS}
    rows = []
    for dataset, graph in graphs.items():
        for name, changes in CHANGES.items():
            ours = make_method(name, dataset, "official", ENDLESS | changes).method
            actions = {
                "ours": LoopTraining(ours, graph).epoch,
                "plain": PygTraining(f"plain-{name}", graph).epoch,
            }
            told = headed(announce, f"baselines: {dataset}, {name}")
            timings = alternate(actions, rounds=ROUNDS, announce=told)
            ratio = timings.speedup("ours", "plain")
            rows.append(
                {
                    "dataset": dataset,
                    "method": name,
                    "median_ms": 1000 * timings.time("ours").median,
                    "plain_ms": 1000 * timings.time("plain").median,
                    "ratio": ratio.median,
                    "ratio_iqr": ratio.iqr,
                }
            )
    return rows
