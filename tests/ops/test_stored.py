"""Features in a file multiply, and are selected from, like those in memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from dropnode.graph import mapped
from dropnode.ops.scaling import FeatureScaling
from dropnode.ops.stored import StoredFeatures


@pytest.fixture(params=["standard", "row", "unit", "none"])
def pair(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[StoredFeatures, torch.Tensor]:
    """Return features in a file, and the same in memory, scaled alike."""
    # Some blocks, of which the last is shorter.
    monkeypatch.setattr(mapped, "BLOCK", 4 * 5 * 16)
    raw = np.random.default_rng(0).random((50, 5)).astype(np.float32)
    raw.tofile(tmp_path / "features")
    values = np.memmap(tmp_path / "features", np.float32, "r", shape=(50, 5))
    expected = FeatureScaling.fit(request.param, raw).apply(raw)
    stored = StoredFeatures(values, FeatureScaling.fit(request.param, values))
    return stored, torch.from_numpy(np.asarray(expected, dtype=np.float32))


def close(found: torch.Tensor, expected: torch.Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["row", "unit", "binary", "none"])
def test_no_rows_are_rows_too(kind: str) -> None:
    stored = StoredFeatures(np.ones((3, 2), np.float16), FeatureScaling(kind))
    assert stored.rows(np.empty(0, dtype=np.int64)).shape == (0, 2)


def test_products_are_those_of_the_whole_matrix(
    pair: tuple[StoredFeatures, torch.Tensor],
) -> None:
    stored, whole = pair
    generator = torch.Generator().manual_seed(0)
    right = torch.randn(5, 3, generator=generator)
    left = torch.randn(50, 2, generator=generator)
    close(stored @ right, whole @ right)
    close(stored.transpose @ left, whole.T @ left)


def test_rows_and_columns_are_those_of_the_whole_matrix(
    pair: tuple[StoredFeatures, torch.Tensor],
) -> None:
    stored, whole = pair
    rows = np.array([49, 0, 7, 7])
    close(stored.rows(rows), whole[rows])
    close(stored.columns(1, 4), whole[:, 1:4])
    assert stored.shape == (50, 5)
