"""The classifier of propagated rows, of which most entries may be zero."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from dropnode.methods.grand_plus.config import preset
from dropnode.methods.grand_plus.head import Head
from dropnode.ops.randomness import Dropout, Stream
from dropnode.ops.sparse_matrix import SparseMatrix, compact
from oracles import assert_rounded

ROWS, FEATURES, CLASSES = 30, 40, 70


@pytest.mark.parametrize("filled", [0.0, 0.05, 0.6])
@pytest.mark.parametrize("kernels", ["0", "1"])
def test_a_wide_layer_and_its_gradients(
    filled: float, kernels: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DROPNODE_KERNELS", kernels)
    generator = np.random.default_rng(3)
    x = (generator.random((ROWS, FEATURES)) < filled) * generator.standard_normal((ROWS, FEATURES))
    x = x.astype(np.float32)
    head = Head(FEATURES, CLASSES, preset("default", None)[1].replace(input_dropout=0.0))
    head.initialise(Stream(0))
    above = generator.standard_normal((ROWS, CLASSES)).astype(np.float32)
    logits = head(torch.from_numpy(x), Dropout([Stream(0)]))
    logits.backward(torch.from_numpy(above))
    weight, bias = head.linears[0].weight, head.linears[0].bias
    w, b = weight.detach().double().numpy(), bias.detach().double().numpy()
    assert_rounded(
        logits.detach().numpy(), x @ w.T + b, np.abs(x) @ np.abs(w).T + np.abs(b), FEATURES + 2
    )
    wide = above.astype(np.float64)
    assert_rounded(weight.grad.numpy(), wide.T @ x, np.abs(wide).T @ np.abs(x), ROWS + 1)
    assert_rounded(bias.grad.numpy(), wide.sum(axis=0), np.abs(wide).sum(axis=0), ROWS + 1)


def test_what_is_mostly_zero_becomes_sparse() -> None:
    x = torch.zeros(10, 10)
    x[0] = 1.0
    for passing in (False, True):
        made = compact(x, passing)
        assert isinstance(made, SparseMatrix)
        assert made.passing == passing
        assert torch.equal(made.to_dense(), x)
    x[1] = 2.0
    assert compact(x, passing=True) is x
    assert isinstance(compact(x), SparseMatrix)
