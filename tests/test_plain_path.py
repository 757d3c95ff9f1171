"""With ``DROPNODE_KERNELS=0`` no kernel runs, and the core of the suite holds all the same."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parent

CORE = [
    "ops/test_bits.py::test_bits_are_uniform_numbers_below_the_probability",
    "ops/test_propagation.py::test_the_gradient_is_the_adjoint",
    "ops/test_propagation.py::test_mixed_order_of_an_operator_that_is_not_symmetric",
    "ops/test_push.py::test_no_source_is_no_row[0]",
    "methods/grand/test_model.py::test_several_epochs_are_the_oracles",
    "methods/grand/test_model.py::test_other_sizes_and_rates",
    "methods/baselines/test_contract.py::test_isolated_nodes_weighted_edges_and_empty_rows[mixhop]",
    "methods/baselines/test_contract.py::test_isolated_nodes_weighted_edges_and_empty_rows[gat]",
    "methods/baselines/test_contract.py::test_isolated_nodes_weighted_edges_and_empty_rows[grand-plus]",
    "training/test_checkpoint.py::test_a_run_resumed_at_any_epoch_ends_with_the_same_bits[loss]",
]


def test_the_core_of_the_suite_holds_without_kernels(tmp_path: Path) -> None:
    """The plugin makes a call of any kernel an error."""
    path = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    variables = {
        "DROPNODE_KERNELS": "0",
        "PYTHONPATH": path,
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
    }
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no_kernels", "-p", "no:cacheprovider", *CORE],
        cwd=TESTS,
        env=os.environ | variables,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert not (tmp_path / "cache").exists(), "nothing is compiled, so nothing is cached"
