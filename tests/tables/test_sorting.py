"""Edges sorted outside of memory: the same matrix, and the same repairs, as in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.graph.edges import to_adjacency
from dropnode.tables import sorting
from dropnode.tables.sorting import EdgeSorter

settings.register_profile("sorting", max_examples=30, deadline=None)


def sorted_outside(
    folder: Path, nodes: int, blocks: list[tuple[np.ndarray, np.ndarray, np.ndarray]]
) -> tuple[dict[str, np.ndarray], list[str], list[float]]:
    """Return the arrays that a sorter writes, its repairs, and the progress it told."""
    unsorted, out = folder / "unsorted", folder / "out"
    unsorted.mkdir()
    out.mkdir()
    sorter, told = EdgeSorter(unsorted, nodes), []
    for block in blocks:
        sorter.add(block)
    entries = sorter.write(out, told.append)
    arrays = {
        name: np.fromfile(out / f"{name}.bin", entry["type"]) for name, entry in entries.items()
    }
    return arrays, sorter.repairs(), told


@given(
    nodes=st.integers(1, 200),
    seed=st.integers(0, 2**32 - 1),
    count=st.integers(0, 400),
    weighted=st.booleans(),
)
@settings(settings.get_profile("sorting"))
def test_any_edges_give_the_matrix_and_repairs_that_they_give_in_memory(
    tmp_path_factory: pytest.TempPathFactory, nodes: int, seed: int, count: int, weighted: bool
) -> None:
    rng = np.random.default_rng(seed)
    source, target = rng.integers(0, min(nodes, 1 + count // 3), (2, count))
    weights = rng.integers(0, 4, count) if weighted else np.ones(count)
    links = source, target, weights.astype(np.float32)
    blocks = [tuple(part[at::3] for part in links) for at in range(3)]
    arrays, repairs, _ = sorted_outside(tmp_path_factory.mktemp("sorted"), nodes, blocks)
    expected, notes = to_adjacency(links, np.arange(nodes))
    np.testing.assert_array_equal(arrays["starts"], expected.indptr)
    np.testing.assert_array_equal(arrays["neighbours"], expected.indices)
    np.testing.assert_array_equal(arrays["weights"], expected.data)
    assert tuple(repairs) == notes


def test_progress_ends_at_the_whole_and_never_goes_back(tmp_path: Path) -> None:
    ends = np.arange(99)
    links = ends, ends + 1, np.ones(99, np.float32)
    _, _, told = sorted_outside(tmp_path, 100, [links])
    assert told == sorted(told)
    assert (len(told), told[-1]) == (sorting.PARTS, 1.0)
