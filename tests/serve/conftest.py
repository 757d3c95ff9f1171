"""A small model with awkward names, and a service in this process that serves it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from starlette.testclient import TestClient

from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard

MARKUP = '<img src=x onerror="window.hacked=1">'
CLASSES = ("<script>window.hacked=1</script>", "mate")
ODD = (MARKUP, "..", "a/b?c#d", "..%2e", "/x", "with space")
COUNT = 40


def people() -> tuple[pa.Table, pa.Table]:
    """Two groups who know people of their group, with ids that are markup and parts of paths."""
    generator = np.random.default_rng(0)
    group = np.arange(COUNT) % 2
    pairs = generator.integers(0, COUNT, (5 * COUNT, 2))
    same = group[pairs[:, 0]] == group[pairs[:, 1]]
    pairs = pairs[same | (generator.random(len(pairs)) < 0.15)]
    names = np.array([*ODD, *(f"n{at}" for at in range(len(ODD), COUNT))])
    # One label is wrong, so that there is something to find.
    labels = [CLASSES[g] if at < 12 else None for at, g in enumerate(group)]
    labels[11] = CLASSES[0]
    nodes = {
        "id": names.tolist(),
        "age": (20 + 30 * group + generator.normal(0, 5, COUNT)).round(1).tolist(),
        "note": [f"{MARKUP} {at}" for at in range(COUNT)],
        "drinks": labels,
    }
    ends = [names[column].tolist() for column in pairs.T]
    return pa.table(nodes), pa.table({"source": ends[0], "target": ends[1]})


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model; it is not to be changed."""
    folder = tmp_path_factory.mktemp("served")
    nodes, edges = people()
    tables = read_tables(nodes, edges, label="drinks", drop=["note"])
    classifier = GrandClassifier(random_state=0, max_epochs=20, order=2)
    TableModel.fit(tables, classifier).save(folder / "model")
    import pyarrow.csv

    pyarrow.csv.write_csv(nodes, folder / "nodes.csv")
    return folder / "model"


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """A copy of the model, with the table beside it."""
    shutil.copytree(saved, tmp_path / "model")
    shutil.copy(saved.parent / "nodes.csv", tmp_path / "nodes.csv")
    return tmp_path / "model"


@pytest.fixture
def explorer(folder: Path) -> Iterator[Explorer]:
    """The state of a service."""
    found = Explorer(folder, folder.parent / "nodes.csv")
    yield found
    found.close()


@pytest.fixture
def client(explorer: Explorer) -> TestClient:
    """A client of a service; an error inside the service is raised here."""
    return TestClient(Guard(create_app(explorer), {"testserver"}))
