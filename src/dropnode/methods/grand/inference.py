"""Logits of some nodes by a perceptron head, without the work for all other nodes.

The logits of a node depend only on its own row of ĀX. For nodes of the training graph these rows
never change, so they are computed once and kept for all validations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch

from dropnode.methods.grand.heads import DenseHead
from dropnode.ops.perturb import Augmentation
from dropnode.ops.propagation import propagated_rows
from dropnode.ops.sparse_matrix import Features, compact


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
