"""What an attack may not do, against a search through all pairs."""

from __future__ import annotations

import math

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dropnode.analysis.attacks.constraints import CUTOFF, Degrees, DegreeTest
from dropnode.analysis.attacks.factors import Factors
from dropnode.analysis.attacks.metattack import best_flip


def likelihood(degrees: list[int]) -> float:
    """The log-likelihood of Zügner et al. (2018), equation 6, term by term."""
    counted = [degree for degree in degrees if degree >= 2]
    if not counted:
        return 0.0
    exponent = 1 + len(counted) / sum(math.log(degree / 1.5) for degree in counted)
    return sum(
        math.log(exponent) + exponent * math.log(2) + (exponent + 1) * math.log(degree)
        for degree in counted
    )


def statistic(clean: list[int], attacked: list[int]) -> float:
    return 2 * (likelihood(clean) + likelihood(attacked) - likelihood(clean + attacked))


def random_graph(seed: int, nodes: int = 14, density: float = 0.2) -> np.ndarray:
    upper = np.triu(np.random.default_rng(seed).random((nodes, nodes)) < density, k=1)
    return (upper | upper.T).astype(np.float32)


@settings(max_examples=25)
@given(st.integers(0, 10**6), st.floats(0.1, 0.6), st.sampled_from([CUTOFF, 0.05, 0.5]))
def test_the_degree_test_is_that_of_every_single_flip(
    seed: int, density: float, cutoff: float
) -> None:
    clean, now = random_graph(seed, density=density), random_graph(seed + 1, density=density)
    test = DegreeTest(Degrees.of(clean.sum(axis=1)), cutoff)
    degrees = now.sum(axis=1).astype(int)
    kind = np.unique(degrees, return_inverse=True)[1]
    tables = {change: test.allows(degrees, change) for change in (1, -1)}
    for i in range(len(now)):
        for j in range(i):
            change = 1 if now[i, j] == 0 else -1
            after = degrees.copy()
            after[[i, j]] += change
            expected = statistic(clean.sum(axis=1).astype(int).tolist(), after.tolist())
            if abs(expected - cutoff) > 1e-9:
                assert tables[change][kind[i], kind[j]] == (expected < cutoff)


def test_unchanged_degrees_pass_whatever_the_cutoff() -> None:
    degrees = Degrees.of(np.array([1, 2, 2, 3, 7]))
    assert DegreeTest(degrees).statistic(degrees) == pytest.approx(0.0, abs=1e-12)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.booleans(), st.integers(1, 14))
def test_the_best_flip_is_the_best_of_all_that_are_allowed(
    seed: int, tested: bool, block: int
) -> None:
    graph = random_graph(seed, density=0.15)
    generator = np.random.default_rng(seed)
    left, right, beside = (generator.normal(size=(14, 3)).astype(np.float32) for _ in range(3))
    sparse = sp.csr_array(sp.random_array((14, 3), density=0.3, rng=generator, dtype=np.float32))
    half = left @ right.T + sparse @ beside.T
    gain = (half + half.T) * (1 - 2 * graph)
    factors = Factors(*map(torch.from_numpy, (left, right)), sparse, torch.from_numpy(beside))
    test = DegreeTest(Degrees.of(random_graph(seed + 1).sum(axis=1)), 0.05) if tested else None
    used = [(0, 1), (2, 5)]

    degrees = graph.sum(axis=1).astype(int)
    allowed = {}
    for i in range(14):
        for j in range(i + 1, 14):
            change = -1 if graph[i, j] else 1
            after = degrees.copy()
            after[[i, j]] += change
            fits = test is None or test.statistic(Degrees.of(after)) < test.cutoff
            if (i, j) not in used and after[[i, j]].min() > 0 and fits:
                allowed[i, j] = gain[i, j]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dropnode.analysis.attacks.metattack.BLOCK", block)
        found = best_flip(factors, sp.csr_array(graph), used, test)
    if not allowed:
        assert found is None
    else:
        assert allowed[found] == pytest.approx(max(allowed.values()), rel=1e-4)
