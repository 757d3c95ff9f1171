"""FastGCN: graph convolutions on sampled columns of Â.

Chen, Ma and Xiao, *FastGCN: Fast Learning with Graph Convolutional Networks via Importance
Sampling*, ICLR 2018. A GCN whose training steps see a few labelled nodes and, layer by layer, a
sample of the nodes they receive messages from: ÂH is estimated from t columns, drawn with
probability proportional to a column's norm and weighted by the inverse. The first layer's ÂX has no
weights and is computed once; inference uses all of Â.

The authors' code for the citation graphs draws t columns without replacement, out of those with an
entry in the batch, and weighs them by 1/(p t), p being a share of all columns of the graph: right
on average only if p t were the probability of a column to be in the sample, which it is not. Where
a batch has fewer than t columns, as all batches of the three graphs do at t = 400, it takes them
all and weighs them nonetheless, so that training sees logits many times those of inference. Here p
is a share of the batch's columns, and systematic sampling gives every column exactly the
probability p t to be in the sample, or one if p t is more: without replacement, weighted by its
inverse, right on average, and exact once t covers all columns. With the authors' weights, and
without bias as theirs, the published figures come out (80.9, 69.5 and 77.5 over five seeds); the
weights here validate better on all three graphs.

Further deviations: layers have a bias, which validates better too; the last, smaller batch of an
epoch is not left out; all epochs are run, and the best validated one is kept.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.graph import Graph, Split
from dropnode.methods.base import cross_entropy
from dropnode.methods.baselines.base import Parts, drop, drop_features
from dropnode.methods.baselines.gcn import GCN
from dropnode.methods.baselines.layered import LayeredConfig
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import count, width
from dropnode.training import Phase


@dataclass(frozen=True, kw_only=True)
class FastGCNConfig(LayeredConfig):
    """Further settings.

    Attributes
    ----------
    batch_size : labelled nodes in a batch
    samples : columns of Â that each layer samples [t]
    """

    batch_size: int = count()
    samples: int = width()


class FastGCN(GCN):
    """A GCN trained on samples."""

    name = "fastgcn"
    config_type = FastGCNConfig
    config: FastGCNConfig

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Compute ÂX of the nodes that batches can reach, which may be few of a large graph."""
        self.operator = self.tensors.operator.to_scipy()
        squares = self.operator.data.astype(np.float64) ** 2
        columns = self.operator.indices
        self.norms = np.sqrt(np.bincount(columns, squares, minlength=graph.num_nodes))
        reached = split.train
        for _ in range(self.config.layers - 1):
            reached = np.unique(self.operator[reached].indices)
        self.place = np.full(graph.num_nodes, -1)
        self.place[reached] = np.arange(len(reached))
        features = self.tensors.features
        held = features.to_scipy() if isinstance(features, SparseMatrix) else features.cpu().numpy()
        self.propagated = self.operator[reached] @ held
        if sp.issparse(self.propagated):
            # Once, not for every batch.
            self.propagated.sort_indices()

    def batches(self, phase: Phase, stream: Stream) -> Iterable[torch.Tensor]:
        """Return the labelled nodes in a new order, by their place among the labelled."""
        order = stream.generator().permutation(len(self.train_rows))
        return torch.from_numpy(order).to(self.device).split(self.config.batch_size)

    def loss(self, batch: torch.Tensor, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy of a batch of labelled nodes."""
        logits = self.classify_sampled(self.train_rows[batch].cpu().numpy(), stream)
        targets = self.train_targets[batch]
        weights = None if self.train_weights is None else self.train_weights[batch]
        supervised = cross_entropy(logits, targets, weights)
        return supervised, {"supervised": supervised}

    def classify_sampled(self, rows: np.ndarray, stream: Stream) -> torch.Tensor:
        """Return logits of some nodes, with every ÂH but the first estimated from a sample."""
        first, *others = self.network
        operators = []
        for number in range(len(others), 0, -1):
            generator = stream.at("columns", number).generator()
            part = self.operator[rows]
            sampled, rows = sample_columns(part, self.norms, self.config.samples, generator)
            operators.append(SparseMatrix.from_scipy(sampled, self.device))
        rate = self.config.dropout
        x = drop_features(self._propagated_rows(rows), rate, stream) @ first.lin.weight.T
        x = x + first.bias
        for number, layer in enumerate(others, start=1):
            x = layer(drop(torch.relu(x), rate, stream, f"hidden {number}"), operators.pop())
        return x

    def _propagated_rows(self, rows: np.ndarray) -> Features:
        wanted = self.propagated[self.place[rows]]
        if sp.issparse(wanted):
            return SparseMatrix.from_scipy(wanted, self.device)
        return torch.from_numpy(wanted).to(self.device)


def sample_columns(
    matrix: sp.csr_array, norms: np.ndarray, samples: int, generator: np.random.Generator
) -> tuple[sp.csr_array, np.ndarray]:
    """Sample columns of a matrix such that products with it are right on average.

    Parameters
    ----------
    matrix : csr_array (rows, n)
    norms : ndarray (n,)
        Columns are drawn in proportion to these; positive where the matrix has entries.
    samples : int
        How many columns to draw; all that have entries, if they are no more.
    generator : numpy.random.Generator

    Returns
    -------
    csr_array (rows, drawn), ndarray (drawn,)
        The columns drawn, divided by their probability to be, and their numbers: for any H,
        ``sampled @ H[drawn]`` has mean ``matrix @ H``.
    """
    columns, place = np.unique(matrix.indices, return_inverse=True)
    chances = inclusion(norms[columns], samples)
    # Systematic sampling: the columns, in random order, are laid end to end, each as long as its
    # chance is, and a comb with teeth one apart picks those it meets.
    order = generator.permutation(len(columns))
    ends = np.floor(np.cumsum(chances[order]) + generator.random())
    drawn = np.sort(order[np.diff(ends, prepend=0.0) > 0])
    values = (matrix.data / chances[place]).astype(np.float32)
    weighted = sp.csr_array((values, place, matrix.indptr), shape=(matrix.shape[0], len(columns)))
    return weighted[:, drawn], columns[drawn]


def inclusion(sizes: np.ndarray, samples: int) -> np.ndarray:
    """Return probabilities that sum to ``samples``, proportional to sizes but at most one."""
    chances = np.ones(len(sizes))
    open_ = np.full(len(sizes), len(sizes) > samples)
    while open_.any():
        left = samples - np.count_nonzero(~open_)
        chances[open_] = left * sizes[open_] / sizes[open_].sum()
        certain = open_ & (chances > 1.0)
        chances[certain] = 1.0
        if not certain.any():
            break
        open_ &= ~certain
    return chances
