"""Feature scaling, which belongs to a method's configuration and its saved models."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp

from dropnode.errors import GraphError
from dropnode.graph.arrays import Matrix, lighter_sparse
from dropnode.graph.mapped import is_mapped, row_blocks

KINDS = ("row", "binary", "unit", "standard", "none")
"""The names of all scalings."""

CHOICES = ("auto", *KINDS)
"""What a configuration may ask for."""

LENGTH = 1.0
"""The length of rows of the scaling ``"unit"``."""


def suitable(features: Matrix) -> str:
    """Return the scaling for features that nobody has tried others on.

    Features that are mostly zeros are counts of words, items or categories: what tells nodes apart
    is the mix in a row, not how much of it there is, so that rows get one length. Other features
    are measurements in units of their own, so that each gets unit variance.
    ``studies/defaults.py`` compares the scalings on graphs and tables.

    Examples
    --------
    >>> suitable(np.eye(3)), suitable(np.array([[170.0, 0.6], [182.0, 0.9]]))
    ('unit', 'standard')
    """
    if sp.issparse(features):
        filled = features.count_nonzero()
    else:
        filled = sum(int(np.count_nonzero(features[block])) for block in row_blocks(features))
    return "unit" if lighter_sparse(filled, features.shape) else "standard"


@dataclass(frozen=True)
class FeatureScaling:
    """A fitted scaling.

    Attributes
    ----------
    kind : str
        ``"row"`` divides each row by its sum (rows of zeros stay zero); ``"binary"`` first replaces
        every nonzero entry by one, and then does the same; ``"unit"`` gives each row the length
        :data:`LENGTH`; ``"standard"`` gives each feature unit variance, and zero mean too if the
        features are dense (centred sparse features would no longer be sparse); ``"none"`` changes
        nothing. ``"auto"`` is one of these, see :func:`suitable`.
    mean, deviation : ndarray or None
        The fitted statistics of ``"standard"``.
    """

    kind: str
    mean: np.ndarray | None = None
    deviation: np.ndarray | None = None

    @classmethod
    def fit(cls, kind: str, features: Matrix) -> FeatureScaling:
        """Fit the scaling to the features of the training graph."""
        if kind == "auto":
            kind = suitable(features)
        if kind != "standard":
            return cls(kind)
        # Imported here: scikit-learn takes as long to import as torch, and few presets need it.
        from sklearn.preprocessing import StandardScaler

        if is_mapped(features):
            scaler = StandardScaler()
            for block in row_blocks(features):
                scaler.partial_fit(np.asarray(features[block], dtype=np.float64))
            return cls(kind, scaler.mean_.astype(np.float32), scaler.scale_.astype(np.float32))
        # scikit-learn sums the squares of sparse features in their own type, so make it float64.
        wide = features.astype(np.float64) if sp.issparse(features) else features
        learnt = StandardScaler(with_mean=not sp.issparse(features)).fit(wide)
        mean = None if sp.issparse(features) else learnt.mean_.astype(np.float32)
        return cls(kind, mean, learnt.scale_.astype(np.float32))

    def apply(self, features: Matrix) -> Matrix:
        """Return scaled float32 features; sparse features stay sparse."""
        if self.kind == "binary":
            return FeatureScaling("row").apply((features != 0).astype(np.float32))
        if self.kind == "row":
            smallest = (features.data if sp.issparse(features) else features).min(initial=0)
            if smallest < 0:
                raise GraphError(
                    f"feature_scaling='row' divides by row sums, but a feature is {smallest:g}; "
                    "use feature_scaling='standard' for features that can be negative"
                )
            if sp.issparse(features):
                return _divided_by_row_sums(sp.csr_array(features))
            # scikit-learn's normalize would not scale dense rows with a sum below 1e-6.
            sums = features.sum(axis=1, keepdims=True, dtype=np.float64)
            sums[sums == 0] = 1.0
            return np.divide(features, sums, out=np.empty_like(features), casting="same_kind")
        if self.kind == "unit":
            return _of_one_length(features)
        if self.kind == "standard":
            assert self.deviation is not None
            if self.mean is not None:
                # The training features were dense and centred, so sparse ones must be centred too.
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


def _divided_by_row_sums(features: sp.csr_array) -> sp.csr_array:
    """Return sparse features with rows that sum to one; rows of zeros stay zero.

    Bit-identical to ``sklearn.preprocessing.normalize(features, norm="l1")``, without the slow
    import: entries are added one after the other, and divided, in float64.
    """
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    sums = np.bincount(rows, weights=features.data, minlength=features.shape[0])
    sums[sums == 0] = 1.0
    scaled = (features.data / sums[rows]).astype(features.dtype)
    return sp.csr_array((scaled, features.indices.copy(), features.indptr.copy()), features.shape)


def _of_one_length(features: Matrix) -> Matrix:
    """Return features whose rows have the length :data:`LENGTH`; rows of zeros stay zero."""
    if not sp.issparse(features):
        lengths = np.sqrt(np.square(features, dtype=np.float64).sum(axis=1, keepdims=True))
        lengths[lengths == 0] = 1.0
        return (LENGTH * (features / lengths)).astype(np.float32)
    features = sp.csr_array(features)
    rows = np.repeat(np.arange(features.shape[0]), np.diff(features.indptr))
    squares = np.square(features.data, dtype=np.float64)
    lengths = np.sqrt(np.bincount(rows, weights=squares, minlength=features.shape[0]))
    lengths[lengths == 0] = 1.0
    scaled = (LENGTH * (features.data / lengths[rows])).astype(np.float32)
    return sp.csr_array((scaled, features.indices.copy(), features.indptr.copy()), features.shape)
