"""Fits in several threads give the bits that they give one after the other, and leave no trace."""

from __future__ import annotations

import os
import random
import warnings
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

from dropnode.data.generators.sbm import make
from dropnode.estimator import GrandClassifier
from dropnode.methods.table import METHODS
from dropnode.ops.kernels.threads import kernel_threads

THREADS = 4
GRAPH = make(nodes=120, classes=3, features=16, average_degree=6, seed=3)
LABELS = np.where(np.arange(120) % 4, -1, GRAPH.labels)

# The attention heads draw from torch's global generator; the first limits threads.
RISKY = ["grand", "grand-gat", "gat", "graphunet"]

Job = tuple[str, int]


def options(method: str, epochs: int) -> dict[str, Any]:
    if method in ("label-propagation", "logistic", "boosting"):
        return {}
    return {"max_epochs": epochs} | ({"round_epochs": epochs} if method == "gmnn" else {})


def fit(job: Job, epochs: int) -> bytes:
    method, seed = job
    model = GrandClassifier(method=method, random_state=seed, options=options(method, epochs))
    return model.fit(GRAPH.features, LABELS, graph=GRAPH.adjacency).predict_proba().tobytes()


def process_state() -> list[Any]:
    """What belongs to the whole process, and no fit may change."""
    return [
        torch.get_rng_state().tolist(),
        repr(np.random.get_state()),  # noqa: NPY002
        random.getstate(),
        torch.get_num_threads(),
        kernel_threads(),
        torch.is_grad_enabled(),
        torch.get_default_dtype(),
        list(warnings.filters),
        dict(os.environ),
        np.geterr(),
    ]


def assert_like_serial(jobs: list[Job], epochs: int) -> None:
    alone = {job: fit(job, epochs) for job in dict.fromkeys(jobs)}
    before = process_state()

    def fit_and_look(job: Job) -> tuple[bytes, int, int]:
        return fit(job, epochs), torch.get_num_threads(), kernel_threads()

    with ThreadPoolExecutor(THREADS) as executor:
        together = list(executor.map(fit_and_look, jobs))
    threads = torch.get_num_threads(), kernel_threads()
    for job, (found, *limits) in zip(jobs, together, strict=True):
        assert found == alone[job], job
        assert tuple(limits) == threads, f"{job} leaves a limit behind"
    for one, other in zip(before, process_state(), strict=True):
        assert one == other
    assert fit(jobs[0], epochs) == alone[jobs[0]]


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")
def test_fits_of_the_riskiest_methods_in_four_threads() -> None:
    assert_like_serial([(method, seed) for seed in (0, 1) for method in RISKY], epochs=4)


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("method", METHODS)
def test_twelve_fits_of_every_method_in_four_threads(method: str, count: int) -> None:
    torch.set_num_threads(count)
    assert_like_serial([(method, number % 3) for number in range(12)], epochs=15)


@pytest.mark.slow
@pytest.mark.usefixtures("threads")
def test_fits_of_all_methods_side_by_side() -> None:
    torch.set_num_threads(2)
    jobs = [(method, seed) for method in METHODS for seed in (0, 1)]
    random.Random(0).shuffle(jobs)
    assert_like_serial(jobs, epochs=15)
