"""A small model with awkward names, and a service in this process that serves it."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import uvicorn
from starlette.testclient import TestClient

from dropnode import GrandClassifier, TableModel, read_tables
from dropnode.serve.app import create_app
from dropnode.serve.explorer import Explorer
from dropnode.serve.guard import Guard
from dropnode.serve.server import listen

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


class Service:
    """A service in a thread of this process, and where it is."""

    def __init__(self, explorer: Explorer, token: str | None = None) -> None:
        self.explorer = explorer
        self._listener = listen("127.0.0.1", 0, None)
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}/"
        config = uvicorn.Config(
            Guard(create_app(explorer), set(), token), log_level="warning", lifespan="off"
        )
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=[[self._listener]])
        self._thread.start()

    def end(self) -> None:
        self._server.should_exit = True
        self._thread.join()
        self._listener.close()
        self.explorer.close()


@contextmanager
def service(saved: Path, place: Path) -> Iterator[Service]:
    shutil.copytree(saved, place / "model")
    shutil.copy(saved.parent / "nodes.csv", place / "nodes.csv")
    found = Service(Explorer(place / "model", place / "nodes.csv"))
    yield found
    found.end()


@pytest.fixture(scope="module")
def shared(saved: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service to which nothing is told."""
    with service(saved, tmp_path_factory.mktemp("shared")) as found:
        yield found


@pytest.fixture
def own(saved: Path, tmp_path: Path) -> Iterator[Service]:
    """A service of one test."""
    with service(saved, tmp_path) as found:
        yield found


@pytest.fixture(scope="module")
def downloads(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("downloads")


@pytest.fixture(scope="module")
def started(downloads: Path) -> Iterator[Any]:
    # Imported here, because other tests need no browser.
    from browser import browser

    with browser(downloads) as found:
        yield found


@pytest.fixture
def window(started: Any) -> Any:
    """A browser without traces of the test before."""
    from browser import asked, complaints, dress

    started.get("about:blank")
    dress(started)
    complaints(started)
    asked(started)
    return started
