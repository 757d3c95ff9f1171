"""Arrays that processes share are what was packed, or an error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import damage
from dropnode.engines.sharing import pack, unpack
from dropnode.errors import WorkError

VALUES = {"weights": np.arange(1000.0), "none": np.zeros((0, 3)), "bits": np.ones(7, dtype=bool)}


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    unpacked = unpack(pack(VALUES, tmp_path))
    for name, values in VALUES.items():
        assert unpacked[name].dtype == values.dtype
        assert np.array_equal(unpacked[name], values)


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused(tmp_path: Path, flips: int) -> None:
    parcel = pack(VALUES, tmp_path)
    for seed in range(flips):
        with damage.restored(parcel.files[0]):
            told = damage.flip_bit(parcel.files[0], seed)
            error = damage.error_of(lambda: unpack(parcel), WorkError)
            assert error is not None, told
            assert "run the same command again" in error
