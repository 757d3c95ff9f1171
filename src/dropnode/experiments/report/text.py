"""How the page writes numbers, p-values, moments and settings; the filters of its template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from dropnode.experiments.writers import claim_datasets, measure_title, measured, tests_of_claims

FAR = 1.0
"""A difference from the paper's figure of more percentage points than this is marked."""


def count_seeds(count: int) -> str:
    """Return a number of seeds as text."""
    return f"{count} seed{'s' * (count != 1)}"


def settings_text(config: Mapping[str, Any]) -> str:
    """Return settings as text that does not break at the equals signs."""
    return ", ".join(f"{key}\u00a0=\u00a0{value}" for key, value in config.items())


def _fixed(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}".replace("-", "−")


def _signed(value: float | None) -> str:
    return "–" if value is None else f"{value:+.2f}".replace("-", "−")


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
        return "–"
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
    "measured": measured,
    "measure_title": measure_title,
    "claim_datasets": claim_datasets,
    "tests_of_claims": tests_of_claims,
}
