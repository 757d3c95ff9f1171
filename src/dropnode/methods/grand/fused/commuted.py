"""The first layer of heads whose first linear map commutes with propagation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np
import torch
from torch import nn

from dropnode.methods.grand.fused.common import Gradients, Memory, kept_nodes, pad, words_of
from dropnode.methods.grand.fused.kernels.masked_products import (
    multiply_views,
    multiply_views_adjoint,
)
from dropnode.methods.grand.heads import DenseHead, FixedNorm
from dropnode.ops.kernels.memory import padded
from dropnode.ops.kernels.sparse import propagate
from dropnode.ops.perturb import Augmentation, entry_mask
from dropnode.ops.propagation import mixed_order
from dropnode.ops.randomness import Mask, Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix, arrays


class Commuted:
    """Multiplies the features by the weights first, then propagates ``hidden`` columns per view."""

    def __init__(self, head: DenseHead, features: Features, order: int) -> None:
        self.head, self.features, self.order = head, features, order
        self.hidden = head.weight1.shape[1]
        self.wide = padded(self.hidden)
        self.memory = Memory()

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return Ā(mask ⊙ X W) of every view."""
        head, features = self.head, self.features
        self.drawn = drawn
        self.factors = self._column_factors(streams)
        masks = [view.entry_mask for view in drawn]
        self.scale = drawn[0].scale
        if head.drops("entries"):
            masks = [
                entry_mask(stream.at("input"), features, head.input_dropout).both(mask)
                for stream, mask in zip(streams, masks, strict=True)
            ]
            self.scale /= 1.0 - head.input_dropout
        self.node_words = words_of([view.node_mask for view in drawn])
        weights, offset = self._weights()
        nodes = features.shape[0]
        out = self.memory("product", nodes, len(drawn) * self.wide)
        if isinstance(features, SparseMatrix):
            self.entry_words = words_of(masks)
            multiply_views(
                features.csr, weights, self.node_words, self.entry_words, self.scale, out
            )
        else:
            self._multiply_dense(features, weights, masks, out)
        self._propagate(out, forward=True)
        return out, offset

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradients of the first weights and of the norm before them, if any."""
        self._propagate(gradient, forward=False)
        features, count = self.features, len(self.drawn)
        out = self.memory("weights", count, features.shape[1], self.wide)
        if isinstance(features, SparseMatrix):
            multiply_views_adjoint(
                features.csr, gradient, self.node_words, self.entry_words, self.scale, out
            )
        else:
            self._multiply_dense_adjoint(features, gradient, out)
        found = torch.from_numpy(out)[:, :, : self.hidden]
        norm = self.head.norm1
        if not isinstance(norm, FixedNorm):
            return {"weight1": self._over_columns(found)}
        # The weights occur before propagation, with the norm's gain, and again in the offset.
        shifts = torch.from_numpy(offset).view(count, self.wide)[:, None, : self.hidden]
        scaled, offsets = self._over_columns(found), self._over_columns(shifts)
        gain = norm.weight.detach() / norm.deviation
        shift = norm.bias.detach() - norm.mean * gain
        weight = self.head.weight1.detach()
        centred = (scaled - norm.mean[:, None] * offsets) / norm.deviation[:, None]
        return {
            "weight1": gain[:, None] * scaled + shift[:, None] * offsets,
            "norm1.weight": (weight * centred).sum(dim=1),
            "norm1.bias": (weight * offsets).sum(dim=1),
        }

    def _over_columns(self, found: torch.Tensor) -> torch.Tensor:
        """Sum gradients (views, features or 1, hidden) over views, with the column factors."""
        if self.factors is not None:
            found = found * self.factors[:, :, None]
        # A copy, because the next step overwrites the memory of a single view.
        if len(found) == 1:
            return found[0].clone()
        # Several times as fast as torch's sum over the first dimension.
        return reduce(torch.add, found)

    def _column_factors(self, streams: Sequence[Stream]) -> torch.Tensor | None:
        """Return the factors (views, features) of dropout on columns, or None without it."""
        head = self.head
        if not head.drops("columns"):
            return None
        kept = [
            Mask.draw(s.at("input"), 1, head.weight1.shape[0], head.input_dropout) for s in streams
        ]
        drawn = torch.cat([mask.tensor(head.weight1.device) for mask in kept])
        return drawn / (1.0 - head.input_dropout)

    def _weights(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the first weights, one set for all views or one per view, and the offset."""
        several = [None] if self.factors is None else list(self.factors)
        folded = [self.head.folded(factors) for factors in several]
        several_weights = [weight.detach() for weight, _ in folded]
        # A single set needs no copy.
        one = len(folded) == 1
        weights = several_weights[0][None] if one else torch.stack(several_weights)
        missing = self.wide - self.hidden
        if missing:
            weights = nn.functional.pad(weights, (0, missing))
        offsets = [
            pad(row.detach().numpy()[None], self.wide) for _, row in folded if row is not None
        ]
        if not offsets:
            return weights.contiguous().numpy(), None
        repeated = offsets * (len(self.drawn) // len(offsets))
        return weights.contiguous().numpy(), np.concatenate(repeated, axis=1)

    def _multiply_dense(
        self, features: torch.Tensor, weights: np.ndarray, masks: list[Mask | None], out: np.ndarray
    ) -> None:
        target = torch.from_numpy(out).view(len(out), len(self.drawn), self.wide)
        self.kept = kept_nodes(self.node_words, len(out)) * self.scale
        self.seen = [
            features if mask is None else features * mask.tensor(features.device) for mask in masks
        ]
        for some in few_rows(len(out)):
            for view, seen in enumerate(self.seen):
                weight = torch.from_numpy(weights[view if len(weights) > 1 else 0])
                kept = self.kept[view, some, None]
                torch.mul(seen[some] @ weight, kept, out=target[some, view])

    def _multiply_dense_adjoint(
        self, features: torch.Tensor, gradient: np.ndarray, out: np.ndarray
    ) -> None:
        given = torch.from_numpy(gradient).view(len(gradient), len(self.drawn), self.wide)
        out[:] = 0
        for some in few_rows(len(gradient)):
            for view, seen in enumerate(self.seen):
                masked = given[some, view] * self.kept[view, some, None]
                torch.from_numpy(out[view]).addmm_(seen[some].T, masked)

    def _propagate(self, x: np.ndarray, *, forward: bool) -> None:
        operators = [view.operator for view in self.drawn]
        if all(operator is operators[0] for operator in operators):
            matrix = operators[0].forward if forward else operators[0].backward
            propagate(arrays(matrix), x, self.order, x)
            return
        for view, operator in enumerate(operators):
            part = np.s_[:, view * self.wide : (view + 1) * self.wide]
            one = operator if forward else operator.transpose
            x[part] = mixed_order(one, torch.from_numpy(x[part]), self.order).numpy()


def few_rows(count: int) -> list[slice]:
    """Cut rows into slices whose products stay in cache."""
    return [slice(start, start + 8192) for start in range(0, count, 8192)]
