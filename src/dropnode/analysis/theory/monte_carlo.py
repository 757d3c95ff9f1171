"""Expected losses by Monte Carlo, for perturbations of any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import expit

from dropnode.analysis.theory.closed_forms import (
    CELLS,
    LinearGrand,
    Terms,
    consistency_terms,
    derivatives,
    moments,
    supervised_terms,
)
from dropnode.errors import ConfigError
from dropnode.ops.randomness import Mask, Stream

LEAST_DRAWS = 16
"""Draws without which nothing can be said about the noise."""


@dataclass(frozen=True, eq=False)
class Estimates:
    """A loss by its closed form and by Monte Carlo, for each size of the perturbation.

    Attributes
    ----------
    sizes : ndarray
        t.
    closed_form : ndarray
        t²R.
    mean, standard_error : ndarray
        The average loss over the draws.
    error, error_standard_error : ndarray
        The expected loss minus the closed form, with far less noise than ``mean`` has: the noise
        of each draw's terms of second and third order, whose means are known, is removed.
    """

    sizes: np.ndarray
    closed_form: np.ndarray
    mean: np.ndarray
    standard_error: np.ndarray
    error: np.ndarray
    error_standard_error: np.ndarray


def expected_consistency_loss(
    model: LinearGrand, sizes: Sequence[float], draws: int, seed: int = 0
) -> Estimates:
    """Estimate E[L_con] from ``draws`` pairs of augmentations; L_con = ½ Σ_i (z̃_i - z̃'_i)²."""
    loss = consistency(model.logits(), moments(model))
    return estimate(model, [loss], sizes, draws, seed)[0]


def expected_supervised_excess(
    model: LinearGrand, labelled: np.ndarray, sizes: Sequence[float], draws: int, seed: int = 0
) -> Estimates:
    """Estimate E[L_sup] - L_org from ``draws`` pairs of augmentations.

    The labels themselves do not matter: they multiply p alone, which has a mean of zero. All that
    is linear in p is left out of every draw, because it would only add noise.
    """
    loss = supervised(model.logits(), moments(model, labelled), labelled)
    return estimate(model, [loss], sizes, draws, seed)[0]


@dataclass(frozen=True, eq=False)
class Loss:
    """A loss over some nodes, as a function of what a draw adds to their logits.

    Attributes
    ----------
    rows : ndarray
        The nodes.
    terms : Terms
        The first terms of its expectation, per node.
    value : callable
        From p (rows, draws, 2) to the loss of each draw.
    second, third : callable
        The same for its terms of second and third order in p.
    """

    rows: np.ndarray
    terms: Terms
    value: Callable[[np.ndarray], np.ndarray]
    second: Callable[[np.ndarray], np.ndarray]
    third: Callable[[np.ndarray], np.ndarray]


def consistency(logits: np.ndarray, expected: Terms) -> Loss:
    """Return L_con."""
    z = expit(logits)[:, None, None]
    slope, bend, _ = (each[:, None] for each in derivatives(logits))

    def value(p: np.ndarray) -> np.ndarray:
        grown = _grown(z, p)
        moved = (1 - z) * grown / (1 + grown)
        return np.square(moved[..., 0] - moved[..., 1]).sum(axis=0) / 2

    def second(p: np.ndarray) -> np.ndarray:
        return np.square(slope * (p[..., 0] - p[..., 1])).sum(axis=0) / 2

    def third(p: np.ndarray) -> np.ndarray:
        one, other = p[..., 0], p[..., 1]
        return (slope * bend * np.square(one - other) * (one + other)).sum(axis=0) / 2

    terms = consistency_terms(logits, expected)
    return Loss(np.arange(len(logits)), terms, value, second, third)


def supervised(logits: np.ndarray, expected: Terms, labelled: np.ndarray) -> Loss:
    """Return L_sup - L_org without what is linear in p, averaged over the two augmentations.

    ``logits`` are those of all nodes, ``expected`` the moments of the labelled ones.
    """
    logits = logits[labelled]
    z = expit(logits)[:, None, None]
    slope, bend, _ = (each[:, None, None] for each in derivatives(logits))

    def value(p: np.ndarray) -> np.ndarray:
        return (np.log1p(_grown(z, p)) - z * p).sum(axis=0).mean(axis=1)

    def second(p: np.ndarray) -> np.ndarray:
        return (slope * p**2).sum(axis=0).mean(axis=1) / 2

    def third(p: np.ndarray) -> np.ndarray:
        return (bend * p**3).sum(axis=0).mean(axis=1) / 6

    terms = supervised_terms(logits, expected)
    return Loss(np.asarray(labelled), terms, value, second, third)


def estimate(
    model: LinearGrand, losses: Sequence[Loss], sizes: Sequence[float], draws: int, seed: int
) -> list[Estimates]:
    """Estimate the expectation of losses, all of them and all sizes from the same draws."""
    if draws < LEAST_DRAWS:
        raise ConfigError(f"draws is {draws}; expected at least {LEAST_DRAWS}")
    t = np.asarray(sizes, dtype=np.float64)
    if not (t > 0).all():
        raise ConfigError(f"a size is {t.min():g}; expected numbers above 0")
    values = np.empty((len(losses), len(t), draws))
    known = np.empty((len(losses), 2, draws))
    done = 0
    for everywhere in _perturbations(model, draws, seed):
        at = slice(done, done + everywhere.shape[1])
        done = at.stop
        for loss, value, term in zip(losses, values, known, strict=True):
            p = everywhere[loss.rows]
            term[0, at], term[1, at] = loss.second(p), loss.third(p)
            for number, size in enumerate(t):
                value[number, at] = loss.value(size * p)
    return [
        _estimates(t, value, term, loss.terms)
        for loss, value, term in zip(losses, values, known, strict=True)
    ]


def _perturbations(model: LinearGrand, draws: int, seed: int) -> Iterator[np.ndarray]:
    """Yield p at t = 1 for blocks of draws: (nodes, draws, 2 augmentations)."""
    units = model.units()
    keep = 1.0 - model.drop_rate
    width = max(1, CELLS // (2 * max(units.shape)))
    for first in range(0, draws, width):
        numbers = range(first, min(first + width, draws))
        noise = np.empty((units.shape[1], len(numbers), 2))
        for column, draw in enumerate(numbers):
            stream = Stream(seed).at("theory", model.kind, draw)
            masks = Mask.draw(stream, 2, units.shape[1], model.drop_rate)
            noise[:, column] = masks.array().T / keep - 1.0
        moved = model.propagate(units @ noise.reshape(units.shape[1], 2 * len(numbers)))
        yield moved.reshape(model.nodes, len(numbers), 2)


def _grown(z: np.ndarray, p: np.ndarray) -> np.ndarray:
    """Return z·(e^p - 1), from which differences keep all digits however small p is."""
    # Where e^p would overflow, the sigmoid has long been 1.
    grown: np.ndarray = z * np.expm1(np.minimum(p, 700.0))
    return grown


def _estimates(sizes: np.ndarray, values: np.ndarray, known: np.ndarray, terms: Terms) -> Estimates:
    """Average losses over draws; remove the noise of their known terms from the error."""
    draws = values.shape[1]
    expected = np.array([terms[0].sum(), terms[1].sum()])
    errors = values - sizes[:, None] ** 2 * known[0]
    # What is known has mean zero once its expectation is subtracted, so any multiple of it may go.
    # The best multiples for one half of the draws are fitted to the other half: fitted to the same
    # draws, they would bias the mean.
    noise = (known - expected[:, None]).T
    cleaned = np.empty_like(errors)
    odd = np.arange(draws) % 2 == 1
    for own in (odd, ~odd):
        design = np.column_stack([np.ones((~own).sum()), noise[~own]])
        scale = np.abs(design).max(axis=0)
        scale[scale == 0] = 1.0
        fitted = np.linalg.lstsq(design / scale, errors[:, ~own].T, rcond=None)[0]
        multiples = (fitted / scale[:, None])[1:]
        cleaned[:, own] = errors[:, own] - (noise[own] @ multiples).T
    return Estimates(
        sizes=sizes,
        closed_form=sizes**2 * expected[0],
        mean=values.mean(axis=1),
        standard_error=values.std(axis=1, ddof=1) / np.sqrt(draws),
        error=cleaned.mean(axis=1),
        error_standard_error=cleaned.std(axis=1, ddof=1) / np.sqrt(draws),
    )
