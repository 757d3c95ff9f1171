"""Measure large tables: reading a million nodes and ten million edges, and new nodes on top.

Random tables are written to a folder, and each step runs in a process of its own: ``read_tables``
of CSV or Parquet files, then a model of that size that classifies a thousand new nodes with five
edges each, twice. A line has the CPU seconds of the step and the most memory that its process ever
had (VmHWM). The model is GRAND+, which `fit` takes for graphs of that size, after one epoch: how
long training takes is another question, and new nodes cost the same.

    python studies/large_tables.py --folder /tmp/large               # csv, parquet, new
    python studies/large_tables.py --folder /tmp/large --steps new --nodes 100000
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as parquet

RESULTS = Path(__file__).parent / "results/large_tables.jsonl"
COLUMNS, CLASSES, LABELLED = 10, 10, 1_000
NEW, NEW_EDGES = 1_000, 5_000


def main() -> None:
    """Write the tables, run the steps and print their lines."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="where the tables are written")
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--steps", default="csv,parquet,new")
    parser.add_argument("--nodes", type=int, default=10**6)
    parser.add_argument("--step", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.step is not None:
        print(json.dumps(STEPS[options.step](options.folder)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    write_tables(options.folder, options.nodes)
    for step in options.steps.split(","):
        command = [sys.executable, __file__, "--folder", str(options.folder), "--step", step]
        printed = subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout
        line = {"step": step, "nodes": options.nodes} | json.loads(printed)
        with options.out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        print(line, flush=True)


def write_tables(folder: Path, nodes: int) -> None:
    """Write tables of nodes and of ten times as many edges, and those of new nodes."""
    draw = np.random.default_rng(0)
    known = draw.permutation(nodes)[:LABELLED]
    labels = np.full(nodes, None, dtype=object)
    labels[known] = [f"class {code}" for code in draw.integers(0, CLASSES, LABELLED)]
    ends = draw.integers(0, nodes, (2, 10 * nodes))
    later = np.arange(nodes, nodes + NEW)
    tables = {
        "nodes": {"id": np.arange(nodes)} | numbers(draw, nodes) | {"topic": labels},
        "edges": {"source": ends[0], "target": ends[1]},
        "new": {"id": later} | numbers(draw, NEW),
        "new_edges": {
            "source": draw.choice(later, NEW_EDGES),
            "target": draw.integers(0, nodes + NEW, NEW_EDGES),
        },
    }
    for name, columns in tables.items():
        table = pa.table(columns)
        arrow_csv.write_csv(table, folder / f"{name}.csv")
        parquet.write_table(table, folder / f"{name}.parquet")


def numbers(draw: np.random.Generator, rows: int) -> dict[str, Any]:
    """Return columns of numbers."""
    return {f"x{at}": draw.normal(size=rows).astype(np.float32).round(4) for at in range(COLUMNS)}


def read(folder: Path, ending: str) -> dict[str, Any]:
    """Read the tables."""
    from dropnode import read_tables

    start, wall = time.process_time(), time.perf_counter()
    tables = read_tables(folder / f"nodes.{ending}", folder / f"edges.{ending}", label="topic")
    found = measured(start, wall)
    return found | {"edges": tables.graph.num_edges, "features": tables.graph.num_features}


def new_nodes(folder: Path) -> dict[str, Any]:
    """Classify new nodes with a loaded model, twice."""
    from dropnode import GrandClassifier, TableModel, read_tables

    if not (folder / "model").exists():
        tables = read_tables(folder / "nodes.parquet", folder / "edges.parquet", label="topic")
        # Not a fitted walk, which looks at no neighbour where labels are random, as here.
        classifier = GrandClassifier(
            method="grand-plus",
            validation_fraction=None,
            max_epochs=1,
            random_state=0,
            options={"walk": "average"},
        )
        TableModel.fit(tables, classifier, assess=False).save(folder / "model")
        del tables
    start, wall = time.process_time(), time.perf_counter()
    model = TableModel.load(folder / "model")
    found = {f"load_{name}": value for name, value in measured(start, wall).items()}
    for time_of in ("first", "second"):
        start, wall = time.process_time(), time.perf_counter()
        model.predict_new(folder / "new.csv", folder / "new_edges.csv")
        found |= {f"{time_of}_{name}": value for name, value in measured(start, wall).items()}
    return found


def measured(start: float, wall: float) -> dict[str, float]:
    """Return CPU seconds and seconds since then, and the peak of memory in GB."""
    status = Path("/proc/self/status").read_text(encoding="utf-8")
    peak = next(line for line in status.splitlines() if line.startswith("VmHWM"))
    return {
        "cpu": round(time.process_time() - start, 2),
        "seconds": round(time.perf_counter() - wall, 2),
        "peak_gb": round(int(peak.split()[1]) / 2**20, 2),
    }


STEPS = {
    "csv": lambda folder: read(folder, "csv"),
    "parquet": lambda folder: read(folder, "parquet"),
    "new": new_nodes,
}

if __name__ == "__main__":
    main()
