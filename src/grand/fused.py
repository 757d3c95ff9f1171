"""The training step of the perceptron head on a CPU: losses and gradients, without autograd.

The same mathematics in plain torch, with autograd, is in :mod:`grand.nn`, :mod:`grand.objective`
and :class:`grand.method.Grand`; other heads and other devices use it, and tests compare the two.
Here the step is two halves: a first layer, with or without the exchange of linear map and
propagation, and everything after it (:mod:`grand.kernels.rows`). All gradients are computed along
with the losses, so that the memory of a step can be used again by the next.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any, Protocol

import numpy as np
import scipy.sparse as sp
import torch
from scipy.sparse.csgraph import reverse_cuthill_mckee
from torch import nn
from torch.autograd.function import once_differentiable

from grand.kernels import aligned, padded, rows, spread, views
from grand.kernels.sparse import multiply_views, multiply_views_adjoint, propagate
from grand.nn import DenseHead, FixedNorm
from grand.perturb import Augmentation, entry_mask
from grand.propagation import Features, SparseMatrix, arrays, mixed_order
from grand.randomness import Mask, Stream

Gradients = dict[str, torch.Tensor]
"""Gradients by the name of the head's parameter."""

SMALL = 4096
"""Nodes of a graph whose dense Ā (64 MB) is worth keeping."""


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
        self.memory = _Memory()
        self.first: _FirstLayer
        if head.commutes:
            self.first = _Commuted(head, features, order)
        else:
            assert isinstance(features, SparseMatrix)
            self.first = _Propagated(head, features, operator, order)
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
        bias = np.tile(_pad(head.bias1.detach().numpy()[None], wide), views_count)
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
        norm = _Norm(head.norm2, product, bias, wide) if head.norm2 is not None else None
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
        return None, None, None, *(upstream * gradient for gradient in ctx.gradients)


