"""Feature scaling: part of a method's configuration and of a saved model, not of a dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
from sklearn.preprocessing import StandardScaler, normalize

from dropnode.errors import GraphError
from dropnode.graph.checks import Matrix

KINDS = ("row", "binary", "standard", "none")
"""The scalings there are."""


@dataclass(frozen=True)
class FeatureScaling:
    """A fitted scaling.

    Attributes
    ----------
    kind : str
        ``"row"`` divides each row by its sum (rows of zeros stay zero); ``"binary"`` does so after
        it has made every entry that is not zero a one; ``"standard"`` gives each feature unit
        variance, and zero mean too where the features are dense (centring sparse features would
        fill them in); ``"none"`` leaves everything as it is.
    mean, deviation : ndarray or None
        What ``"standard"`` learnt.
    """

    kind: str
    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None

    @classmethod
    def fit(cls, kind: str, features: Matrix) -> FeatureScaling:
        """Learn the scaling from the features of the training graph."""
        if kind != "standard":
            return cls(kind)
        # In float64: the squares of sparse features would be summed in the features' own type.
        wide = features.astype(np.float64) if sp.issparse(features) else features
        learnt = StandardScaler(with_mean=not sp.issparse(features)).fit(wide)
        mean = None if sp.issparse(features) else learnt.mean_.astype(np.float32)
        return cls(kind, mean, learnt.scale_.astype(np.float32))

    def apply(self, features: Matrix) -> Matrix:
        """Return scaled float32 features; sparse features stay sparse."""
        if self.kind == "binary":
            return FeatureScaling("row").apply((features != 0).astype(np.float32))
        if self.kind == "row":
            smallest = features.data.min(initial=0) if sp.issparse(features) else features.min()
            if smallest < 0:
                raise GraphError(
                    f"feature_scaling='row' divides by row sums, but a feature is {smallest:g}; "
                    "use feature_scaling='standard' for features that can be negative"
                )
            if sp.issparse(features):
                return normalize(features, norm="l1")
            # scikit-learn takes a dense row whose sum is below 1e-6 for empty, and leaves it.
            sums = features.sum(axis=1, keepdims=True, dtype=np.float64)
            sums[sums == 0] = 1.0
            return np.divide(features, sums, out=np.empty_like(features), casting="same_kind")
        if self.kind == "standard":
            assert self.deviation is not None
            if self.mean is not None:
                # The training features were dense and centred; sparse ones have to be too.
                dense = features.toarray() if sp.issparse(features) else features
                centred = dense - self.mean
                centred /= self.deviation
                return centred
            if sp.issparse(features):
                return sp.csr_array(
                    features @ sp.diags_array(1.0 / self.deviation), dtype=np.float32
                )
            return features / self.deviation
        return features
