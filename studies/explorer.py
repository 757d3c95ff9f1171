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
    parser.add_argument("--nodes", type=int, default=100_000, help="of the model of new")
    parser.add_argument("--requests", type=int, default=500, help="of new")
    parser.add_argument("--frames", type=int, default=300, help="of page")
    parser.add_argument("--method", default="grand", help="of next")
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
    done = {line["seed"] for line in read(options.out) if line.get("method") == options.method}
    for seed in range(FIRST_SEED, FIRST_SEED + options.repeats):
        if seed not in done:
            with tempfile.TemporaryDirectory() as folder:
                found = compare_choices(graph, options.method, seed, Path(folder))
                yield {"method": options.method, "seed": seed} | found


def compare_choices(graph: Graph, method: str, seed: int, folder: Path) -> dict[str, Any]:
    """Fit a model, add labels by both choices, and score both on the same nodes."""
    generator = np.random.default_rng(seed)
    given = draw_labels(graph, generator)
    labels = np.full(graph.num_nodes, -1)
    labels[given] = graph.labels[given]
    fit(graph.with_labels(labels, graph.class_names), seed, folder / "first", method=method)
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


def fit(graph: Graph, seed: int, folder: Path, assess: bool = True, **settings: Any) -> None:
    """Fit a model to a graph as ``dropnode fit`` would to its tables, and save it."""
    names = np.array([*graph.class_names, None], dtype=object)
    nodes = pa.table(
        {"id": [str(at) for at in range(graph.num_nodes)], "topic": names[graph.labels].tolist()}
    )
    once = sp.triu(graph.adjacency, 1).tocoo()
    ends = {key: end.astype(str).tolist() for key, end in zip(ENDS, once.coords, strict=True)}
    features = graph.features.toarray() if sp.issparse(graph.features) else graph.features
    tables = read_tables(nodes, pa.table(ends), label="topic", features=features)
    classifier = GrandClassifier(random_state=seed, **settings)
    TableModel.fit(tables, classifier, assess=assess).save(folder)


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


def measure_load(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the rate and the latency of one-node predictions that the service has in memory."""
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        small_model(model)
        with service(model) as address:
            found = json.loads(Client(address).ask("/nodes?limit=100"))
            names = [row["id"] for row in found["nodes"]]
            # Processes, so that the clients do not wait for each other.
            started = [
                subprocess.Popen(
                    [sys.executable, "-c", CLIENT, address, str(options.seconds), *names],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for _ in range(CLIENTS)
            ]
            told = [json.loads(process.communicate()[0]) for process in started]
    times = np.concatenate([each["times"] for each in told])
    yield {
        "clients": CLIENTS,
        "seconds": options.seconds,
        "requests": len(times),
        "requests_per_second": round(len(times) / options.seconds, 1),
        "errors": sum(each["errors"] for each in told),
    } | quantiles(times)


CLIENTS = 8
CLIENT = """
import json, sys, time
from http.client import HTTPConnection
from urllib.parse import urlsplit
address, seconds, *names = sys.argv[1:]
connection = HTTPConnection(urlsplit(address).netloc, timeout=60)
times, errors, number = [], 0, 0
end = time.perf_counter() + float(seconds)
while (start := time.perf_counter()) < end:
    connection.request("GET", f"/nodes/{names[number % len(names)]}?explain=false")
    answer = connection.getresponse()
    answer.read()
    times.append(time.perf_counter() - start)
    errors += answer.status != 200
    number += 1
print(json.dumps({"times": times, "errors": errors}))
"""
"""A client that imports little, so that what it costs is its requests."""


def measure_new(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the latency of predictions of one new node on a large model."""
    generator = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder) / "model"
        large_model(model, options.nodes)
        with service(model) as address:
            client = Client(address)
            times = []
            for number in range(options.requests):
                ends = generator.integers(0, options.nodes, 5).tolist()
                edges = [{"source": "new", "target": str(end)} for end in ends]
                cells = {f"x{at}": float(generator.normal()) for at in range(COLUMNS)}
                body = {"nodes": [{"id": "new"} | cells], "edges": edges}
                start = time.perf_counter()
                client.ask("/predict", body)
                # The first requests load what later ones use.
                if number >= WARM_UP:
                    times.append(time.perf_counter() - start)
    yield {"nodes": options.nodes, "requests": len(times)} | quantiles(np.array(times))


COLUMNS, WARM_UP = 10, 5