class _FirstLayer(Protocol):
    """From the raw features to the products of the first linear map, and back to its gradient."""

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """Return (nodes, views · hidden padded), and a row to add to it, if any."""
        ...

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradients of the parameters; ``gradient`` may be written over."""
        ...


class _Commuted:
    """Multiply first, then propagate ``hidden`` columns a view."""

    def __init__(self, head: DenseHead, features: Features, order: int) -> None:
        self.head, self.features, self.order = head, features, order
        self.hidden = head.weight1.shape[1]
        self.wide = padded(self.hidden)
        self.memory = _Memory()

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
        self.node_words = _words([view.node_mask for view in drawn])
        weights, offset = self._weights()
        nodes = features.shape[0]
        out = self.memory("product", nodes, len(drawn) * self.wide)
        if isinstance(features, SparseMatrix):
            self.entry_words = _words(masks)
            multiply_views(
                features.csr, weights, self.node_words, self.entry_words, self.scale, out
            )
        else:
            self._multiply_dense(features, weights, masks, out)
        self._propagate(out, forward=True)
        return out, offset

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradient of the first weights."""
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
        # The weights count once before propagation, with the norm's gain, and once in the offset.
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
        """Sum what was found for each view, (views, features or 1, hidden), where it counts."""
        if self.factors is not None:
            found = found * self.factors[:, :, None]
        # One after the other: several times as fast as torch's sum over the first dimension.
        return reduce(torch.add, found)

    def _column_factors(self, streams: Sequence[Stream]) -> torch.Tensor | None:
        """Return what dropout on columns multiplies each feature of each view with."""
        head = self.head
        if not head.drops("columns"):
            return None
        kept = [
            Mask.draw(s.at("input"), 1, head.weight1.shape[0], head.input_dropout) for s in streams
        ]
        drawn = torch.cat([mask.tensor(head.weight1.device) for mask in kept])
        return drawn / (1.0 - head.input_dropout)

    def _weights(self) -> tuple[np.ndarray, np.ndarray | None]:
        """Return the first weights, one set for all views or one each, and what to add."""
        several = [None] if self.factors is None else list(self.factors)
        folded = [self.head.folded(factors) for factors in several]
        weights = torch.stack([weight.detach() for weight, _ in folded])
        missing = self.wide - self.hidden
        if missing:
            weights = nn.functional.pad(weights, (0, missing))
        offsets = [
            _pad(row.detach().numpy()[None], self.wide) for _, row in folded if row is not None
        ]
        if not offsets:
            return weights.contiguous().numpy(), None
        repeated = offsets * (len(self.drawn) // len(offsets))
        return weights.contiguous().numpy(), np.concatenate(repeated, axis=1)

    def _multiply_dense(
        self, features: torch.Tensor, weights: np.ndarray, masks: list[Mask | None], out: np.ndarray
    ) -> None:
        target = torch.from_numpy(out).view(len(out), len(self.drawn), self.wide)
        self.kept = _kept_nodes(self.node_words, len(out)) * self.scale
        self.seen = [
            features if mask is None else features * mask.tensor(features.device) for mask in masks
        ]
        for some in _few_rows(len(out)):
            for view, seen in enumerate(self.seen):
                weight = torch.from_numpy(weights[view if len(weights) > 1 else 0])
                kept = self.kept[view, some, None]
                torch.mul(seen[some] @ weight, kept, out=target[some, view])

    def _multiply_dense_adjoint(
        self, features: torch.Tensor, gradient: np.ndarray, out: np.ndarray
    ) -> None:
        given = torch.from_numpy(gradient).view(len(gradient), len(self.drawn), self.wide)
        out[:] = 0
        for some in _few_rows(len(gradient)):
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


class _Propagated:
    """Propagate all features of every view; drop out and normalise them; multiply."""

    def __init__(
        self, head: DenseHead, features: SparseMatrix, operator: SparseMatrix, order: int
    ) -> None:
        self.head, self.order = head, order
        self.wide = padded(head.weight1.shape[1])
        starts, nodes, entries = (tensor.numpy() for tensor in features.by_column)
        values = features.values.numpy()[entries]
        self.columns = views.Columns(starts, nodes, values, entries)
        self.num_features = features.shape[1]
        self.memory = _Memory()
        self.operator = operator
        self.mixed: np.ndarray | None = None
        self.whole: np.ndarray | None = None
        # Sums of dense rows against sums of sparse ones.
        dense = operator.shape[0] * len(values)
        sparse = order * len(operator.values) * self.num_features
        if head.norm1 is None and operator.shape[0] <= SMALL and dense < sparse:
            unit = torch.eye(operator.shape[0])
            self.mixed = views.dense_panels(mixed_order(operator, unit, order).T.numpy())
        # Neighbours near each other, so that fewer of the rows they share leave the cache.
        matrix = sp.csr_array(operator.csr[::-1], shape=operator.shape)
        self.places = reverse_cuthill_mckee(sp.csr_matrix(matrix), symmetric_mode=True)
        self.ordered = SparseMatrix.from_scipy(matrix[self.places][:, self.places])

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, None]:
        """Return (dropped out, normalised Ā(mask ⊙ X)) W of every view."""
        head, nodes = self.head, drawn[0].operator.shape[0]
        self.drops = self._draw(drawn, streams)
        out = self.memory("product", nodes, len(drawn) * self.wide)
        target = torch.from_numpy(out).view(nodes, len(drawn), self.wide)
        missing = self.wide - head.weight1.shape[1]
        weight = nn.functional.pad(head.weight1.detach(), (0, missing))
        self.small = self.mixed is not None and all(v.operator is self.operator for v in drawn)
        if self.small:
            self._small(weight, out)
        else:
            self._large(drawn, weight, target)
        return out, None

    def backward(self, gradient: np.ndarray, offset: np.ndarray) -> Gradients:
        """Return the gradients of the first weights and of the norm before them."""
        head = self.head
        hidden = head.weight1.shape[1]
        given = torch.from_numpy(gradient).view(len(gradient), len(self.drops), self.wide)
        if self.small:
            total = torch.from_numpy(views.small_adjoint(self.made, gradient))
            return {"weight1": total[:, :hidden]}
        total = torch.zeros(self.num_features, self.wide)
        for view, seen in enumerate(self.views):
            total.addmm_(seen.T, given[:, view])
        if head.norm1 is None:
            return {"weight1": total[:, :hidden]}
        assert isinstance(head.norm1, nn.BatchNorm1d)
        kept = torch.zeros_like(total)
        for view, drop in enumerate(self.drops):
            part = given[:, view].contiguous()
            if drop.input_words.shape[1]:
                summed = views.sum_kept(drop.input_words, part.numpy(), self.num_features)
                kept += torch.from_numpy(summed) * drop.boost
            else:
                kept += part.sum(dim=0)
        total, kept = total[:, :hidden], kept[:, :hidden]
        gain, shift, weight = (
            tensor.detach() for tensor in (head.norm1.weight, head.norm1.bias, head.weight1)
        )
        return {
            "weight1": total * gain[:, None] + kept * shift[:, None],
            "norm1.weight": (total * weight).sum(dim=1),
            "norm1.bias": (kept * weight).sum(dim=1),
        }

    def _draw(self, drawn: Sequence[Augmentation], streams: Sequence[Stream]) -> list[views.Drop]:
        """Return what every view drops before and after propagation."""
        nodes, rate = drawn[0].operator.shape[0], self.head.input_dropout
        words = [np.empty((nodes, 0), np.uint64)] * len(drawn)

        def draw(view: int) -> None:
            stream = streams[view].at("input")
            words[view] = Mask.draw(stream, nodes, self.num_features, rate).words

        if rate > 0:
            spread(draw, range(len(drawn)))
        return [
            views.Drop(
                _words([view.node_mask]),
                _words([view.entry_mask]),
                kept,
                view.scale,
                1.0 / (1.0 - rate),
            )
            for view, kept in zip(drawn, words, strict=True)
        ]

    def _small(self, weight: torch.Tensor, out: np.ndarray) -> None:
        assert self.mixed is not None
        blocks = len(self.mixed)
        self.made = self.memory("views", len(self.drops), blocks, self.num_features, views.BLOCK)
        views.small_views(self.columns, self.mixed, self.drops, weight.numpy(), self.made, out)

    def _large(
        self, drawn: Sequence[Augmentation], weight: torch.Tensor, target: torch.Tensor
    ) -> None:
        norm = self.head.norm1
        assert not isinstance(norm, FixedNorm)
        nodes, width = target.shape[0], views.blocks(self.num_features) * views.BLOCK
        self.views = []
        for view, (augmentation, drop) in enumerate(zip(drawn, self.drops, strict=True)):
            made = self.memory(f"view {view}", nodes, width)
            same = augmentation.operator is self.operator
            places = self.places if same else np.arange(nodes, dtype=np.int32)
            factors = _kept_nodes(drop.node_words, nodes)[0].mul_(drop.scale).numpy()
            statistics = views.large_view(
                self.ordered.csr if same else augmentation.operator.csr,
                self._panels(drop, places),
                factors[places],
                places,
                self.order,
                drop,
                norm is not None,
                made,
            )
            seen = torch.from_numpy(made)[:, : self.num_features]
            self.views.append(seen)
            if norm is None:
                target[:, view] = seen @ weight
                continue
            mean, variance = (torch.from_numpy(part)[: self.num_features] for part in statistics)
            _update_running(norm, mean, variance, nodes)
            gain, shift = norm.weight.detach()[:, None], norm.bias.detach()[:, None]
            # Kept entries are gain · value + shift: the first part is a product of matrices, the
            # second one of the bits and a matrix.
            product = seen @ (weight * gain)
            added = weight * shift * drop.boost
            if drop.input_words.shape[1]:
                views.add_kept(drop.input_words, added.numpy(), product.numpy())
            else:
                product += added.sum(dim=0)
            target[:, view] = product

    def _panels(self, drop: views.Drop, places: np.ndarray) -> np.ndarray:
        """Return the raw features of a view as dense panels, those of all views if they agree."""
        if drop.entry_words.shape[1] == 0 and self.whole is not None:
            return self.whole
        panels = views.feature_panels(self.columns, places, drop.entry_words)
        # Only the perturbation of edges leaves nodes in their own order, and it drops no entries.
        if drop.entry_words.shape[1] == 0:
            self.whole = panels
        return panels


