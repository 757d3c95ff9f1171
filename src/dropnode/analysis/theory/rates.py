"""How fast the errors of the theorems vanish with the size of the perturbation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dropnode.analysis.theory.closed_forms import LinearGrand, moments
from dropnode.analysis.theory.monte_carlo import Estimates, Loss, consistency, estimate, supervised
from dropnode.errors import ConfigError

RESOLVED = 4.0
"""How many standard errors an error has to exceed for a rate to be fitted to it."""

FITTED = 3
"""The fewest sizes that a rate is fitted to."""


def promised_exponent(drop_rate: float) -> float:
    """Return the power of t to which the relative error of both theorems is proportional.

    Examples
    --------
    >>> promised_exponent(0.5), promised_exponent(0.2)
    (2.0, 1.0)
    """
    return 2.0 if drop_rate == 0.5 else 1.0


@dataclass(frozen=True, eq=False)
class Fit:
    """A power law fitted to errors.

    Attributes
    ----------
    exponent, uncertainty : float or None
        The slope in logarithms and its standard error; None for fewer than three sizes.
    used : ndarray of bool
        The sizes whose errors are well above the noise.
    """

    exponent: float | None
    uncertainty: float | None
    used: np.ndarray


def fit_exponent(
    sizes: ArrayLike, errors: ArrayLike, standard_errors: ArrayLike | None = None
) -> Fit:
    """Fit errors ∝ sizes^exponent by least squares in logarithms.

    Sizes whose error is less than four times its standard error are ignored. The uncertainty is the
    larger of two: the one that residuals show, and the one that standard errors imply if the
    errors were independent. Errors from the same draws are not, so it is rather too large.

    Examples
    --------
    >>> fit = fit_exponent([0.1, 0.2, 0.4], [0.03, 0.12, 0.48])
    >>> round(fit.exponent, 6)
    2.0
    """
    x, y = np.asarray(sizes, dtype=np.float64), np.abs(np.asarray(errors, dtype=np.float64))
    noise = np.zeros_like(y) if standard_errors is None else np.asarray(standard_errors)
    used = (y > RESOLVED * noise) & (y > 0)
    if used.sum() < FITTED:
        return Fit(None, None, used)
    x, y, noise = np.log(x[used]), np.log(y[used]), noise[used] / y[used]
    x -= x.mean()
    slope = x @ y / (x @ x)
    residuals = y - y.mean() - slope * x
    shown = np.sqrt(residuals @ residuals / (len(x) - 2) / (x @ x))
    implied = np.sqrt(np.square(x * noise).sum()) / (x @ x)
    return Fit(float(slope), float(max(shown, implied)), used)


def theory_curves(
    model: LinearGrand,
    labelled: np.ndarray,
    sizes: Sequence[float] | None = None,
    draws: int = 1024,
    seed: int = 0,
) -> dict[str, Any]:
    """Return closed forms, Monte-Carlo means and the rates of the errors, as JSON has them.

    Parameters
    ----------
    model : LinearGrand
    labelled : ndarray of int
        Positions of the labelled nodes, for Theorem 2.
    sizes : sequence of float, optional
        Sizes t of the perturbation. By default they rise to 1 from where the rates can be seen.
    draws : int
        Pairs of augmentations; all sizes use the same ones.
    seed : int
        The same seed draws the same masks.

    Returns
    -------
    dict
        The setting and its ``promised_exponent``. Under ``consistency`` (Theorem 1) and
        ``supervised`` (Theorem 2), a list for each attribute of :class:`Estimates`, besides
        ``relative_error``, ``relative_standard_error``, ``fitted`` (the sizes that the rate is
        fitted to: small enough for the leading term of the error, and well above the noise),
        ``exponent`` and ``exponent_uncertainty`` (None where too few sizes remain).
    """
    logits, expected = model.logits(), moments(model)
    first, second, third = (each[labelled] for each in expected)
    losses = (
        consistency(logits, expected),
        supervised(logits, (first, second, third), labelled),
    )
    if not all(loss.terms[0].sum() > 0 for loss in losses):
        raise ConfigError(
            "the perturbation changes no logit of the nodes in question, so there is no relative "
            "error; give labelled nodes, and weights and features that are not all zero"
        )
    limits = [_largest_fitted(model, loss, expected[0][loss.rows]) for loss in losses]
    if sizes is None:
        least = min(limits) / 10
        sizes = np.geomspace(least, 1.0, 1 + int(np.ceil(-8 * np.log10(least)))).tolist()
    found = estimate(model, losses, sizes, draws, seed)
    return {
        "kind": model.kind,
        "drop_rate": float(model.drop_rate),
        "order": int(model.order),
        "nodes": model.nodes,
        "labelled": len(labelled),
        "draws": int(draws),
        "seed": int(seed),
        "promised_exponent": promised_exponent(model.drop_rate),
        "consistency": _curve(found[0], limits[0]),
        "supervised": _curve(found[1], limits[1]),
    }


def _curve(estimates: Estimates, limit: float) -> dict[str, Any]:
    small = estimates.sizes <= limit
    relative = estimates.error / estimates.closed_form
    noise = estimates.error_standard_error / estimates.closed_form
    fit = fit_exponent(estimates.sizes[small], relative[small], noise[small])
    fitted = np.zeros(len(small), dtype=bool)
    fitted[small] = fit.used
    return {
        **{name: value.tolist() for name, value in vars(estimates).items()},
        "relative_error": relative.tolist(),
        "relative_standard_error": noise.tolist(),
        "fitted": fitted.tolist(),
        "exponent": fit.exponent,
        "exponent_uncertainty": fit.uncertainty,
    }


def _largest_fitted(model: LinearGrand, loss: Loss, variances: np.ndarray) -> float:
    """Return the size up to which the leading term of the error should dominate the next one.

    At δ = ½ the term after t⁴ is taken to be that one times the variance of p. Absolute values are
    added up: a leading term that nearly cancels over the nodes is overtaken early.
    """
    _, third, fourth = loss.terms
    if promised_exponent(model.drop_rate) == 2:
        following = (np.abs(fourth) * variances).sum()
        limit = np.sqrt(0.1 * np.abs(fourth.sum()) / following) if following > 0 else 1.0
    else:
        following = np.abs(fourth).sum()
        limit = 0.1 * np.abs(third.sum()) / following if following > 0 else 1.0
    # A leading term of zero has no rate to show; the sizes still need somewhere to start.
    return float(np.clip(limit, 1e-4, 1.0))
