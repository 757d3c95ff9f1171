"""The training step of the perceptron head on a CPU: losses and gradients, without autograd.

The step has two parts: the first layer, which multiplies before propagation (``commuted.py``) or
after it (``propagated.py``), and everything after the first layer (``kernels/rows.py``). All
gradients are computed together with the losses, so that the next step can reuse the memory.

The same computation in plain torch with autograd, for other heads and other devices, is in
``heads.py``, ``objective.py`` and ``model.py`` of ``methods/grand/``.
``tests/methods/grand/fused/test_step.py`` compares the two.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from dropnode.methods.grand.fused.common import FirstLayer, Gradients, Memory, pad
from dropnode.methods.grand.fused.commuted import Commuted
from dropnode.methods.grand.fused.hidden_norm import HiddenNorm
from dropnode.methods.grand.fused.kernels import rows
from dropnode.methods.grand.fused.propagated import Propagated
from dropnode.methods.grand.heads import DenseHead
from dropnode.ops.kernels.memory import padded
from dropnode.ops.perturb import Augmentation
from dropnode.ops.randomness import Mask, Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix


class Step:
    """A training step for one graph, one head and one objective.

    Parameters
    ----------
    head : DenseHead
        A perceptron, on the CPU.
    features : Features
    operator : SparseMatrix
        Â of the unperturbed graph.
    order : int
    views : int
        The number of augmentations of each step.
    task : rows.Task
        The labels, and weights with which both losses are sums over nodes and views.
    """

    def __init__(
        self,
        head: DenseHead,
        features: Features,
        operator: SparseMatrix,
        order: int,
        views: int,
        task: rows.Task,
    ) -> None:
        self.head = head
        self.task = task
        self.wide = padded(head.weight1.shape[1])
        self.memory = Memory()
        self.first: FirstLayer
        if head.commutes:
            self.first = Commuted(head, features, order)
        else:
            assert isinstance(features, SparseMatrix)
            self.first = Propagated(head, features, operator, order, views)
        self.parameters = dict(head.named_parameters())

    def __call__(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the loss, which can be differentiated, and its two weighted parts."""
        loss: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Loss.apply(
            self, drawn, streams, *self.parameters.values()
        )
        return loss

    def compute(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[float, float, list[torch.Tensor]]:
        """Return the supervised loss, the consistency loss, and the gradients of their sum."""
        product, offset = self.first.forward(drawn, streams)
        # The first bias of every view, plus the offset of the first layer.
        bias = np.tile(pad(self.head.bias1.detach().numpy()[None], self.wide), len(streams))
        if offset is not None:
            bias += offset
        norm = None
        if self.head.norm2 is not None:
            norm = HiddenNorm(self.head.norm2, product, bias, self.wide)
        # Without batch norm, the gradient overwrites the product.
        slopes = product if norm is None else self.memory("gradient", *product.shape)
        found = rows.learn(
            product,
            self._layer(bias, norm),
            self._hidden_words(streams, len(product)),
            1.0 - self.head.hidden_dropout,
            self.task,
            slopes,
        )
        bias_slopes, gradients = found.bias1, self._second_layer(found)
        if norm is not None:
            bias_slopes = norm.backward(found, product, bias, slopes, gradients)
        summed = bias_slopes.reshape(len(streams), self.wide).sum(axis=0)
        gradients["bias1"] = torch.from_numpy(summed[: len(self.head.bias1)])
        gradients |= self.first.backward(slopes, bias_slopes)
        consistency = self.task.consistency_weight * found.consistency
        return found.supervised, consistency, [gradients[name] for name in self.parameters]

    def _layer(self, bias: np.ndarray, norm: HiddenNorm | None) -> rows.Layer:
        """Return the padded parameters after the first linear map."""
        hidden, classes = self.head.weight2.shape
        weight2 = np.zeros((self.wide, padded(classes)), np.float32)
        weight2[:hidden, :classes] = self.head.weight2.detach().numpy()
        bias2 = rows.pad_bias2(self.head.bias2.detach().numpy())
        layer = rows.Layer(bias, weight2, bias2, classes)
        return layer if norm is None else layer._replace(scale=norm.scale, shift=norm.shift)

    def _hidden_words(self, streams: Sequence[Stream], nodes: int) -> np.ndarray:
        """Draw the masks of dropout on the hidden layer, view after view."""
        rate, hidden = self.head.hidden_dropout, len(self.head.weight2)
        if rate == 0:
            return np.empty((0, 0), np.uint64)
        return np.concatenate(
            [Mask.draw(stream.at("hidden"), nodes, hidden, rate).words for stream in streams]
        )

    def _second_layer(self, found: rows.Learnt) -> Gradients:
        """Return the gradients of the second linear map without padding."""
        hidden, classes = self.head.weight2.shape
        return {
            "weight2": torch.from_numpy(np.ascontiguousarray(found.weight2[:hidden])),
            "bias2": torch.from_numpy(found.bias2[:classes]),
        }


class _Loss(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        step: Step,
        drawn: Sequence[Augmentation],
        streams: Sequence[Stream],
        *parameters: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        supervised, consistency, ctx.gradients = step.compute(drawn, streams)
        parts = torch.tensor(supervised), torch.tensor(consistency)
        ctx.mark_non_differentiable(*parts)
        return torch.tensor(supervised + consistency), *parts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: torch.Tensor, *_: torch.Tensor) -> tuple[Any, ...]:
        # Nearly always one, because usually the loss itself is differentiated.
        if upstream.item() == 1.0:
            return None, None, None, *ctx.gradients
        return None, None, None, *(upstream * gradient for gradient in ctx.gradients)
