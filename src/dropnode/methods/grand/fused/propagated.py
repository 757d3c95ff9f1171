"""The first layer of heads that normalise features or drop them out after propagation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import scipy.sparse as sp
import torch
from torch import nn

from dropnode.methods.grand.fused.common import Gradients, Memory, kept_nodes, words_of
from dropnode.methods.grand.fused.hidden_norm import update_running
from dropnode.methods.grand.fused.kernels import octets
from dropnode.methods.grand.fused.kernels.large_graphs import feature_panels, large_view
from dropnode.methods.grand.fused.kernels.small_graphs import (
    TOGETHER,
    dense_panels,
    small_adjoint,
    small_views,
)
from dropnode.methods.grand.fused.kernels.views import BLOCK, Columns, Drop, blocks
from dropnode.methods.grand.heads import FixedNorm, Head
from dropnode.ops.kernels.memory import padded
from dropnode.ops.kernels.threads import PIECES, in_parallel, in_parallel_whole, ranges
from dropnode.ops.perturb import Augmentation
from dropnode.ops.propagation import mixed_order
from dropnode.ops.randomness import Mask, Stream
from dropnode.ops.sparse_matrix import SparseMatrix

SMALL = 4096
"""The largest number of nodes for which the dense Ā (64 MB) is kept."""


class Propagated:
    """Propagates all features of every view, normalises them, drops them out and multiplies.

    The views are computed in one of two ways: from a dense Ā on small graphs
    (:class:`_SmallGraph`), or by hops (:class:`_LargeGraph`).
    """

    def __init__(
        self, head: Head, features: SparseMatrix, operator: SparseMatrix, order: int, views: int
    ) -> None:
        assert not isinstance(head.norm1, FixedNorm)
        self.head, self.operator, self.order = head, operator, order
        self.norm = head.norm1
        self.wide = padded(head.weight1.shape[1])
        self.num_features = features.shape[1]
        self.memory = Memory()
        starts, nodes, entries = (tensor.numpy() for tensor in features.by_column)
        self.columns = Columns(starts, nodes, features.values.numpy()[entries], entries)
        self.small: _SmallGraph | None = None
        dense_is_faster = self._dense_cost(views) < self._hops_cost(views)
        if self.norm is None and operator.shape[0] <= SMALL and dense_is_faster:
            self.small = _SmallGraph(self.columns, operator, order, self.memory)

    def _dense_cost(self, views: int) -> float:
        """Return the multiplications with a dense Ā; views of a group share its rows."""
        return math.ceil(views / TOGETHER) * len(self.columns.values) * self.operator.shape[0]

    def _hops_cost(self, views: int) -> float:
        """Return the time of hops over a sparse Â, in multiplications with a dense Ā.

        The two factors were measured on Cora and Citeseer for one to six views and one to eight
        hops: what hops cost beyond a dense Ā to fill, write and multiply a dense matrix for each
        view, and to add up a neighbour's row.
        """
        nodes, entries = self.operator.shape[0], len(self.operator.values)
        return views * self.num_features * (20 * nodes + 0.6 * self.order * entries)

    @cached_property
    def large(self) -> _LargeGraph:
        """The computation by hops, which is always possible; set up on first use."""
        return _LargeGraph(self.norm, self.columns, self.operator, self.order, self.memory)

    def forward(
        self, drawn: Sequence[Augmentation], streams: Sequence[Stream]
    ) -> tuple[np.ndarray, None]:
        """Return the product of every view: dropout(norm(Ā(mask ⊙ X))) W."""
        drops = self._drops(drawn, streams)
        out = self.memory("product", drawn[0].operator.shape[0], len(drawn) * self.wide)
        missing = self.wide - self.head.weight1.shape[1]
        weight = nn.functional.pad(self.head.weight1.detach(), (0, missing))
        # The dense Ā belongs to the unperturbed operator.
        unperturbed = all(view.operator is self.operator for view in drawn)
        self.used = self.small if self.small is not None and unperturbed else self.large
        self.used.forward(drawn, drops, weight, out)
        return out, None

    def backward(self, gradient: np.ndarray, offset: np.ndarray | None = None) -> Gradients:
        """Return the gradients of the first weights and of the norm before them."""
        hidden = self.head.weight1.shape[1]
        total, kept = self.used.backward(gradient)
        total = total[:, :hidden]
        if self.norm is None or kept is None:
            return {"weight1": total}
        kept = kept[:, :hidden]
        gain, shift = self.norm.weight.detach(), self.norm.bias.detach()
        weight = self.head.weight1.detach()
        return {
            "weight1": total * gain[:, None] + kept * shift[:, None],
            "norm1.weight": (total * weight).sum(dim=1),
            "norm1.bias": (kept * weight).sum(dim=1),
        }

    def _drops(self, drawn: Sequence[Augmentation], streams: Sequence[Stream]) -> list[Drop]:
        """Draw the dropout of propagated features; return it with each view's other masks."""
        nodes, rate = drawn[0].operator.shape[0], self.head.input_dropout
        words = [np.empty((nodes, 0), np.uint64)] * len(drawn)

        def draw(view: int) -> None:
            stream = streams[view].at("input")
            words[view] = Mask.draw(stream, nodes, self.num_features, rate).words

        if rate > 0:
            in_parallel(draw, range(len(drawn)))
        return [
            Drop(
                words_of([view.node_mask]),
                words_of([view.entry_mask]),
                kept,
                view.scale,
                1.0 / (1.0 - rate),
            )
            for view, kept in zip(drawn, words, strict=True)
        ]


