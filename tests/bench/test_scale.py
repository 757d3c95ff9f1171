"""Whole jobs on growing graphs: the graphs are as described, and the figures are told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dropnode import cli
from dropnode.bench import heavy_tails, scale, suite
from dropnode.bench.picture import save_picture
from dropnode.bench.report import print_report
from dropnode.bench.sign import sign_predictions
from dropnode.data.splits import per_class_split
from dropnode.graph import Graph
from dropnode.graph.mapped import open_mapped


@pytest.fixture(scope="module")
def graph(tmp_path_factory: pytest.TempPathFactory) -> Graph:
    folder = tmp_path_factory.mktemp("scale") / "graph"
    heavy_tails.write_graph(folder, 20_000)
    return open_mapped(folder)


def test_graphs_have_the_described_degrees_homophily_and_signal(graph: Graph) -> None:
    degrees = np.diff(graph.adjacency.indptr)
    # Some edges are drawn twice, or from a node to itself.
    assert 18 < degrees.mean() <= 20
    # In proportion to rank^-½, of which the mean is 2 / √nodes: a few times as much for the first.
    expected = 10 / np.sqrt((np.arange(1000, 2000) + 0.5) / 20_000)
    assert degrees[1000:2000].mean() == pytest.approx(expected.mean(), rel=0.05)
    rows, columns = graph.adjacency.nonzero()
    same = (graph.labels[rows] == graph.labels[columns]).mean()
    by_chance = (1 - heavy_tails.HOMOPHILY) / heavy_tails.CLASSES
    assert same == pytest.approx(heavy_tails.HOMOPHILY + by_chance, abs=0.03)
    centres = np.stack([graph.features[graph.labels == c].mean(axis=0) for c in range(18)])
    lengths = np.linalg.norm(centres, axis=1)
    assert lengths.mean() == pytest.approx(heavy_tails.SPREAD, rel=0.2)


def test_the_same_seed_gives_the_same_graph(tmp_path: Path) -> None:
    made = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        heavy_tails.write_graph(tmp_path / name, 500, seed)
        made.append(open_mapped(tmp_path / name).fingerprint())
    assert made[0] == made[1] != made[2]


def test_sign_learns_more_than_chance(graph: Graph) -> None:
    split = per_class_split(graph.labels, 20, 30, seed=0)
    predicted = sign_predictions(graph, split)
    assert predicted.shape == (20_000,)
    assert (predicted[split.test] == graph.labels[split.test]).mean() > 3 / 18


def row(method: str, nodes: int) -> dict[str, Any]:
    """Return figures of a job that takes time and memory in proportion to the nodes."""
    return {
        "method": method,
        "nodes": nodes,
        "edges": 10 * nodes,
        "seconds": nodes / 1000,
        "cpu_seconds": nodes / 2000,
        "peak_mb": 400 + nodes / 100,
        "working_mb": nodes / 100,
        "test_accuracy": 61.25,
    }


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Replace measurements by made-up figures, and return what was asked for."""
    asked: list[tuple[Any, ...]] = []

    def answer(module: str, method: str, folder: Path, *, what: str) -> dict[str, Any]:
        asked.append((module, method, open_mapped(folder).num_nodes))
        return row(method, asked[-1][2])

    monkeypatch.setattr(scale, "measured_apart", answer)
    return asked


def test_every_size_is_measured_and_other_methods_at_one(measured: list[tuple[Any, ...]]) -> None:
    rows, exponents = scale.measure([400, 4000], others_at=1000)
    expected = [("grand-plus", 400), *((name, 1000) for name in ("grand-plus", *scale.OTHERS))]
    assert [each[1:] for each in measured] == [*expected, ("grand-plus", 4000)]
    assert len(rows) == len(measured)
    assert exponents == pytest.approx({"seconds": 1, "cpu_seconds": 1, "working_mb": 1})


def test_one_command_tells_and_draws_it(
    measured: list[tuple[Any, ...]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(scale, "SIZES", (400, 4000))
    monkeypatch.setattr(scale.measure, "__defaults__", (1000, *scale.measure.__defaults__[1:]))
    assert cli._run(["bench", "--only", "scale", "--json", "--out", str(tmp_path / "out")]) == 0
    result = json.loads(capsys.readouterr().out)
    assert set(result) == {"machine", "scale", "scale_exponents", "seconds"}
    assert (tmp_path / "out/bench.png").read_bytes().startswith(b"\x89PNG")
    print_report(result, Console(width=140, highlight=False))
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["sgc", "1,000", "10,000", "1.00", "0.500", "410", "10", "61.2"] in lines
    assert ["exponent", "1.00", "1.00", "1.00"] in lines


def test_the_picture_has_a_column_for_every_part(tmp_path: Path) -> None:
    rows = [row("grand-plus", nodes) for nodes in (1000, 10_000)]
    powers = {"seconds": 1.0, "cpu_seconds": 1.0, "working_mb": 1.0}
    alone = {"machine": suite.machine(), "scale": rows, "scale_exponents": powers}
    assert save_picture(tmp_path / "alone.png", alone)
    grown = [{"nodes": n, "epoch_ms": n, "peak_mb": n, "working_mb": n} for n in (10, 100)]
    both = {"scaling": grown, "exponents": {"epoch": 1.0, "peak": 1.0, "working": 1.0}}
    assert save_picture(tmp_path / "both.png", alone | both)
    widths = [
        int.from_bytes((tmp_path / f"{name}.png").read_bytes()[16:20], "big")
        for name in ("alone", "both")
    ]
    assert widths[1] == pytest.approx(2 * widths[0], abs=2)


@pytest.mark.slow
def test_a_small_job_is_measured_in_its_own_process() -> None:
    rows, _ = scale.measure([2000, 4000], others_at=3000)
    assert {each["method"] for each in rows} == {"grand-plus", *scale.OTHERS}
    for each in rows:
        assert each["seconds"] > 0
        assert each["peak_mb"] > each["working_mb"]
        assert each["test_accuracy"] > 100 / 18
