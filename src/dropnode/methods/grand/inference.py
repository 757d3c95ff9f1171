"""Logits of some nodes by a perceptron head, without the work for all other nodes.

The logits of a node depend only on its own row of ĀX. For nodes of the training graph these rows
never change, so they are computed once and kept for all validations. A new node receives messages
from nodes of the training graph; their state at every hop is kept too, so that the cost of a new
node depends only on its own links.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.graph.arrays import Matrix
from dropnode.methods.grand.heads import DenseHead
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.perturb import Augmentation, Perturbation
from dropnode.ops.propagation import normalise, propagated_rows, weighted_degrees
from dropnode.ops.selection import select_columns
from dropnode.ops.sparse_matrix import Features, SparseMatrix, compact


def watch_rows(
    head: DenseHead, view: Augmentation, features: Features, rows: np.ndarray, order: int
) -> Callable[[], torch.Tensor]:
    """Return a function that returns the current logits of some nodes; it keeps their ĀX."""
    wanted = torch.from_numpy(rows.copy()).to(head.weight1.device)
    propagated = compact(propagated_rows(view.operator, features, wanted, order) * view.scale)

    def logits() -> torch.Tensor:
        head.eval()
        with torch.no_grad():
            weight, offset = head.folded()
            hidden = propagated @ weight
            if offset is not None:
                hidden = hidden + offset
            return head.rest(hidden[:, None], None, None)[:, 0]

    return logits


class NewRows:
    """The logits of new nodes that receive messages from a training graph and send it none.

    Propagation is computed by Horner's scheme, tₖ₊₁ = XW + Âtₖ. The tₖ of the training graph are
    kept as long as the weights stay the same; a new node adds a row to each.

    Parameters
    ----------
    head : DenseHead
        A perceptron.
    perturbation : Perturbation
    tensors : GraphTensors
        The training graph.
    order : int
    """

    def __init__(
        self, head: DenseHead, perturbation: Perturbation, tensors: GraphTensors, order: int
    ) -> None:
        self.head, self.perturbation, self.tensors, self.order = head, perturbation, tensors, order
        self.weight = torch.empty(0)
        self.hops: list[torch.Tensor] = []

    @torch.no_grad()
    def __call__(
        self, features: Features, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return the logits of new nodes.

        They are given by their scaled features, the weights of their links (new, nodes) and, if
        there are any, of the edges between them (new, new).
        """
        head = self.head
        weight, offset = head.folded()
        self._keep_hops(weight)
        nodes = np.unique(links.indices)
        senders = torch.from_numpy(nodes).to(weight.device, torch.int64)
        view = self.perturbation.inference(self._operator_rows(nodes, links, among))
        start = total = view.mask_nodes(_product(features, weight))
        for hop in self.hops:
            total = start + view.operator @ torch.cat([hop[senders], total])
        hidden = total / (self.order + 1)
        if offset is not None:
            hidden = hidden + offset
        activated = head.activated(hidden[:, None], None)[:, 0]
        return _product(activated, head.weight2) + head.bias2

    def _keep_hops(self, weight: torch.Tensor) -> None:
        """Compute t₀ to tₖ₋₁ of the training graph, unless they are known for these weights."""
        if torch.equal(weight, self.weight):
            return
        view = self.perturbation.inference(self.tensors.operator)
        start = total = view.mask_nodes(self.tensors.features @ weight)
        hops = []
        for _ in range(self.order):
            hops.append(total)
            total = start + view.operator @ total
        # A copy, because without a norm to fold in, the weights are the parameter itself.
        self.weight, self.hops = weight.clone(), hops

    def _operator_rows(
        self, nodes: np.ndarray, links: sp.csr_array, among: Matrix | None
    ) -> SparseMatrix:
        """Return the new nodes' rows of Â, whose columns are ``nodes`` and the new nodes."""
        own = select_columns(links, nodes)
        if among is not None:
            own = sp.hstack([own, among], format="csr", dtype=np.float32)
        size = len(nodes) + own.shape[0]
        starts = np.concatenate([np.zeros(len(nodes), own.indptr.dtype), own.indptr])
        joined = sp.csr_array((own.data, own.indices, starts), shape=(size, size))
        degrees = np.concatenate([self.tensors.degrees[nodes], weighted_degrees(own)])
        operator = normalise(joined, degrees)[len(nodes) :]
        return SparseMatrix.from_scipy(operator, self.tensors.device)


def _product(x: Features, weight: torch.Tensor) -> torch.Tensor:
    """Return a product whose rows are bit-identical whatever the other rows are.

    In a product of dense matrices, the rounding of a row depends on the number of other rows.
    """
    if isinstance(x, torch.Tensor):
        x = SparseMatrix.from_scipy(sp.csr_array(x.cpu().numpy()), x.device)
    return x @ weight
