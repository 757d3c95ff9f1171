"""How the page writes numbers, p-values, moments and settings; the filters of its template."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from dropnode.experiments.results import ClaimResult, Comparison
from dropnode.experiments.statistics import Summary
from dropnode.experiments.writers import (
    NOTHING,
    claim_datasets,
    claimed,
    interval,
    measure_title,
    measured,
    names_of_tests,
    tests_of_claims,
)

FAR = 1.0
"""A difference from the paper's figure of more percentage points than this is marked."""


def count_seeds(count: int) -> str:
    """Return a number of seeds as text."""
    return f"{count} seed{'s' * (count != 1)}"


def settings_text(config: Mapping[str, Any]) -> str:
    """Return settings as text that does not break at the equals signs."""
    return ", ".join(f"{key}\u00a0=\u00a0{value}" for key, value in config.items())


def _minus(number: str) -> str:
    """Return a number, or several, with the sign that the whole page has."""
    return number.replace("-", "−")


def _fixed(value: float | None) -> str:
    return NOTHING if value is None else _minus(f"{value:.2f}")


def _signed(value: float | None) -> str:
    return NOTHING if value is None else _minus(f"{value:+.2f}")


def _interval(low: float | None, high: float | None) -> str:
    return _minus(interval(low, high))


def _claimed(claim: ClaimResult) -> tuple[str, str]:
    difference, bounds = claimed(claim)
    return _minus(difference), _minus(bounds)


def _measured(summary: Summary, name: str) -> str:
    return _minus(measured(summary, name))


def _accuracy_interval(accuracy: Summary) -> str:
    """Return the interval of a mean accuracy, in percent, of which there are 0 to 100.

    Examples
    --------
    >>> _accuracy_interval(Summary(n=3, mean=99.0, std=0.5, ci95=1.5)).replace("\u00a0", " ")
    '97.50 to 100.00'
    """
    if accuracy.mean is None or accuracy.ci95 is None:
        return NOTHING
    low, high = accuracy.mean - accuracy.ci95, accuracy.mean + accuracy.ci95
    return f"{_fixed(max(low, 0.0))}\u00a0to\u00a0{_fixed(min(high, 100.0))}"


def _tests_of_pairs(pairs: Sequence[Comparison]) -> str:
    """Return the names of the tests that compared pairs of rows."""
    by_split = {pair.test.splits is not None for pair in pairs}
    if by_split == {True}:
        ranked = "of the same differences"
    elif by_split == {False}:
        ranked = "over the seeds that both have"
    else:
        ranked = "over the splits, or of one split the seeds, that both have"
    names = names_of_tests(pair.test for pair in pairs)
    return f"{names}, and of Wilcoxon's signed-rank test {ranked}"


def _is_far(difference: float | None) -> bool:
    # Rounded as it is shown, so that the mark never contradicts the number.
    return difference is not None and abs(round(difference, 2)) > FAR


def _chance(value: float | None) -> str:
    """Return a p-value as text.

    Examples
    --------
    >>> _chance(0.0312), _chance(1.23e-9), _chance(0.0)
    ('0.0312', '1.2 × 10⁻⁹', '< 10⁻³⁰⁰')
    """
    if value is None:
        return NOTHING
    if value == 0:
        return "< 10⁻³⁰⁰"
    if value >= 0.001:
        # Three digits, so that 0.0496 does not look like the level that it is below.
        return f"{value:.3g}"
    digits, power = f"{value:.1e}".split("e")
    return f"{digits} × 10{str(int(power)).translate(_SUPERSCRIPTS)}"


_SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def _moment(value: str) -> str:
    return datetime.fromisoformat(value).astimezone(UTC).strftime("%Y-%m-%d %H:%M UTC")


FILTERS: dict[str, Callable[..., Any]] = {
    "fixed": _fixed,
    "signed": _signed,
    "is_far": _is_far,
    "chance": _chance,
    "moment": _moment,
    "settings": settings_text,
    "seeds": count_seeds,
    "claimed": _claimed,
    "interval": _interval,
    "measured": _measured,
    "accuracy_interval": _accuracy_interval,
    "measure_title": measure_title,
    "claim_datasets": claim_datasets,
    "tests_of_claims": tests_of_claims,
    "tests_of_pairs": _tests_of_pairs,
}