class _SmallGraph:
    """Views from a dense Ā: each feature is a weighted sum of its rows."""

    def __init__(
        self, columns: Columns, operator: SparseMatrix, order: int, memory: Memory
    ) -> None:
        self.columns, self.memory = columns, memory
        unit = torch.eye(operator.shape[0])
        self.mixed = dense_panels(mixed_order(operator, unit, order).T.numpy())

    def forward(
        self,
        drawn: Sequence[Augmentation],
        drops: list[Drop],
        weight: torch.Tensor,
        out: np.ndarray,
    ) -> None:
        """Write the products of every view into ``out`` (nodes, views · hidden padded)."""
        self.views = self.memory("views", len(drops), len(self.mixed), len(weight), BLOCK)
        small_views(self.columns, self.mixed, drops, weight.numpy(), self.views, out)

    def backward(self, gradient: np.ndarray) -> tuple[torch.Tensor, None]:
        """Return the gradient of the weights; there is no norm."""
        return torch.from_numpy(small_adjoint(self.views, gradient)), None


class _LargeGraph:
    """Views by hops over dense features, 64 columns at a time."""

    def __init__(
        self,
        norm: nn.BatchNorm1d | None,
        columns: Columns,
        operator: SparseMatrix,
        order: int,
        memory: Memory,
    ) -> None:
        self.norm, self.columns, self.order, self.memory = norm, columns, order, memory
        self.operator = operator
        self.num_features = len(columns.starts) - 1
        # Imported here, because few configurations need it, and it takes a tenth of the time to
        # start training.
        from scipy.sparse.csgraph import reverse_cuthill_mckee

        # An order in which neighbours are close together keeps more of their rows in cache.
        matrix = sp.csr_array(operator.csr[::-1], shape=operator.shape)
        self.places = reverse_cuthill_mckee(sp.csr_matrix(matrix), symmetric_mode=True)
        self.ordered = SparseMatrix.from_scipy(matrix[self.places][:, self.places])
        # A view with its own operator keeps the original order of the nodes.
        self.own_places = np.arange(operator.shape[0], dtype=np.int32)
        self.whole: tuple[np.ndarray, np.ndarray] | None = None

    def forward(
        self,
        drawn: Sequence[Augmentation],
        drops: list[Drop],
        weight: torch.Tensor,
        out: np.ndarray,
    ) -> None:
        """Write the products of every view into ``out`` (nodes, views · hidden padded)."""
        self.drops = drops
        count, nodes = len(drawn), len(out)
        width = blocks(self.num_features) * BLOCK
        self.views = [self.memory(f"view {view}", nodes, width) for view in range(count)]
        target = torch.from_numpy(out).view(nodes, count, -1)
        weights = _Weights.of(weight, self.norm, drops[0].boost)
        statistics: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        if drops[0].entry_words.shape[1] == 0:
            # Computed here for all views, so that no two threads do it at the same time.
            self._panels(drops[0], self._places(drawn[0]))

        def make_and_multiply(view: int) -> None:
            statistics[view] = self._make(drawn[view], drops[view], self.views[view])
            seen = torch.from_numpy(self.views[view])[:, : self.num_features]
            weights.multiply(seen, drops[view].input_words, target[:, view])

        in_parallel_whole(make_and_multiply, range(count))
        if self.norm is not None:
            for view in range(count):
                mean, variance = (
                    torch.from_numpy(part)[: self.num_features] for part in statistics[view]
                )
                update_running(self.norm, mean, variance, nodes)

    def backward(self, gradient: np.ndarray) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Return the sums over nodes of value · gradient, and of the gradient of kept entries.

        Both are (features, hidden padded). The second is for the shift of a norm, and None without
        one.
        """
        count = len(self.views)
        given = gradient.reshape(len(gradient), count, -1)
        total = torch.empty(count, self.num_features, given.shape[2])
        kept = torch.zeros_like(total)

        def collect(view: int) -> None:
            part = self.memory(f"gradient {view}", *given[:, view].shape)
            np.copyto(part, given[:, view])
            slopes = torch.from_numpy(part)
            seen = torch.from_numpy(self.views[view])[:, : self.num_features]
            total[view] = _transposed_product(seen, slopes)
            words = self.drops[view].input_words
            if self.norm is not None and words.shape[1]:
                summed = octets.sum_kept(words, part, self.num_features)
                kept[view] = torch.from_numpy(summed) * self.drops[view].boost
            elif self.norm is not None:
                kept[view] = slopes.sum(dim=0)

        in_parallel_whole(collect, range(count))
        return total.sum(dim=0), None if self.norm is None else kept.sum(dim=0)

    def _make(
        self, drawn: Augmentation, drop: Drop, out: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Write one view of propagated features into ``out``; return its columns' statistics."""
        places = self._places(drawn)
        operator = self.ordered if drawn.operator is self.operator else drawn.operator
        factors = kept_nodes(drop.node_words, len(out))[0].mul_(drop.scale).numpy()
        return large_view(
            operator.csr,
            self._panels(drop, places),
            factors[places],
            places,
            self.order,
            drop,
            self.norm is not None,
            out,
        )

    def _places(self, drawn: Augmentation) -> np.ndarray:
        """Return the order of the nodes in a view's operator."""
        return self.places if drawn.operator is self.operator else self.own_places

    def _panels(self, drop: Drop, places: np.ndarray) -> np.ndarray:
        """Return the raw features as dense panels; views without an entry mask share them."""
        if drop.entry_words.shape[1]:
            return feature_panels(self.columns, places, drop.entry_words)
        if self.whole is None or self.whole[0] is not places:
            self.whole = places, feature_panels(self.columns, places, drop.entry_words)
        return self.whole[1]