def large_model(folder: Path, nodes: int) -> None:
    """Save GRAND+, the default at that size, after one epoch: new nodes cost the same later."""
    draw = np.random.default_rng(1)
    group = draw.integers(0, 4, nodes)
    ends = draw.integers(0, nodes, (2, 5 * nodes))
    known = draw.random(nodes) < 100 / nodes
    columns = {f"x{at}": draw.normal(size=nodes) for at in range(COLUMNS)}
    labels = [f"class {code}" if here else None for code, here in zip(group, known, strict=True)]
    table = pa.table({"id": np.arange(nodes).astype(str)} | columns | {"topic": labels})
    edges = pa.table({key: end.astype(str) for key, end in zip(ENDS, ends, strict=True)})
    tables = read_tables(table, edges, label="topic")
    # Not a fitted walk, which looks at no neighbour where labels are random, as here.
    options = {"walk": "average"}
    classifier = GrandClassifier(method="grand-plus", random_state=0, max_epochs=1, options=options)
    TableModel.fit(tables, classifier, assess=False).save(folder)


def small_model(folder: Path) -> None:
    """Save a model of Cora with 40 labels; how well it is trained does not change what it costs."""
    graph = load_dataset("cora").with_split(None)
    given = draw_labels(graph, np.random.default_rng(FIRST_SEED))
    labels = np.full(graph.num_nodes, -1)
    labels[given] = graph.labels[given]
    fit(graph.with_labels(labels, graph.class_names), 0, folder, assess=False, max_epochs=5)


def measure_page(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the time to the first picture of Cora, and times of frames of 20,000 nodes."""
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "serve"))
    from browser import browser, dress, go

    with tempfile.TemporaryDirectory() as folder, browser() as window:
        dress(window)
        software = window.execute_script(RENDERER)
        small_model(Path(folder) / "cora")
        with service(Path(folder) / "cora") as address:
            wait_for_layout(folder, "cora")
            go(window, address, "graph")
            marked = "return performance.getEntriesByName('graph-drawn')[0].startTime"
            first = window.execute_script(marked) / 1000
        yield {"what": "first picture", "graph": "cora", "seconds": round(first, 3)} | software
        large_model(Path(folder) / "large", DRAWN)
        with service(Path(folder) / "large") as address:
            wait_for_layout(folder, "large")
            go(window, address, "graph", 300)
            frames = np.array(window.execute_async_script(FRAMES, options.frames))
        found = {"what": "frames", "nodes": DRAWN, "frames": len(frames)}
        yield found | {f"p{q}_ms": round(float(np.percentile(frames, q)), 1) for q in (50, 95)}


def wait_for_layout(folder: str, model: str) -> None:
    """Wait until places are computed: once per model, in the background, before a person comes."""
    while not (Path(folder) / f"{model}.explorer" / "layout.npy").exists():
        time.sleep(0.5)


DRAWN = 20_000
RENDERER = """
const context = document.createElement("canvas").getContext("webgl");
const known = context.getExtension("WEBGL_debug_renderer_info");
return { renderer: context.getParameter(known ? known.UNMASKED_RENDERER_WEBGL : context.RENDERER) };
"""
FRAMES = """
const [frames, done] = arguments;
const picture = document.querySelector(".picture");
const keys = ["ArrowLeft", "ArrowUp", "+", "ArrowRight", "ArrowDown", "-"];
const times = [];
let [first, before] = [null, null];
function frame(now) {
  if (before !== null) times.push(now - before);
  first ??= now;
  before = now;
  if (times.length === frames || now - first > 45_000) { done(times); return; }
  picture.dispatchEvent(new KeyboardEvent("keydown", { key: keys[times.length % keys.length] }));
  requestAnimationFrame(frame);
}
requestAnimationFrame(frame);
"""
"""Moves or zooms in every frame, for 45 seconds at most, and takes the times between frames."""


def quantiles(times: np.ndarray) -> dict[str, float]:
    """Return the middle and the slow end of some times, in milliseconds."""
    return {f"p{q}_ms": round(1000 * float(np.percentile(times, q)), 1) for q in (50, 99)}


PARTS = {"load": measure_load, "new": measure_new, "page": measure_page, "next": measure_next}


def read(path: Path) -> list[dict[str, Any]]:
    """Return the results so far."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def print_table(lines: list[dict[str, Any]]) -> None:
    """Print means and standard deviations of next, and 95 % intervals of differences."""
    methods = dict.fromkeys(line["method"] for line in lines if line["part"] == "next")
    if methods:
        print("| method | labels | repeats | accuracy (%) | minus random (95 %) |")
        print("|---|---|---|---|---|")
    for method in methods:
        found = [line for line in lines if line.get("method") == method]
        scores = {key: 100 * np.array([line[key] for line in found]) for key in CHOICES}
        for key, told in CHOICES.items() if len(found) > 1 else ():
            spread = f"{scores[key].mean():.1f} ± {scores[key].std(ddof=1):.1f}"
            row = f"| {method} | {told} | {len(found)} | {spread} |"
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
