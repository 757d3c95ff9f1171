"""Propagated rows of new nodes, for the price of their own edges.

A new node receives messages from nodes of the training graph and sends them none. So what those
send at every hop is always the same. It is computed once, for all of them, and kept; from then on a
new node costs as much as it has edges, however far the propagation reaches.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.graph.arrays import Matrix
from dropnode.memory import check_memory
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.propagation import normalise, weighted_degrees
from dropnode.ops.push import root_of_degrees
from dropnode.ops.selection import select_columns
from dropnode.ops.sparse_matrix import Features, SparseMatrix


class _Kept(NamedTuple):
    """What the nodes of the training graph send at every hop, and the weights that led to it."""

    weight: torch.Tensor
    hops: list[torch.Tensor]


class NewRows:
    """Rows of (Σₙ wₙÂⁿ)XW for new nodes, by Horner's scheme.

    The terms of the scheme, tₖ₊₁ = w·XW + Âtₖ, are kept for the nodes of the training graph as long
    as the weights stay the same; a new node adds a row to each.

    Parameters
    ----------
    tensors : GraphTensors
        The training graph.
    shares : ndarray (order + 1,)
        The weights wₙ of the powers.
    walk : bool
        Whether the powers are those of the random walk D̃⁻¹(A + I), instead of those of Â.
    scale : float
        A factor on all features.
    adapted : callable, optional
        What is done to Â first, as a function that can be pickled.
    """

    def __init__(
        self,
        tensors: GraphTensors,
        shares: np.ndarray,
        *,
        walk: bool = False,
        scale: float = 1.0,
        adapted: Callable[[SparseMatrix], SparseMatrix] | None = None,
    ) -> None:
        self.tensors, self.shares = tensors, shares
        self.walk, self.scale, self.adapted = walk, scale, adapted
        self.kept: _Kept | None = None

    @torch.no_grad()
    def __call__(
        self, features: Features, weight: torch.Tensor, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return the rows of new nodes; they are bit-identical whatever the other rows are.

        Parameters
        ----------
        features : Features (new, features)
            Scaled.
        weight : torch.Tensor (features, columns)
            The first linear map.
        links : csr_array (new, nodes)
            Weights of the edges from nodes of the training graph.
        among : csr_array (new, new), optional
            Weights of the edges between new nodes, symmetric.
        """
        hops = self._hops(weight)
        nodes = np.unique(links.indices)
        senders = torch.from_numpy(nodes).to(weight.device, torch.int64)
        received = select_columns(links, nodes)
        if among is not None:
            received = sp.hstack([received, among], format="csr", dtype=np.float32)
        degrees = weighted_degrees(received)
        operator = self._operator_rows(nodes, received, degrees)
        start = self._start(independent_product(features, weight), degrees)
        total = start * float(self.shares[-1])
        for hop, share in zip(hops, self.shares[-2::-1], strict=True):
            total = operator @ torch.cat([hop[senders], total])
            total = total.add_(start, alpha=float(share)) if share else total
        return total / root_of_degrees(degrees, total) if self.walk else total

    def _hops(self, weight: torch.Tensor) -> list[torch.Tensor]:
        """Return t₀ to tₙ₋₁ of the training graph, which are computed if the weights are new."""
        kept = self.kept
        if kept is not None and torch.equal(weight, kept.weight):
            return kept.hops
        tensors, order = self.tensors, len(self.shares) - 1
        check_memory(
            4 * (order + 2) * tensors.num_nodes * weight.shape[1],
            f"what {tensors.num_nodes:,} nodes send to new ones",
            "predict the new nodes as a part of a graph, or train with fewer hops (order)",
        )
        operator = self._adapted(tensors.operator)
        start = self._start(tensors.features @ weight, tensors.degrees)
        total, hops = start * float(self.shares[-1]), []
        for share in self.shares[-2::-1]:
            hops.append(total)
            total = operator @ total
            total = total.add_(start, alpha=float(share)) if share else total
        # A copy, because without a norm to fold in, the weights are the parameter itself. One
        # assignment, because other threads may read what is kept.
        self.kept = _Kept(weight.clone(), hops)
        return hops

    def _start(self, product: torch.Tensor, degrees: np.ndarray) -> torch.Tensor:
        """Return what Â is applied to, given XW; Π is D̃^-½ (Σₙ wₙÂⁿ) D̃^½ for a walk."""
        if self.scale != 1.0:
            product = product * self.scale
        return product * root_of_degrees(degrees, product) if self.walk else product

    def _operator_rows(
        self, nodes: np.ndarray, received: sp.csr_array, degrees: np.ndarray
    ) -> SparseMatrix:
        """Return the new nodes' rows of Â, whose columns are ``nodes`` and the new nodes."""
        size = len(nodes) + received.shape[0]
        starts = np.concatenate([np.zeros(len(nodes), received.indptr.dtype), received.indptr])
        joined = sp.csr_array((received.data, received.indices, starts), shape=(size, size))
        all_degrees = np.concatenate([self.tensors.degrees[nodes], degrees])
        operator = normalise(joined, all_degrees)[len(nodes) :]
        return self._adapted(SparseMatrix.from_scipy(operator, self.tensors.device))

    def _adapted(self, operator: SparseMatrix) -> SparseMatrix:
        return operator if self.adapted is None else self.adapted(operator)


def independent_product(x: Features, weight: torch.Tensor) -> torch.Tensor:
    """Return a product whose rows are bit-identical whatever the other rows are.

    In a product of dense matrices, the rounding of a row depends on the number of other rows.
    """
    if isinstance(x, torch.Tensor):
        x = SparseMatrix.from_scipy(sp.csr_array(x.cpu().numpy()), x.device)
    return x @ weight
