"""What a training imports: only what it uses, so that it starts within seconds."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ONE_EPOCH = """
import json, sys
from dropnode.cli import _run
code = _run(["train", *sys.argv[1:], "--set", "max_epochs=1", "--json"])
print(json.dumps({"code": code, "modules": sorted(sys.modules)}))
"""

SLOW = {"torch._dynamo", "torch_geometric", "matplotlib", "pandas", "pyarrow", "scipy.stats", "ray"}
"""Modules that take long to import, and that no ordinary training needs."""


def imported(*arguments: str) -> set[str]:
    """Return the modules of a process that has trained one epoch."""
    finished = subprocess.run(
        [sys.executable, "-c", ONE_EPOCH, *arguments], capture_output=True, text=True, timeout=300
    )
    assert finished.returncode == 0, finished.stderr
    result, modules = map(json.loads, finished.stdout.splitlines())
    assert result["epochs"] == 1
    assert modules["code"] == 0
    return set(modules["modules"])


@pytest.mark.parametrize("method", ["grand", pytest.param("grand-gcn", marks=pytest.mark.slow)])
def test_training_on_citeseer_imports_nothing_slow(method: str) -> None:
    slow = (SLOW | {"sklearn"}) & imported("citeseer", "--method", method)
    assert slow == set()


@pytest.mark.slow
def test_training_on_digits_imports_scikit_learn_for_the_data_alone() -> None:
    """The images come with scikit-learn, and so do nearest neighbours; nothing else is slow."""
    modules = imported("digits")
    assert "sklearn" in modules
    slow = {"torch._dynamo", "torch_geometric", "matplotlib", "ray"} & modules
    assert slow == set()