class _Norm:
    """Batch norm of the hidden layer: each view by statistics of its own."""

    def __init__(
        self, norm: nn.BatchNorm1d, product: np.ndarray, bias: np.ndarray, wide: int
    ) -> None:
        self.norm, self.wide = norm, wide
        self.nodes, width = product.shape
        self.mean, variance = rows.activation_statistics(product, bias)
        self.inverse = 1.0 / np.sqrt(variance + norm.eps)
        views_count, hidden = width // wide, norm.num_features
        for view in range(views_count):
            part = slice(view * wide, view * wide + hidden)
            mean, variances = (torch.from_numpy(x[part]).float() for x in (self.mean, variance))
            _update_running(norm, mean, variances, self.nodes)
        gain = np.tile(_pad(norm.weight.detach().numpy()[None], wide), views_count)[0]
        shift = np.tile(_pad(norm.bias.detach().numpy()[None], wide), views_count)[0]
        factor = gain * self.inverse
        self.scale = factor.astype(np.float32)[None]
        self.shift = (shift - self.mean * factor).astype(np.float32)[None]

    def backward(
        self,
        found: rows.Gradients,
        product: np.ndarray,
        bias: np.ndarray,
        out: np.ndarray,
        gradients: Gradients,
    ) -> np.ndarray:
        """Turn ``out`` into the gradient of the product; return that of the bias."""
        plain = found.shift.astype(np.float64)
        weighted = self.inverse * (found.scale - self.mean * plain)
        hidden = self.norm.num_features
        for name, part in (("norm2.bias", plain), ("norm2.weight", weighted)):
            summed = part.reshape(-1, self.wide).sum(axis=0)[:hidden]
            gradients[name] = torch.from_numpy(summed.astype(np.float32))
        factor = self.scale.astype(np.float64)[0]
        slope = -factor * self.inverse * weighted / self.nodes
        offset = -factor * plain / self.nodes - slope * self.mean
        slopes = slope.astype(np.float32)[None]
        offsets = offset.astype(np.float32)[None]
        return rows.through_norm(product, bias, self.scale, slopes, offsets, out)


