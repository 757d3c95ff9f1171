"""Temperatures and sets of held-out predictions keep what they promise."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import softmax

from dropnode.assessment import HeldOut, Trust, draw_held_out, measures, share_interval

CLASSES = ("a", "b", "c")


def drawn(count: int, sharpness: float, seed: int = 0, folds: int = 5) -> HeldOut:
    """Labels drawn from known probabilities, and logits that are too sure of them."""
    generator = np.random.default_rng(seed)
    logits = generator.normal(0, 1.5, (count, 3))
    shares = softmax(logits, axis=1)
    labels = (generator.random(count)[:, None] > shares.cumsum(axis=1)).sum(axis=1)
    return HeldOut(np.arange(count), labels, sharpness * logits, np.arange(count) % folds)


def test_the_temperature_undoes_what_made_logits_too_sure() -> None:
    held = drawn(4000, sharpness=3.0)
    trust = Trust.learn(held)
    assert trust.temperature == pytest.approx(3.0, rel=0.1)
    found = measures(held, CLASSES)
    before, after = found["before_calibration"], found["after_calibration"]
    assert before["ece"] > 0.15
    assert after["ece"] < after["ece_by_chance"] + 0.01
    assert after["brier"] < before["brier"]
    assert found["sets"]["coverage"] == pytest.approx(0.9, abs=0.02)


def test_sets_of_new_nodes_hold_the_true_class_as_often_as_promised() -> None:
    trust, new = Trust.learn(drawn(2000, 3.0)), drawn(20_000, 3.0, seed=1)
    shares = trust.probabilities(new.logits)
    sets = trust.sets(shares)
    assert sets[np.arange(len(sets)), new.labels].mean() == pytest.approx(0.9, abs=0.025)
    assert sets[np.arange(len(sets)), shares.argmax(axis=1)].all()
    assert sets.sum(axis=1).min() == 1


def test_with_too_few_labels_a_set_has_all_classes() -> None:
    trust = Trust.learn(drawn(5, 1.0))
    assert trust.quantile == 1.0
    assert trust.sets(np.array([[0.98, 0.01, 0.01]])).all()


def test_no_label_judges_itself() -> None:
    """A fold of other labels changes the temperature of the other folds, but not its own."""
    held = drawn(200, 2.0)
    own = held.fold == 0
    changed = np.where(own, (held.labels + 1) % 3, held.labels)
    others = HeldOut(held.nodes[~own], held.labels[~own], held.logits[~own], held.fold[~own])
    expected = Trust.learn(others).probabilities(held.logits[own])
    other = HeldOut(held.nodes, changed, held.logits, held.fold)
    from dropnode.assessment.measures import _cross_fitted

    for each in (held, other):
        shares, _ = _cross_fitted(each)
        assert shares is not None
        np.testing.assert_array_equal(shares[own], expected)


def test_one_fold_cannot_judge_what_it_taught() -> None:
    found = measures(drawn(50, 1.0, folds=1), CLASSES)
    assert "sets" not in found
    assert "after_calibration" not in found
    assert "one model was held out" in draw_held_out(found).axes[1].get_title()


def test_a_record_is_read_back() -> None:
    trust = Trust.learn(drawn(100, 2.0))
    assert Trust.from_dict(trust.as_dict()) == trust


def test_wilsons_interval() -> None:
    z, hits, of = 1.959963984540054, 7, 20
    share = hits / of
    middle = (share + z**2 / (2 * of)) / (1 + z**2 / of)
    half = z / (1 + z**2 / of) * np.sqrt(share * (1 - share) / of + z**2 / (4 * of**2))
    assert share_interval(hits, of) == pytest.approx((middle - half, middle + half))
