"""Views of propagated features, and products with bits, against dense matrices in float64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st

import oracles
from dropnode.methods.grand.fused.kernels import large_graphs, octets, small_graphs, views
from dropnode.methods.grand.fused.kernels.views import Columns, Drop
from oracles import assert_rounded
from packing import assert_adjoint, csr, no_words, packed, random_csr
from rounding import Rounded, lost

# Around one and two blocks of 64, and nowhere near.
SIZES = st.sampled_from([1, 2, 7, 8, 63, 64, 65, 130])
SEEDS = st.integers(0, 2**32)


def by_column(matrix: sp.csr_array) -> Columns:
    """Return features as the kernels take them: entries are numbered row by row."""
    rows, columns = matrix.shape
    row_of = np.repeat(np.arange(rows), np.diff(matrix.indptr))
    order = np.lexsort((row_of, matrix.indices))
    starts = np.searchsorted(matrix.indices[order], np.arange(columns + 1))
    return Columns(
        starts.astype(np.int32),
        row_of[order].astype(np.int32),
        matrix.data[order].astype(np.float32),
        order,
    )


@dataclass
class Dropped:
    """One view: what it drops as kernels take it, and densely."""

    drop: Drop
    nodes_kept: np.ndarray
    entries_kept: np.ndarray
    inputs_kept: np.ndarray

    def before(self, matrix: sp.csr_array) -> np.ndarray:
        """The features that this view propagates, scaled."""
        seen = matrix.astype(np.float64)
        seen.data = seen.data * self.entries_kept
        return self.drop.scale * self.nodes_kept[:, None] * seen.toarray()


def dropped(
    generator: np.random.Generator,
    matrix: sp.csr_array,
    drops_nodes: bool,
    drops_entries: bool,
    drops_inputs: bool,
) -> Dropped:
    nodes, columns = matrix.shape
    nodes_kept = generator.random((1, nodes)) < (0.6 if drops_nodes else 2.0)
    entries_kept = generator.random((1, matrix.nnz)) < (0.6 if drops_entries else 2.0)
    inputs_kept = generator.random((nodes, columns)) < (0.6 if drops_inputs else 2.0)
    drop = Drop(
        packed(nodes_kept) if drops_nodes else no_words(1),
        packed(entries_kept) if drops_entries else no_words(1),
        packed(inputs_kept) if drops_inputs else no_words(nodes),
        scale=generator.uniform(0.5, 2.0),
        boost=generator.uniform(1.0, 3.0),
    )
    return Dropped(drop, nodes_kept[0], entries_kept[0], inputs_kept)


@given(
    SEEDS,
    SIZES,
    SIZES,
    st.sampled_from([0.0, 0.05, 0.5]),
    st.integers(1, 9),
    st.sampled_from([16, 32, 48]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_views_of_a_small_graph(
    seed: int,
    nodes: int,
    columns: int,
    density: float,
    count: int,
    hidden: int,
    drops: tuple[bool, bool, bool],
) -> None:
    generator = np.random.default_rng(seed)
    matrix = random_csr(generator, nodes, columns, density)
    # Not symmetric: panels are those of the transpose.
    mixed = generator.standard_normal((nodes, nodes)).astype(np.float32)
    weight = generator.standard_normal((columns, hidden)).astype(np.float32)
    drawn = [dropped(generator, matrix, *drops) for _ in range(count)]
    blocks = views.blocks(nodes)
    assert blocks == -(-nodes // 64)
    out = np.full((count, blocks, columns, 64), np.nan, dtype=np.float32)
    product = np.full((nodes, count * hidden), np.nan, dtype=np.float32)
    panels = small_graphs.dense_panels(mixed.T)
    masks = [view.drop for view in drawn]
    small_graphs.small_views(by_column(matrix), panels, masks, weight, out, product)
    by_node = out.transpose(0, 1, 3, 2).reshape(count, -1, columns)
    assert not by_node[:, nodes:].any(), "nodes beyond the last are zero"
    for view, result, mapped in zip(
        drawn, by_node[:, :nodes], np.split(product, count, axis=1), strict=True
    ):
        before = view.before(matrix)
        factors = view.drop.boost * view.inputs_kept
        expected = mixed.astype(np.float64) @ before * factors
        magnitude = np.abs(mixed.astype(np.float64)) @ np.abs(before) * factors
        assert_rounded(result, expected, magnitude, nodes + 3)
        sizes = magnitude @ np.abs(weight)
        assert_rounded(mapped, expected @ weight, sizes, nodes + columns + 3)
    gradient = generator.standard_normal(product.shape).astype(np.float32)
    back = small_graphs.small_adjoint(out, gradient)
    sizes = np.concatenate(list(np.abs(by_node[:, :nodes]) @ np.abs(weight)), axis=1)
    operations = max(columns, count * nodes) + 2
    assert_adjoint(product, gradient, weight, back, sizes, operations)


@given(SEEDS, SIZES, SIZES, st.integers(1, 5), st.sampled_from([16, 32, 48]))
def test_products_with_views_of_a_small_graph(
    seed: int, nodes: int, columns: int, count: int, hidden: int
) -> None:
    generator = np.random.default_rng(seed)
    shape = count, views.blocks(nodes), columns, 64
    made = generator.standard_normal(shape).astype(np.float32)
    gradient = generator.standard_normal((nodes, count * hidden)).astype(np.float32)
    result = small_graphs.small_adjoint(made, gradient)
    by_node = made.transpose(0, 1, 3, 2).reshape(count, -1, columns)[:, :nodes].astype(np.float64)
    parts = np.stack(np.split(gradient, count, axis=1))
    expected = np.einsum("vnf,vnh->fh", by_node, parts)
    magnitude = np.einsum("vnf,vnh->fh", np.abs(by_node), np.abs(parts))
    assert_rounded(result, expected, magnitude, count * nodes + 2)


@pytest.mark.parametrize("nodes", [1, 63, 64, 65, 200])
def test_panels_are_the_matrix_in_blocks_of_64_columns(nodes: int) -> None:
    mixed = np.random.default_rng(nodes).standard_normal((nodes, nodes)).astype(np.float32)
    panels = small_graphs.dense_panels(mixed)
    assert panels.flags.c_contiguous
    side_by_side = np.concatenate(list(panels), axis=1)
    np.testing.assert_array_equal(side_by_side[:, :nodes], mixed)
    assert not side_by_side[:, nodes:].any()


@given(SEEDS, SIZES, SIZES, st.sampled_from([0.0, 0.05, 0.5]), st.booleans())
def test_features_as_panels(
    seed: int, nodes: int, columns: int, density: float, drops_entries: bool
) -> None:
    generator = np.random.default_rng(seed)
    matrix = random_csr(generator, nodes, columns, density)
    view = dropped(generator, matrix, False, drops_entries, False)
    places = generator.permutation(nodes).astype(np.int32)
    panels = large_graphs.feature_panels(by_column(matrix), places, view.drop.entry_words)
    assert panels.shape == (views.blocks(columns), nodes, 64)
    side_by_side = np.concatenate(list(panels), axis=1)
    expected = (view.before(matrix) / view.drop.scale).astype(np.float32)[places]
    np.testing.assert_array_equal(side_by_side[:, :columns], expected)
    assert not side_by_side[:, columns:].any()


@settings(max_examples=120)
@given(
    SEEDS,
    SIZES,
    SIZES,
    st.sampled_from([0.0, 0.05, 0.5]),
    st.sampled_from([0, 1, 2, 5]),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
    st.booleans(),
)
def test_a_view_of_a_large_graph(
    seed: int,
    nodes: int,
    columns: int,
    density: float,
    order: int,
    drops: tuple[bool, bool, bool],
    normalise: bool,
) -> None:
    generator = np.random.default_rng(seed)
    matrix = random_csr(generator, nodes, columns, density)
    operator = random_csr(generator, nodes, nodes, min(1.0, 4 / nodes))
    operator = operator / max(1.0, np.abs(operator).sum(axis=1).max())
    view = dropped(generator, matrix, *drops)
    # Nodes are worked on in an order of their own; masks and results are in that of the graph.
    places = generator.permutation(nodes).astype(np.int32)
    panels = large_graphs.feature_panels(by_column(matrix), places, view.drop.entry_words)
    ordered = csr(sp.csr_array(operator[places][:, places]))
    factors = (view.nodes_kept * view.drop.scale).astype(np.float32)[places]
    out = np.full((nodes, panels.shape[0] * 64), np.nan, dtype=np.float32)
    means, variances = large_graphs.large_view(
        ordered, panels, factors, places, order, view.drop, normalise, out
    )
    hops = Rounded(operator.astype(np.float32).astype(np.float64).toarray())
    # The scale is rounded, and multiplies.
    expected = oracles.propagated(hops, order, Rounded(view.before(matrix), steps=2))
    if normalise:
        mean, variance = expected.mean(axis=0), expected.var(axis=0)
        mean.assert_near(means[:columns], "means")
        variance.assert_near(variances[:columns], "variances")
        expected = (expected - mean) / np.sqrt(variance + 1e-5)
    else:
        assert not means.any()
        assert np.all(variances == 1.0)
    kept = view.drop.boost * view.inputs_kept
    (expected * kept).assert_near(out[:, :columns], "the view")
    assert not out[:, columns:].any(), "columns beyond the last are zero"


def test_a_normalised_view_has_zero_mean_and_unit_variance() -> None:
    """Also where the mean is large: variances are those of centred numbers."""
    generator = np.random.default_rng(0)
    nodes, columns = 3000, 70
    x = (generator.standard_normal((nodes, columns)) + 100.0).astype(np.float32)
    matrix = sp.csr_array(x)
    view = dropped(generator, matrix, False, False, False)
    places = np.arange(nodes, dtype=np.int32)
    panels = large_graphs.feature_panels(by_column(matrix), places, view.drop.entry_words)
    out = np.empty((nodes, 128), dtype=np.float32)
    factors = np.full(nodes, 0.5, dtype=np.float32)
    nothing = csr(sp.csr_array((nodes, nodes), dtype=np.float32))
    means, variances = large_graphs.large_view(
        nothing, panels, factors, places, 0, view.drop, True, out
    )
    exact = 0.5 * x.astype(np.float64)
    mean, variance = exact.mean(axis=0), exact.var(axis=0)
    # Sums of 128 numbers, the sum of those sums, the share of a node, and that of a hop.
    allowed = lost(128 + nodes / 128 + 2)
    np.testing.assert_allclose(means[:columns], mean, rtol=allowed)
    # Squares around a mean that is off by δ are off by δ², and round in the same sums.
    squares = allowed + lost(2) + (allowed * mean) ** 2 / variance
    assert np.all(np.abs(variances[:columns] - variance) <= squares * variance)
    unit = out[:, :columns].astype(np.float64) / view.drop.boost
    assert np.all(np.abs(unit.mean(axis=0)) <= 1.01 * allowed * mean / np.sqrt(variance))
    # Of the variance without the 1e-5 that is added before the root.
    np.testing.assert_allclose(
        unit.var(axis=0), variance / (variance + 1e-5), rtol=squares.max() + lost(5)
    )


NODES = st.sampled_from([1, 7, 64, 65, 511, 513, 1100])
FEATURES = st.sampled_from([1, 7, 8, 9, 63, 64, 65, 130])
HIDDEN = st.sampled_from([16, 32, 48, 64])


@given(SEEDS, NODES, FEATURES, HIDDEN, st.sampled_from([0.0, 0.3, 1.0]))
def test_products_of_bits_and_their_adjoint(
    seed: int, nodes: int, features: int, hidden: int, rate: float
) -> None:
    generator = np.random.default_rng(seed)
    kept = generator.random((nodes, features)) < rate
    words = packed(kept)
    rows = generator.standard_normal((features, hidden)).astype(np.float32)
    start = generator.standard_normal((nodes, hidden)).astype(np.float32)
    out = start.copy()
    octets.add_kept(words, octets.byte_sums(rows), out)
    dense = kept.astype(np.float64)
    expected = start + dense @ rows.astype(np.float64)
    magnitude = np.abs(start) + dense @ np.abs(rows)
    assert_rounded(out, expected, magnitude, 8 + -(-features // 8))

    gradient = generator.standard_normal((nodes, hidden)).astype(np.float32)
    back = octets.sum_kept(words, gradient, features)
    assert back.shape == (features, hidden)
    assert_rounded(back, dense.T @ gradient.astype(np.float64), dense.T @ np.abs(gradient), nodes)

    kept_rows = out.astype(np.float64) - start
    assert_adjoint(kept_rows, gradient, rows, back, magnitude, 8 + max(features, nodes))