@dataclass(frozen=True)
class _Weights:
    """The first weights, with the gain and the shift of the norm before them folded in.

    A kept entry is gain · value + shift. Its product with the weights has two parts: the values
    need a product of two matrices, and the shift a product of bits with a matrix.
    """

    scaled: torch.Tensor  # (features, hidden)
    shifted: torch.Tensor | None  # (hidden,): the sum over all features
    byte_sums: np.ndarray | None  # by byte, the sums over each group of eight features

    @classmethod
    def of(cls, weight: torch.Tensor, norm: nn.BatchNorm1d | None, boost: float) -> _Weights:
        """Fold a norm, if any, into weights; ``boost`` is dropout's factor on kept entries."""
        if norm is None:
            return cls(weight, None, None)
        shifted = weight * norm.bias.detach()[:, None] * boost
        scaled = weight * norm.weight.detach()[:, None]
        return cls(scaled, shifted.sum(dim=0), octets.byte_sums(shifted.numpy()))

    def multiply(self, seen: torch.Tensor, words: np.ndarray, target: torch.Tensor) -> None:
        """Write the products of a view to ``target``; ``words`` are the bits of kept entries."""

        def some_rows(piece: tuple[int, int]) -> None:
            some = slice(*piece)
            product = seen[some] @ self.scaled
            if self.byte_sums is not None and words.shape[1]:
                octets.add_kept(words[some], self.byte_sums, product.numpy())
            elif self.shifted is not None:
                product += self.shifted
            target[some] = product

        in_parallel(some_rows, ranges(len(seen), PIECES))


def _transposed_product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return leftᵀ right, computed in parallel over pieces of the rows."""
    pieces = ranges(len(left), PIECES)
    parts = torch.empty(len(pieces), left.shape[1], right.shape[1])

    def multiply(number: int) -> None:
        some = slice(*pieces[number])
        torch.mm(left[some].T, right[some], out=parts[number])

    in_parallel(multiply, range(len(pieces)))
    return parts.sum(dim=0)
