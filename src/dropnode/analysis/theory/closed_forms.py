"""Closed forms: the variance of perturbed logits, R^c, R^q, and the terms that follow them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from scipy.special import expit

from dropnode.analysis.checks import check_nodes
from dropnode.errors import ConfigError
from dropnode.graph.arrays import Matrix
from dropnode.settings import read_value, repeats

KINDS = ("dropnode", "dropout")
"""The perturbations that the paper analyses."""

CELLS = 2**21
"""Numbers in a block of columns that are propagated together (16 MB)."""

Terms = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Per node, a value of order t², one of order t³ and one of order t⁴, at t = 1."""


@dataclass(frozen=True, eq=False)
class LinearGrand:
    """GRAND as the theorems have it: two classes, and one output layer.

    Attributes
    ----------
    operator : sparse matrix
        Â, as ``dropnode.ops.propagation.normalise`` returns it.
    features : ndarray or sparse matrix
        X.
    weights : ndarray (columns of X,)
        W.
    order : int
        Propagation steps of Ā [K].
    drop_rate : float
        δ, strictly between 0 and 1.
    kind : str
        ``"dropnode"`` or ``"dropout"``.
    bias : float
        Added to every logit. The paper has none; it changes z alone.
    """

    operator: Matrix
    features: Matrix
    weights: np.ndarray
    order: int
    drop_rate: float
    kind: str = "dropnode"
    bias: float = 0.0

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise ConfigError(f"kind is {self.kind!r}; expected one of {', '.join(KINDS)}")
        if not 0 < self.drop_rate < 1:
            raise ConfigError(f"drop_rate is {self.drop_rate}; expected a number between 0 and 1")
        read_value(int, self.order, "order", repeats(least=0))
        nodes, columns = self.features.shape
        if self.operator.shape != (nodes, nodes) or np.shape(self.weights) != (columns,):
            raise ConfigError(
                f"operator {self.operator.shape}, features {self.features.shape} and weights "
                f"{np.shape(self.weights)} do not fit; expected (n, n), (n, d) and (d,)"
            )
        stored = self.features.data if sp.issparse(self.features) else self.features
        if not (np.isfinite(stored).all() and np.isfinite(self.weights).all()):
            raise ConfigError("features or weights are not finite; expected numbers")

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return int(self.features.shape[0])

    def logits(self) -> np.ndarray:
        """Return a = ĀX·W + bias, the logits without a perturbation."""
        return self.propagate(self._products()[:, None])[:, 0] + self.bias

    def propagate(self, columns: np.ndarray, adjoint: bool = False) -> np.ndarray:
        """Return Āx, or Āᵀx, in float64."""
        # The package's kernels are float32, too coarse for differences of order t⁴.
        operator = sp.csr_array(self.operator.T if adjoint else self.operator).astype(np.float64)
        total = columns
        for _ in range(self.order):
            total = operator @ total
            total += columns
        return total / (self.order + 1)

    def units(self) -> sp.csr_array:
        """Return what each thing that may be dropped (columns) adds to X_j·W of its node (rows).

        DropNode drops nodes, so its matrix is diagonal; dropout drops entries of X.
        """
        if self.kind == "dropnode":
            return sp.csr_array(sp.diags_array(self._products()))
        entries = sp.csr_array(self.features)
        values = entries.data.astype(np.float64) * self.weights[entries.indices]
        return sp.csr_array(
            (values, np.arange(entries.nnz), entries.indptr), shape=(self.nodes, entries.nnz)
        )

    def _products(self) -> np.ndarray:
        return np.asarray(self.features @ np.asarray(self.weights, dtype=np.float64))


def variance(model: LinearGrand, rows: np.ndarray | None = None) -> np.ndarray:
    """Return Var(Ā_i X̃·W) of some nodes, all by default.

    This is δ/(1-δ) Σ_j Ā_ij² (X_j·W)² for DropNode, and δ/(1-δ) Σ_jk Ā_ij² X_jk² W_k² for dropout.

    Examples
    --------
    >>> two_nodes = sp.csr_array(np.full((2, 2), 0.5))
    >>> model = LinearGrand(two_nodes, np.eye(2), np.array([4.0, 8.0]), order=1, drop_rate=0.5)
    >>> variance(model).tolist()
    [13.0, 37.0]
    """
    return moments(model, rows)[0]


def consistency_regulariser(model: LinearGrand) -> float:
    """Return R^c of Theorem 1."""
    return float(consistency_terms(model.logits(), moments(model))[0].sum())


def supervised_regulariser(model: LinearGrand, labelled: np.ndarray) -> float:
    """Return R^q of Theorem 2; ``labelled`` holds the positions of the labelled nodes."""
    labelled = check_nodes(labelled, model.nodes, "labelled")
    return float(supervised_terms(model.logits()[labelled], moments(model, labelled))[0].sum())


def moments(model: LinearGrand, rows: np.ndarray | None = None) -> Terms:
    """Return E p², E p³ and E p⁴ of some nodes, all by default.

    p_i is a sum of independent ξ, one for each thing that may be dropped, with coefficients that
    are a unit's contribution to X_j·W times Ā_ij. Sums of powers of the coefficients need the
    powers of single entries of Ā, which is dense: its rows are made in blocks, as Āᵀ times unit
    vectors.
    """
    rows = np.arange(model.nodes) if rows is None else check_nodes(rows, model.nodes, "rows")
    units = model.units()
    powers = [np.asarray(units.power(power).sum(axis=1)).ravel() for power in (2, 3, 4)]
    sums = np.empty((3, len(rows)))
    width = max(1, CELLS // model.nodes)
    for first in range(0, len(rows), width):
        block = rows[first : first + width]
        columns = np.zeros((model.nodes, len(block)))
        columns[block, np.arange(len(block))] = 1.0
        entries = model.propagate(columns, adjoint=True)
        power = entries.copy()
        for place, weights in enumerate(powers):
            power *= entries
            sums[place, first : first + width] = weights @ power
    rate = model.drop_rate
    second = rate / (1 - rate)
    third = rate * (2 * rate - 1) / (1 - rate) ** 2
    fourth = rate**4 / (1 - rate) ** 3 + rate
    return (
        second * sums[0],
        third * sums[1],
        fourth * sums[2] + 3 * second**2 * (sums[0] ** 2 - sums[2]),
    )


def consistency_terms(logits: np.ndarray, expected: Terms) -> Terms:
    """Return the first terms of E[L_con] from logits and the moments of p; R^c comes first."""
    slope, bend, twist = derivatives(logits)
    return (
        slope**2 * expected[0],
        slope * bend * expected[1],
        bend**2 * (expected[2] - expected[0] ** 2) / 4 + slope * twist * expected[2] / 3,
    )


def supervised_terms(logits: np.ndarray, expected: Terms) -> Terms:
    """Return the first terms of E[L_sup] - L_org from logits and the moments of p, R^q first."""
    slope, bend, twist = derivatives(logits)
    return slope * expected[0] / 2, bend * expected[1] / 6, twist * expected[2] / 24


def derivatives(logits: np.ndarray) -> Terms:
    """Return the first three derivatives of the sigmoid."""
    z = expit(logits)
    slope = z * expit(-logits)
    return slope, slope * (1 - 2 * z), slope * (1 - 6 * slope)
