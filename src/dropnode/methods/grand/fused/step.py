"""The training step of the perceptron head on a CPU: losses and gradients, without autograd.

The same mathematics in plain torch, with autograd, is in ``heads.py``, ``objective.py`` and
``model.py`` beside this folder; other heads and other devices use it, and tests compare the two.
Here the step is two halves: a first layer, with or without the exchange of linear map and
propagation, and everything after it (``rows.py``). All gradients are computed along
with the losses, so that the memory of a step can be used again by the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.autograd.function import once_differentiable

from dropnode.methods.grand.fused import rows
from dropnode.methods.grand.fused.commuted import Commuted
from dropnode.methods.grand.fused.hidden_norm import HiddenNorm
from dropnode.methods.grand.fused.parts import FirstLayer, Gradients, Memory, pad
from dropnode.methods.grand.fused.propagated import Propagated
from dropnode.methods.grand.heads import DenseHead
from dropnode.ops.kernels.memory import padded
from dropnode.ops.perturb import Augmentation
from dropnode.ops.propagation import Features, SparseMatrix
from dropnode.ops.randomness import Mask, Stream


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
    task : rows.Task
        With weights that make both losses sums over nodes and views.
    """

    def __init__(
        self,
        head: DenseHead,
        features: Features,
        operator: SparseMatrix,
        order: int,
        task: rows.Task,
    ) -> None:
        self.head = head
        self.task = task
        self.memory = Memory()
        self.first: FirstLayer
        if head.commutes:
            self.first = Commuted(head, features, order)
        else:
            assert isinstance(features, SparseMatrix)
            self.first = Propagated(head, features, operator, order)
        self.parameters = dict(head.named_parameters())

    def __call__(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return the whole loss, which can be differentiated, and its two parts as they count."""
        loss: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = _Loss.apply(
            self, drawn, streams, *self.parameters.values()
        )
        return loss

    def compute(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[float, float, list[torch.Tensor]]:
        """Return the supervised loss, the consistency loss, and the gradients of their sum."""
        product, offset = self.first.forward(drawn, streams)
        supervised, consistency, gradient, bias, gradients = self._rest(product, offset, streams)
        gradients |= self.first.backward(gradient, bias)
        return supervised, consistency, [gradients[name] for name in self.parameters]

    def _rest(
        self, product: np.ndarray, offset: np.ndarray | None, streams: Sequence[Stream]
    ) -> tuple[float, float, np.ndarray, np.ndarray, Gradients]:
        head, task = self.head, self.task
        views_count, nodes = len(streams), len(product)
        hidden, classes = head.weight2.shape
        wide = product.shape[1] // views_count
        bias = np.tile(pad(head.bias1.detach().numpy()[None], wide), views_count)
        if offset is not None:
            bias += offset
        dropped = [
            Mask.draw(stream.at("hidden"), nodes, hidden, head.hidden_dropout).words
            for stream in streams
            if head.hidden_dropout > 0
        ]
        words = np.concatenate(dropped) if dropped else np.empty((0, 0), np.uint64)
        weight2 = np.zeros((wide, padded(classes)), np.float32)
        weight2[:hidden, :classes] = head.weight2.detach().numpy()
        bias2 = rows.pad_bias2(head.bias2.detach().numpy())
        norm = HiddenNorm(head.norm2, product, bias, wide) if head.norm2 is not None else None
        layer = rows.Layer(
            bias,
            weight2,
            bias2,
            classes,
            None if norm is None else norm.scale,
            None if norm is None else norm.shift,
        )
        out = product if norm is None else self.memory("gradient", *product.shape)
        found = rows.learn(product, layer, words, 1.0 - head.hidden_dropout, task, out)
        gradients = {
            "weight2": torch.from_numpy(np.ascontiguousarray(found.weight2[:hidden])),
            "bias2": torch.from_numpy(found.bias2[:classes]),
        }
        bias_gradient = found.bias1
        if norm is not None:
            bias_gradient = norm.backward(found, product, bias, out, gradients)
        summed = bias_gradient.reshape(views_count, wide).sum(axis=0)[:hidden]
        gradients["bias1"] = torch.from_numpy(summed)
        consistency = task.consistency_weight * found.consistency
        return found.supervised, consistency, out, bias_gradient, gradients


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
        # Nearly always one: the loss is what is differentiated.
        if upstream.item() == 1.0:
            return None, None, None, *ctx.gradients
        return None, None, None, *(upstream * gradient for gradient in ctx.gradients)
