"""Whatever is given ends in a result or in one error of ours, in time, and breaks nothing."""

from __future__ import annotations

import driver
import pytest

SAMPLE = {
    "api": 60,
    "commands": 12,
    "specs": 40,
    "references": 50,
    "files": 50,
    "tables": 60,
    "broken_tables": 40,
}
"""How many inputs of each surface the fast suite tries."""


@pytest.mark.parametrize("surface", driver.SURFACES)
def test_a_sample_of_broken_input(surface: str) -> None:
    reports = [driver.run_here(surface, seed) for seed in range(SAMPLE[surface])]
    assert not [str(report) for report in reports if not report.sound]
    assert any(report.end == driver.End.ERROR for report in reports), "nothing was broken"


@pytest.mark.slow
@pytest.mark.parametrize("surface", driver.SURFACES)
def test_all_broken_input(surface: str) -> None:
    wrong = [r for r in driver.run_apart(surface, range(driver.SURFACES[surface])) if not r.sound]
    assert not [str(report) for report in wrong]
