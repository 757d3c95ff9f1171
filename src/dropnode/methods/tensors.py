"""GraphTensors: a graph in the form that methods compute with, and the parts cut out of it.

An answer for a few nodes needs their neighbourhood only, and a new node changes nothing for the
nodes it is linked to. Both follow from one rule: the entries of Â are made from the degrees of the
whole training graph, whatever part of it is at hand.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.graph.arrays import Matrix, array_members
from dropnode.graph.mapped import release
from dropnode.ops.propagation import normalise, weighted_degrees
from dropnode.ops.selection import feature_rows, row_entries, select_columns
from dropnode.ops.sparse_matrix import Features, SparseMatrix, as_csr


class GraphTensors:
    """A graph in the form that methods compute with.

    Parameters
    ----------
    features : Features
        Scaled features; sparse if the method wants them so.
    adjacency : csr_array (nodes, nodes)
        Edge weights. The node of a row receives messages from the nodes of its columns.
    degrees : ndarray (nodes,), optional
        The degree of every node, its self-loop included. By default that in ``adjacency``; a part
        of a graph keeps the degrees of the whole.
    receivers : int
        How many nodes, the last ones, receive messages but send none to those before them.
    operator : SparseMatrix, optional
        Â, if it has been made already.
    """

    def __init__(
        self,
        features: Features,
        adjacency: Matrix,
        degrees: np.ndarray | None = None,
        receivers: int = 0,
        operator: SparseMatrix | None = None,
    ) -> None:
        self.features = features
        self.adjacency = as_csr(adjacency)
        self.receivers = receivers
        if degrees is not None:
            self.degrees = degrees
        if operator is not None:
            self.operator = operator

    @property
    def num_nodes(self) -> int:
        """Number of nodes."""
        return self.features.shape[0]

    @property
    def device(self) -> torch.device:
        """Where the tensors live."""
        features = self.features
        return (features.values if isinstance(features, SparseMatrix) else features).device

    @cached_property
    def degrees(self) -> np.ndarray:
        """The weighted degree of every node, its self-loop included."""
        return weighted_degrees(self.adjacency)

    @cached_property
    def operator(self) -> SparseMatrix:
        """Â, which includes an entry of every node for itself."""
        normalised = normalise(self.adjacency, self.degrees)
        release(*array_members(self.adjacency))
        return SparseMatrix.from_scipy(normalised, self.device, symmetric=not self.receivers)

    @cached_property
    def edges(self) -> tuple[torch.Tensor, torch.Tensor]:
        """(source, target) of every edge in each direction, without self-loops; their weights."""
        entries = self.adjacency.tocoo()
        target, source = (torch.from_numpy(end.astype(np.int64)) for end in entries.coords)
        weights = torch.from_numpy(entries.data.astype(np.float32))
        return torch.stack([source, target]).to(self.device), weights.to(self.device)

    @cached_property
    def looped_edges(self) -> torch.Tensor:
        """(source, target) of every entry of Â: the edges, and a self-loop of every node."""
        return self.operator.edge_index()

    def around(self, rows: np.ndarray, hops: int) -> tuple[GraphTensors, np.ndarray]:
        """Return the part of the graph within some hops of some nodes, and their places in it.

        A part that would be most of the graph is the graph itself.
        """
        nodes = self.reached(rows, hops)
        if 2 * len(nodes) > self.num_nodes:
            return self, rows
        return self.part(nodes), np.searchsorted(nodes, rows)

    def reached(self, rows: np.ndarray, hops: int) -> np.ndarray:
        """Return, in order, the nodes within some hops of some nodes."""
        nodes = newest = np.unique(rows)
        for _ in range(hops):
            senders = np.unique(self.adjacency.indices[row_entries(self.adjacency, newest)[0]])
            newest = np.setdiff1d(senders, nodes, assume_unique=True)
            if len(newest) == 0:
                break
            nodes = np.union1d(nodes, newest)
        return nodes

    def part(self, nodes: np.ndarray) -> GraphTensors:
        """Return the graph of some nodes, given in order, with the degrees they have here."""
        adjacency = select_columns(self.adjacency, nodes, rows=nodes)
        return GraphTensors(feature_rows(self.features, nodes), adjacency, self.degrees[nodes])

    def joined_by(
        self, features: Features, links: Matrix, among: Matrix | None = None
    ) -> GraphTensors:
        """Return the graph with new nodes behind its own, to which they send no messages.

        Parameters
        ----------
        features : Features (new, features)
            Scaled, and held as those of this graph are.
        links : csr_array (new, nodes)
            Weights of the edges from nodes of this graph to new ones.
        among : csr_array (new, new), optional
            Weights of the edges between new nodes, in both directions.
        """
        new = links.shape[0]
        links = as_csr(links)
        received = links if among is None else sp.hstack([links, among], format="csr")
        return GraphTensors(
            _stacked(self.features, features),
            _rows_below(self.adjacency, received),
            np.concatenate([self.degrees, weighted_degrees(received)]),
            receivers=self.receivers + new,
        )


def _rows_below(adjacency: sp.csr_array, received: sp.csr_array) -> sp.csr_array:
    """Return a square matrix with further rows, and as many columns, that are empty above them."""
    size = adjacency.shape[0] + received.shape[0]
    # SciPy's stacking takes milliseconds, however small the matrices are.
    parts = (
        np.concatenate([adjacency.data, received.data]),
        np.concatenate([adjacency.indices, received.indices]),
        np.concatenate([adjacency.indptr, adjacency.nnz + received.indptr[1:]]),
    )
    return sp.csr_array(parts, shape=(size, size))


def _stacked(known: Features, new: Features) -> Features:
    """Return the features of known nodes followed by those of new ones."""
    if isinstance(known, SparseMatrix):
        assert isinstance(new, SparseMatrix)
        both = sp.vstack([known.to_scipy(), new.to_scipy()], format="csr")
        return SparseMatrix.from_scipy(both, known.values.device)
    assert isinstance(new, torch.Tensor)
    return torch.cat([known, new])
