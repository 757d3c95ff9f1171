"""Splits have the promised sizes, never share a node, and depend on the seed alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data.splits import (
    label_rate_split,
    per_class_split,
    public_split,
    stratified_holdout,
)
from dropnode.errors import GraphError
from dropnode.graph import Split

seeds = st.integers(0, 2**32 - 1)


@st.composite
def labelled(draw: st.DrawFn, smallest: int = 1) -> np.ndarray:
    """Draw shuffled labels of a few classes, some of them unknown."""
    sizes = draw(st.lists(st.integers(smallest, smallest + 30), min_size=1, max_size=5))
    unknown = draw(st.integers(0, 10))
    codes = np.repeat(np.arange(-1, len(sizes)), [unknown, *sizes])
    return np.random.default_rng(draw(seeds)).permutation(codes)


def parts(split: Split) -> list[np.ndarray]:
    return [split.train, split.val, split.test]


@given(labelled(smallest=5), st.integers(1, 3), st.integers(0, 2), seeds)
def test_per_class_counts_are_exact_and_the_rest_tests(
    labels: np.ndarray, train: int, val: int, seed: int
) -> None:
    split = per_class_split(labels, train, val, seed)
    classes = labels.max() + 1
    assert np.bincount(labels[split.train], minlength=classes).tolist() == [train] * classes
    assert np.bincount(labels[split.val], minlength=classes).tolist() == [val] * classes
    together = np.concatenate(parts(split))
    assert np.array_equal(np.sort(together), np.flatnonzero(labels >= 0))
    for ours, again in zip(
        parts(split), parts(per_class_split(labels, train, val, seed)), strict=True
    ):
        assert np.array_equal(ours, again)


def test_seeds_draw_different_splits_and_every_node_has_its_turn() -> None:
    labels = np.repeat([0, 1], 10)
    drawn = np.zeros(20)
    for seed in range(400):
        drawn[per_class_split(labels, 2, 3, seed).train] += 1
    # Each node trains with probability 1/5: 80 of 400, standard deviation 8.
    assert drawn.sum() == 1600
    assert np.abs(drawn - 80).max() < 40


def test_a_class_too_small_is_named_with_its_count() -> None:
    labels = np.array([0] * 60 + [1] * 49)
    with pytest.raises(GraphError, match=r"class 1 has 49 labelled nodes, but 20 .* 30"):
        per_class_split(labels)


@given(seeds, st.sampled_from([0.001, 0.01, 0.03, 0.05]))
def test_a_label_rate_gives_its_share_of_nodes_and_every_class(seed: int, rate: float) -> None:
    labels = np.repeat([-1, 0, 1, 2], [60, 40, 700, 2200])
    split = label_rate_split(labels, rate, seed)
    assert len(split.train) == max(3, round(rate * 3000))
    assert set(labels[split.train]) == {0, 1, 2}
    assert (len(split.val), len(split.test)) == (500, 1000)
    together = np.concatenate(parts(split))
    assert len(np.unique(together)) == len(together)
    assert (labels[together] >= 0).all()
    assert np.array_equal(split.train, label_rate_split(labels, rate, seed).train)


@given(seeds, st.floats(0.001, 0.03))
def test_equal_classes_differ_by_one_training_node_at_most(seed: int, rate: float) -> None:
    labels = np.repeat([-1, 0, 1, 2], [60, 40, 700, 2200])
    split = label_rate_split(labels, rate, seed, classes="equal")
    counts = np.bincount(labels[split.train])
    assert counts.sum() == max(3, round(rate * 3000))
    assert np.ptp(counts) <= 1
    assert (len(split.val), len(split.test)) == (500, 1000)
    together = np.concatenate(parts(split))
    assert len(np.unique(together)) == len(together)
    assert split.name == f"label rate {rate:g}, equal classes, seed {seed}"


def test_equal_classes_that_a_class_is_too_small_for_are_an_error() -> None:
    labels = np.repeat([0, 1, 2], [40, 700, 2200])
    with pytest.raises(GraphError, match="147 training nodes in equal classes need 49 of each"):
        label_rate_split(labels, 0.05, classes="equal")
    with pytest.raises(GraphError, match="classes 'even'; expected one of proportional, equal"):
        label_rate_split(labels, 0.05, classes="even")


@pytest.mark.parametrize("classes", ["proportional", "equal"])
def test_a_label_rate_gives_every_node_its_turn_in_every_part(classes: str) -> None:
    labels = np.repeat([0, 1], 10)
    drawn = np.zeros((3, 20))
    larger = 0
    for seed in range(400):
        # An odd number for equal classes: one of the two has a node more.
        rate = 0.2 if classes == "proportional" else 0.25
        split = label_rate_split(labels, rate, seed, num_val=5, num_test=5, classes=classes)
        larger += int(np.diff(np.bincount(labels[split.train]))[0])
        for part, counts in zip(parts(split), drawn, strict=True):
            counts[part] += 1
    # Four or five of twenty train, 80 or 100 of 400. (One of ten is the first of its class, and two
    # of the other eighteen come to it.) Five of twenty validate, and five test: 100 of 400. The
    # deviations are 8 and 8.7.
    assert np.abs(drawn[0] - 400 * rate).max() < 44
    assert np.abs(drawn[1:] - 100).max() < 44
    # The larger class is either one; a hundred are five deviations of so many coins.
    assert abs(larger) < 100


def test_a_label_rate_that_leaves_too_few_nodes_says_how_many_there_are() -> None:
    labels = np.repeat([0, 1, -1], [700, 800, 100])
    with pytest.raises(GraphError, match=r"needs 32 training, 500 .* 1,000 .* only 1,500 nodes"):
        label_rate_split(labels, 0.02)
    with pytest.raises(GraphError, match="label rate 5; expected a fraction"):
        label_rate_split(np.zeros(10, int), 5)


@given(labelled(), st.floats(0.01, 0.99), seeds)
def test_a_holdout_takes_from_every_class_that_can_spare_and_empties_none(
    labels: np.ndarray, fraction: float, seed: int
) -> None:
    counts = np.bincount(labels[labels >= 0])
    if counts.max() < 2:
        with pytest.raises(GraphError, match="has two labels"):
            stratified_holdout(labels, fraction, seed)
        return
    kept, held = stratified_holdout(labels, fraction, seed)
    assert np.array_equal(np.sort(np.concatenate([kept, held])), np.flatnonzero(labels >= 0))
    taken = np.bincount(labels[held], minlength=len(counts))
    assert ((taken >= 1) == (counts >= 2)).all()
    assert (taken < counts).all()
    wanted = fraction * counts
    assert (
        np.abs(taken - wanted) <= np.maximum(0.5, np.maximum(1 - wanted, wanted - counts + 1))
    ).all()


@pytest.mark.parametrize("labels", [np.full(5, -1), np.empty(0, int)])
def test_without_labels_there_is_no_split(labels: np.ndarray) -> None:
    for draw in (
        lambda: per_class_split(labels, 1, 1),
        lambda: label_rate_split(labels, 0.1),
        lambda: stratified_holdout(labels, 0.5),
    ):
        with pytest.raises(GraphError, match="no node has a label"):
            draw()


def test_the_public_split_is_first_next_and_listed() -> None:
    split = public_split(140, np.array([1709, 1708]))
    assert split.train.tolist() == list(range(140))
    assert split.val.tolist() == list(range(140, 640))
    assert split.test.tolist() == [1708, 1709]
    assert split.name == "public"
