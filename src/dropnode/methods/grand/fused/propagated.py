"""The first layer where features are dropped out or normalised after propagation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from dropnode.methods.grand.fused import large, small, views
from dropnode.methods.grand.fused.hidden_norm import update_running
from dropnode.methods.grand.fused.parts import Gradients, Memory, kept_nodes, words_of
from dropnode.methods.grand.heads import FixedNorm, Head
from dropnode.ops.kernels import octets
from dropnode.ops.kernels.memory import padded
from dropnode.ops.kernels.threads import PIECES, in_parallel, in_parallel_whole, ranges
from dropnode.ops.perturb import Augmentation
from dropnode.ops.propagation import SparseMatrix, mixed_order
from dropnode.ops.randomness import Mask, Stream

SMALL = 4096
"""Nodes of a graph whose dense Ā (64 MB) is worth keeping."""


class Propagated:
    """Propagate all features of every view; drop out and normalise them; multiply."""

    def __init__(
        self, head: Head, features: SparseMatrix, operator: SparseMatrix, order: int
    ) -> None:
        self.head, self.order = head, order
        self.wide = padded(head.weight1.shape[1])
        starts, nodes, entries = (tensor.numpy() for tensor in features.by_column)
        values = features.values.numpy()[entries]
        self.columns = views.Columns(starts, nodes, values, entries)
        self.num_features = features.shape[1]
        self.memory = Memory()
        self.operator = operator
        self.mixed: np.ndarray | None = None
        self.whole: np.ndarray | None = None
        # Sums of dense rows against sums of sparse ones.
        dense = operator.shape[0] * len(values)
        sparse = order * len(operator.values) * self.num_features
        if head.norm1 is None and operator.shape[0] <= SMALL and dense < sparse:
            unit = torch.eye(operator.shape[0])
            self.mixed = small.dense_panels(mixed_order(operator, unit, order).T.numpy())
        # Imported here: few configurations need it, and it takes a tenth of a training's start.
        from scipy.sparse.csgraph import reverse_cuthill_mckee

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

    def backward(self, gradient: np.ndarray, offset: np.ndarray | None = None) -> Gradients:
        """Return the gradients of the first weights and of the norm before them."""
        head = self.head
        hidden = head.weight1.shape[1]
        given = torch.from_numpy(gradient).view(len(gradient), len(self.drops), self.wide)
        if self.small:
            total = torch.from_numpy(small.small_adjoint(self.made, gradient))
            return {"weight1": total[:, :hidden]}
        total = torch.empty(len(self.drops), self.num_features, self.wide)
        kept = torch.zeros_like(total)

        def collect(view: int) -> None:
            part = self.memory(f"gradient {view}", *given[:, view].shape)
            np.copyto(part, given[:, view])
            total[view] = _transposed_product(self.views[view], torch.from_numpy(part))
            drop = self.drops[view]
            if head.norm1 is not None and drop.input_words.shape[1]:
                summed = octets.sum_kept(drop.input_words, part, self.num_features)
                kept[view] = torch.from_numpy(summed) * drop.boost
            elif head.norm1 is not None:
                kept[view] = torch.from_numpy(part).sum(dim=0)

        in_parallel_whole(collect, range(len(self.drops)))
        total, kept = total.sum(dim=0), kept.sum(dim=0)
        if head.norm1 is None:
            return {"weight1": total[:, :hidden]}
        assert isinstance(head.norm1, nn.BatchNorm1d)
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
            in_parallel(draw, range(len(drawn)))
        return [
            views.Drop(
                words_of([view.node_mask]),
                words_of([view.entry_mask]),
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
        small.small_views(self.columns, self.mixed, self.drops, weight.numpy(), self.made, out)

    def _large(
        self, drawn: Sequence[Augmentation], weight: torch.Tensor, target: torch.Tensor
    ) -> None:
        norm = self.head.norm1
        assert not isinstance(norm, FixedNorm)
        nodes, width = target.shape[0], views.blocks(self.num_features) * views.BLOCK
        boost = self.drops[0].boost
        # Kept entries are gain · value + shift: the first part is a product of matrices, the
        # second one of the bits and a matrix.
        added: torch.Tensor | None = None
        if norm is not None:
            added = weight * norm.bias.detach()[:, None] * boost
            weight = weight * norm.weight.detach()[:, None]
        places = [
            self.places if view.operator is self.operator else np.arange(nodes, dtype=np.int32)
            for view in drawn
        ]
        self.views = [
            torch.from_numpy(self.memory(f"view {view}", nodes, width))[:, : self.num_features]
            for view in range(len(drawn))
        ]
        statistics: dict[int, tuple[np.ndarray, np.ndarray]] = {}

        def make(view: int) -> None:
            drop, operator = self.drops[view], drawn[view].operator
            factors = kept_nodes(drop.node_words, nodes)[0].mul_(drop.scale).numpy()
            statistics[view] = large.large_view(
                self.ordered.csr if operator is self.operator else operator.csr,
                self._panels(drop, places[view]),
                factors[places[view]],
                places[view],
                self.order,
                drop,
                norm is not None,
                self.memory(f"view {view}", nodes, width),
            )
            in_parallel(partial(multiply, view), ranges(nodes, PIECES))

        def multiply(view: int, piece: tuple[int, int]) -> None:
            some = slice(*piece)
            product = self.views[view][some] @ weight
            words = self.drops[view].input_words
            if sums is not None and words.shape[1]:
                octets.add_kept(words[some], sums, product.numpy())
            elif added is not None:
                product += added.sum(dim=0)
            target[some, view] = product

        sums = None if added is None else octets.byte_sums(added.numpy())
        if all(drop.entry_words.shape[1] == 0 for drop in self.drops):
            # Made once for all views, and not by several of them at the same time.
            self._panels(self.drops[0], places[0])
        in_parallel_whole(make, range(len(drawn)))
        if norm is not None:
            for view in range(len(drawn)):
                mean, variance = (
                    torch.from_numpy(part)[: self.num_features] for part in statistics[view]
                )
                update_running(norm, mean, variance, nodes)

    def _panels(self, drop: views.Drop, places: np.ndarray) -> np.ndarray:
        """Return the raw features of a view as dense panels, those of all views if they agree."""
        if drop.entry_words.shape[1] == 0 and self.whole is not None:
            return self.whole
        panels = large.feature_panels(self.columns, places, drop.entry_words)
        # Only the perturbation of edges leaves nodes in their own order, and it drops no entries.
        if drop.entry_words.shape[1] == 0:
            self.whole = panels
        return panels


def _transposed_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return leftᵀ right, by pieces of rows that threads take."""
    pieces = ranges(len(left), PIECES)
    parts = torch.empty(len(pieces), left.shape[1], right.shape[1])

    def multiply(number: int) -> None:
        some = slice(*pieces[number])
        torch.mm(left[some].T, right[some], out=parts[number])

    in_parallel(multiply, range(len(pieces)))
    return parts.sum(dim=0)
