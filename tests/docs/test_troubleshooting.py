"""The messages on the page about troubleshooting are those that the package gives."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pages import ROOT

from dropnode import GrandClassifier, Graph, load_dataset, save_graph
from dropnode.experiments.references import Reference
from dropnode.methods.table import make_method

EYE = np.eye(3)


def join(edges: object, features: object = EYE, labels: object = None) -> Graph:
    return Graph.from_edges(edges, features, labels)


def fit(labels: list[object], graph: object = None, **options: object) -> GrandClassifier:
    return GrandClassifier(max_epochs=2, **options).fit(EYE, labels, graph=graph)


def of_a_small_file(folder: Path) -> Graph:
    save_graph(join([(0, 1)], labels=[0, 1, -1]), folder / "mine.npz")
    return load_dataset(folder / "mine.npz")


def test_every_message_on_the_page_is_given(tmp_path: Path) -> None:
    provoked: list[Callable[[], object]] = [
        lambda: Reference.parse("crora"),
        lambda: make_method("grand", None, changes={"oder": 4}),
        lambda: make_method("grand", None, changes={"order": -1}),
        lambda: make_method("grand", None, changes={"order": 1e18}),
        lambda: make_method("grand", "digits", "official"),
        lambda: join([(0, 1)], [[1, np.nan], [1, 2], [3, 4]]),
        lambda: join([("0", 1)]),
        lambda: join(np.array([[0, 1, 2], [1, 2, 0]])),
        lambda: fit([0, 1, -1], graph=[(0, 1), (1, 2)]),
        lambda: join([(0, 1)], labels=["a", "-1", "b"]),
        lambda: fit([0, -1, -1], validation_fraction=None),
        lambda: fit([0, 1, -1]),
        lambda: of_a_small_file(tmp_path),
        lambda: GrandClassifier(feature_scaling="row").fit(-np.eye(4), [0, 0, 1, 1]),
        lambda: fit([0, 0, 1], validation_fraction=None).predict(np.eye(2)),
    ]
    given = " ".join(map(message_of, provoked))
    page = (ROOT / "docs" / "guide" / "troubleshooting.md").read_text(encoding="utf-8")
    told = re.findall(r"^`(.*)`\n: ", page, re.MULTILINE)
    assert len(told) == len(provoked)
    assert [message for message in told if message not in given] == []


def test_every_variable_that_the_package_reads_is_told() -> None:
    page = (ROOT / "docs" / "reference" / "output.md").read_text(encoding="utf-8")
    for path in (ROOT / "src").rglob("*.py"):
        for name in re.findall(r"DROPNODE_[A-Z]+", path.read_text(encoding="utf-8")):
            assert f"`{name}`" in page, path


def message_of(call: Callable[[], object]) -> str:
    """Return the message of the error or of the warning that a call gives."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        try:
            call()
        except Exception as error:
            return str(error)
    raise AssertionError("no error and no warning")
