"""What Metattack may not change, so that the attack is not noticed.

No node may lose its last edge, and the degrees of the attacked graph have to look as if they came
from the power law of the clean graph's. The second rule is the likelihood-ratio test of Zügner et
al., *Adversarial Attacks on Neural Networks for Graph Data*, KDD 2018.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

SMALLEST_DEGREE = 2
"""Degrees below are left out of the power law."""

CUTOFF = 0.004
"""The largest statistic allowed: chi-square, one degree of freedom, a p-value of 0.95."""


@dataclass(frozen=True)
class Degrees:
    """What the test needs to know of degrees: how many count, and the sum of their logarithms."""

    count: np.ndarray | float
    log_sum: np.ndarray | float

    @classmethod
    def of(cls, degrees: np.ndarray) -> Degrees:
        """Summarise the degrees of a graph."""
        counted = degrees[degrees >= SMALLEST_DEGREE]
        return cls(float(len(counted)), float(np.log(counted).sum()))

    def __add__(self, other: Degrees) -> Degrees:
        return Degrees(self.count + other.count, self.log_sum + other.log_sum)

    def log_likelihood(self) -> np.ndarray:
        """Return the log-likelihood of the power law that fits best.

        The sign of the last term is that of the attack's paper and code, whose test this is; that
        of a power law's likelihood would be negative.
        """
        # Fewer than none stand for two nodes of a degree that only one node has.
        count = np.maximum(self.count, 0)
        log_sum = np.where(count > 0, self.log_sum, 0.0)
        spread = log_sum - count * np.log(SMALLEST_DEGREE - 0.5)
        exponent = 1 + count / np.where(count > 0, spread, 1.0)
        scale = count * np.log(exponent) + count * exponent * np.log(SMALLEST_DEGREE)
        return np.asarray(scale + (exponent + 1) * log_sum)


@dataclass(frozen=True)
class DegreeTest:
    """The likelihood-ratio test against the degrees of a clean graph.

    Examples
    --------
    >>> clean = np.array([1, 2, 2, 3, 4, 8])
    >>> test = DegreeTest(Degrees.of(clean))
    >>> test.allows(clean, change=1).shape
    (5, 5)
    """

    clean: Degrees
    cutoff: float = CUTOFF

    def statistic(self, attacked: Degrees) -> np.ndarray:
        """Return how much better two power laws fit than one, for clean and attacked degrees."""
        apart = self.clean.log_likelihood() + attacked.log_likelihood()
        return np.asarray(2 * apart - 2 * (self.clean + attacked).log_likelihood())

    def allows(self, degrees: np.ndarray, change: int) -> np.ndarray:
        """Return which pairs of degrees may both change by ``change``, 1 or -1.

        The result has a row and a column per distinct degree, in order: the test sees of a pair
        of nodes only their degrees.
        """
        distinct = np.unique(degrees)
        before, after = _contribution(distinct), _contribution(distinct + change)
        count, log_sum = after[0] - before[0], after[1] - before[1]
        now = Degrees.of(degrees)
        after_flip = Degrees(
            now.count + count[:, None] + count[None, :],
            now.log_sum + log_sum[:, None] + log_sum[None, :],
        )
        return np.asarray(self.statistic(after_flip) < self.cutoff)


def _contribution(degrees: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return what one node of each degree adds to the count and to the sum of logarithms."""
    counts = degrees >= SMALLEST_DEGREE
    return counts.astype(float), np.log(np.where(counts, degrees, 1))
