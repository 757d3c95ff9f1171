"""Products of views with masked features, against dense products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.methods.grand.fused.kernels.masked_products import (
    multiply_views,
    multiply_views_adjoint,
)
from oracles import assert_rounded
from packing import (
    assert_adjoint,
    csr,
    no_words,
    numbers,
    packed,
    random_csr,
    untouched,
)

SEEDS = st.integers(0, 2**32)


class Views:
    """Several views of sparse features, with what each drops, drawn from a seed."""

    def __init__(
        self,
        seed: int,
        nodes: int,
        columns: int,
        density: float,
        views: int,
        drops_nodes: bool,
        drops_entries: bool,
    ) -> None:
        generator = np.random.default_rng(seed)
        self.matrix = random_csr(generator, nodes, columns, density)
        self.nodes, self.columns, self.views = nodes, columns, views
        self.scale = 1.7
        kept = generator.random((views, nodes)) < 0.6
        kept_entries = generator.random((views, self.matrix.nnz)) < 0.6
        self.node_words = packed(kept) if drops_nodes else no_words(views)
        self.entry_words = packed(kept_entries) if drops_entries else no_words(views)
        self.seen = []
        for view in range(views):
            masked = self.matrix.astype(np.float64)
            if drops_entries:
                masked.data = masked.data * kept_entries[view]
            rows = kept[view] if drops_nodes else np.ones(nodes)
            self.seen.append(self.scale * rows[:, None] * masked.toarray())

    def forward(self, weights: np.ndarray, index: type = np.int32) -> np.ndarray:
        out = untouched(self.nodes, self.views * weights.shape[2])
        multiply_views(
            csr(self.matrix, index), weights, self.node_words, self.entry_words, self.scale, out
        )
        return out

    def backward(self, gradient: np.ndarray, index: type = np.int32) -> np.ndarray:
        out = untouched(self.views, self.columns, gradient.shape[1] // self.views)
        multiply_views_adjoint(
            csr(self.matrix, index), gradient, self.node_words, self.entry_words, self.scale, out
        )
        return out


drawn_views = st.builds(
    Views,
    SEEDS,
    st.sampled_from([1, 3, 8, 70]),
    st.sampled_from([1, 4, 33]),
    st.sampled_from([0.0, 0.1, 0.7]),
    st.integers(1, 5),
    st.booleans(),
    st.booleans(),
)


@settings(max_examples=120)
@given(drawn_views, st.sampled_from([16, 32, 48, 64, 80, 128]), st.booleans(), SEEDS)
def test_products_of_views(drawn: Views, hidden: int, shared: bool, seed: int) -> None:
    weights = numbers(seed, 1 if shared else drawn.views, drawn.columns, hidden)
    out = drawn.forward(weights)
    for view, seen in enumerate(drawn.seen):
        weight = weights[0 if shared else view].astype(np.float64)
        part = out[:, view * hidden : (view + 1) * hidden]
        assert_rounded(part, seen @ weight, np.abs(seen) @ np.abs(weight), drawn.columns + 3)


@settings(max_examples=120)
@given(drawn_views, st.sampled_from([16, 32, 48, 64, 80, 128]), SEEDS)
def test_adjoint_products_of_views(drawn: Views, hidden: int, seed: int) -> None:
    gradient = numbers(seed, drawn.nodes, drawn.views * hidden)
    out = drawn.backward(gradient)
    for view, seen in enumerate(drawn.seen):
        given_part = gradient[:, view * hidden : (view + 1) * hidden].astype(np.float64)
        magnitude = np.abs(seen).T @ np.abs(given_part)
        assert_rounded(out[view], seen.T @ given_part, magnitude, drawn.nodes + 3)
    weights = numbers(seed + 1, drawn.views, drawn.columns, hidden)
    sizes = np.concatenate(
        [np.abs(seen) @ np.abs(each) for seen, each in zip(drawn.seen, weights, strict=True)],
        axis=1,
    )
    operations = max(drawn.columns, drawn.nodes) + 3
    assert_adjoint(drawn.forward(weights), gradient, weights, out, sizes, operations)


@pytest.mark.parametrize("direction", [Views.forward, Views.backward])
def test_products_of_views_with_wide_indices_have_the_same_bits(
    direction: Callable[..., np.ndarray],
) -> None:
    drawn = Views(6, 20, 10, 0.4, 3, True, True)
    given_part = numbers(7, 3, 10, 32) if direction is Views.forward else numbers(7, 20, 96)
    narrow, wide = (direction(drawn, given_part, index) for index in (np.int32, np.int64))
    np.testing.assert_array_equal(narrow, wide)
