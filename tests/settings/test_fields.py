"""Limits of numbers, and the texts of errors."""

from __future__ import annotations

from typing import Any

import pytest

from dropnode.errors import ConfigError
from dropnode.settings import count, read_value, repeats, seed, suggestion, width


@pytest.mark.parametrize(
    ("field", "value", "told"),
    [
        (count(), 10**9 + 1, "x = 1000000001; expected at most 1,000,000,000"),
        (repeats(), 10**18, "x = 1000000000000000000; expected at most 1,000"),
        (repeats(least=0), 1e18, "x = 1000000000000000000; expected at most 1,000"),
        (width(), int("9" * 400), "…; expected at most 1,000,000"),
        pytest.param(width(), 10**5000, "x = <int>; expected at most 1,000,000", id="digits"),
        (seed(), 2**63, "expected at most 9,223,372,036,854,775,807"),
    ],
)
def test_a_number_that_cannot_be_meant_is_refused_with_the_limit(
    field: Any, value: Any, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read_value(int, value, "x", field)
    assert told in str(caught.value)
    assert len(str(caught.value)) < 200


def test_a_number_too_large_for_a_float_is_no_number() -> None:
    with pytest.raises(ConfigError, match="expected a number"):
        read_value(float, 10**400, "x")


def test_a_suggestion_does_not_mind_capitals() -> None:
    assert suggestion("CORA", ["cora", "pubmed"]) == "; did you mean 'cora'?"
    assert suggestion("x", iter(["cora", "pubmed"])) == "; expected one of cora, pubmed"
