"""Measure the Explorer: a process of ``dropnode serve`` on this machine, asked over HTTP.

load: eight clients, each a process of its own, ask for one node after the other, from cache.
new: one client sends one new node with five edges at a time to a model of 100,000 nodes.
page: how long the page on Cora takes to its first picture, and the times between frames while
20,000 nodes are moved and zoomed in headless Chromium, which draws in software.
next: a model of Cora has 40 labels. Ten more are added where the service suggests, or at random,
and the candidate is kept. Both are scored on the same nodes: those that neither was told about.

    python studies/explorer.py load
    python studies/explorer.py next --repeats 20    # run again to go on
    python studies/explorer.py table                # the lines of next as a table

Results go to studies/results/explorer.jsonl, a line each.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import scipy.sparse as sp
from scipy import stats

from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.data import load_dataset
from dropnode.graph import Graph

RESULTS = Path(__file__).parent / "results/explorer.jsonl"
LABELS, MORE, PER_CLASS = 40, 10, 2
"""Labels of the first model, labels that are added, and the fewest of a class in the first."""

FIRST_SEED = 300


def main() -> None:
    """Run one part and append what it measured."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("part", choices=[*PARTS, "table"])
    parser.add_argument("--out", type=Path, default=RESULTS, help="results, a JSON line each")
    parser.add_argument("--repeats", type=int, default=20, help="of next")
    parser.add_argument("--seconds", type=float, default=60.0, help="of load")
    parser.add_argument("--note", help="what else the machine did, kept with the figures")
    options = parser.parse_args()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    if options.part != "table":
        warnings.simplefilter("ignore")
        for found in PARTS[options.part](options):
            line = {"part": options.part} | found
            if options.note:
                line["note"] = options.note
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")
            print(json.dumps(line), file=sys.stderr, flush=True)
    print_table(read(options.out))


class Client:
    """One connection to a service that stays open."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(urlsplit(address).netloc, timeout=600)

    def ask(self, path: str, body: Any = None) -> bytes:
        """Return the answer to a question; an answer that is none is an error."""
        headers = {"content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        self._connection.request("GET" if body is None else "POST", path, data, headers)
        answer = self._connection.getresponse()
        content = answer.read()
        if answer.status >= 400:
            raise OSError(f"{path}: {answer.status} {content[:200]!r}")
        return content


@contextmanager
def service(model: Path) -> Iterator[str]:
    """Yield the address of a process that serves a model on a free port of this machine."""
    command = [sys.executable, "-m", "dropnode", "serve", str(model), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["address"]
        finally:
            process.terminate()


def measure_next(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the accuracy with suggested and with random labels, a repeat at a time."""
    graph = load_dataset("cora").with_split(None)
    done = {line["seed"] for line in read(options.out) if line["part"] == "next"}
    for seed in range(FIRST_SEED, FIRST_SEED + options.repeats):
        if seed not in done:
            with tempfile.TemporaryDirectory() as folder:
                yield {"seed": seed} | compare_choices(graph, seed, Path(folder))


def compare_choices(graph: Graph, seed: int, folder: Path) -> dict[str, Any]:
    """Fit a model, add labels by both choices, and score both on the same nodes."""
    generator = np.random.default_rng(seed)
    given = draw_labels(graph, generator)
    labels = np.full(graph.num_nodes, -1)
    labels[given] = graph.labels[given]
    fit(graph.with_labels(labels, graph.class_names), seed, folder / "first")
    others = np.setdiff1d(np.arange(graph.num_nodes), given)
    chosen = {"random": generator.choice(others, MORE, replace=False)}
    predicted = {}
    for choice in ("suggested", "random"):
        shutil.copytree(folder / "first", folder / choice)
        with service(folder / choice) as address:
            client = Client(address)
            predicted["before"] = predictions(client)
            if choice == "suggested":
                found = json.loads(client.ask(f"/work/next?limit={MORE}"))
                chosen[choice] = np.array([int(row["id"]) for row in found])
            told = [
                {"id": str(node), "label": graph.class_names[graph.labels[node]]}
                for node in chosen[choice]
            ]
            client.ask("/labels", {"labels": told})
            client.ask("/retrain", {})
            wait(client)
            client.ask("/retrain/keep", {})
            predicted[choice] = predictions(client)
    scored = np.setdiff1d(others, np.concatenate(list(chosen.values())))
    truth = np.array(graph.class_names, dtype=object)[graph.labels]
    scores = {name: float((found == truth)[scored].mean()) for name, found in predicted.items()}
    return scores | {"scored": len(scored)}


def draw_labels(graph: Graph, generator: np.random.Generator) -> np.ndarray:
    """Draw two nodes per class, without which nothing can be held out, and the rest at random."""
    members = (np.flatnonzero(graph.labels == code) for code in range(graph.num_classes))
    first = np.concatenate([generator.choice(each, PER_CLASS, replace=False) for each in members])
    others = np.setdiff1d(np.arange(graph.num_nodes), first)
    return np.concatenate([first, generator.choice(others, LABELS - len(first), replace=False)])


def fit(graph: Graph, seed: int, folder: Path, **settings: Any) -> None:
    """Fit a model to a graph as ``dropnode fit`` would to its tables, and save it."""
    names = np.array([*graph.class_names, None], dtype=object)
    nodes = pa.table(
        {"id": [str(at) for at in range(graph.num_nodes)], "topic": names[graph.labels].tolist()}
    )
    once = sp.triu(graph.adjacency, 1).tocoo()
    ends = {key: end.astype(str).tolist() for key, end in zip(ENDS, once.coords, strict=True)}
    features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    tables = read_tables(nodes, pa.table(ends), label="topic", features=features)
    TableModel.fit(tables, GrandClassifier(random_state=seed, **settings)).save(folder)


ENDS = ("source", "target")


def predictions(client: Client) -> np.ndarray:
    """Return the predicted class of every node, in the order of the nodes."""
    text = client.ask("/export/predictions.csv").decode()
    return np.array([row["predicted"] for row in csv.DictReader(io.StringIO(text))], dtype=object)


def wait(client: Client) -> None:
    """Wait until a candidate is ready."""
    while (status := json.loads(client.ask("/retrain")))["state"] == "running":
        time.sleep(0.5)
    if status["state"] != "ready":
        raise OSError(f"retraining failed: {status['problem']}")


PARTS = {"next": measure_next}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print means and standard deviations of next, and 95 % intervals of differences."""
    found = [line for line in lines if line["part"] == "next"]
    if len(found) < 2:
        return
    print("| labels | repeats | accuracy (%) | minus random (95 %) |")
    print("|---|---|---|---|")
    scores = {key: 100 * np.array([line[key] for line in found]) for key in CHOICES}
    for key, told in CHOICES.items():
        row = f"| {told} | {len(found)} | {scores[key].mean():.1f} ± {scores[key].std(ddof=1):.1f} |"
        if key == "suggested":
            difference = scores[key] - scores["random"]
            low, high = stats.ttest_1samp(difference, 0).confidence_interval(0.95)
            row += f" {difference.mean():+.1f} [{low:+.1f}, {high:+.1f}]"
        print(f"{row} |")


CHOICES = {
    "before": f"{LABELS}",
    "random": f"{LABELS} and {MORE} at random",
    "suggested": f"{LABELS} and {MORE} that were suggested",
}

if __name__ == "__main__":
    main()