def _update_running(
    norm: nn.BatchNorm1d, mean: torch.Tensor, variance: torch.Tensor, nodes: int
) -> None:
    """Move a batch norm's running statistics as torch does, by the unbiased variance."""
    assert norm.running_mean is not None
    assert norm.running_var is not None
    assert norm.num_batches_tracked is not None
    assert norm.momentum is not None
    norm.running_mean.lerp_(mean, norm.momentum)
    norm.running_var.lerp_(variance * (nodes / max(nodes - 1, 1)), norm.momentum)
    norm.num_batches_tracked += 1


class _Memory:
    """Arrays by name that are handed out again and again."""

    def __init__(self) -> None:
        self.held: dict[str, np.ndarray] = {}

    def __call__(self, name: str, *shape: int) -> np.ndarray:
        held = self.held.get(name)
        if held is None or held.shape != shape:
            held = self.held[name] = aligned(*shape)
        return held


def _words(masks: Sequence[Mask | None]) -> np.ndarray:
    """Return the words of one-row masks below each other; no columns if nothing is dropped."""
    given = [mask.words for mask in masks if mask is not None]
    return np.concatenate(given) if given else np.empty((len(masks), 0), np.uint64)


def _few_rows(count: int) -> list[slice]:
    """Cut rows into slices whose products stay in cache."""
    return [slice(start, start + 8192) for start in range(0, count, 8192)]


def _kept_nodes(words: np.ndarray, nodes: int) -> torch.Tensor:
    """Return zeros and ones, (views, nodes), for words of node masks."""
    if words.shape[1] == 0:
        return torch.ones(len(words), nodes)
    return Mask(words, nodes).tensor(torch.device("cpu")).float()


def _pad(row: np.ndarray, columns: int) -> np.ndarray:
    """Return a row with zeros behind it."""
    wide = np.zeros((1, columns), np.float32)
    wide[:, : row.shape[1]] = row
    return wide
