"""Grand: the method of the paper, composed of perturbation, propagation, head and objective."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import torch

from dropnode.graph import Graph, Split
from dropnode.graph.arrays import Matrix
from dropnode.methods.base import NodeClassifier, Sizes
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.fused.autograd import First
from dropnode.methods.grand.fused.kernels.rows import Task
from dropnode.methods.grand.fused.step import Step
from dropnode.methods.grand.heads import AttentionHead, DenseHead, FixedNorm, Head
from dropnode.methods.grand.inference import watch_rows
from dropnode.methods.grand.objective import consistency_loss, summand_weights, supervised_loss
from dropnode.methods.new_rows import NewRows, independent_product
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.kernels.memory import usable
from dropnode.ops.kernels.threads import Threads
from dropnode.ops.perturb import PERTURBATIONS, Augmentation, Perturbation, entry_mask, masked
from dropnode.ops.propagation import column_statistics, mixed_order
from dropnode.ops.randomness import Dropout, Mask, Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.training import Phase
from dropnode.training.optimiser import Adam

SMALL_WORK = 30_000_000
"""Below this many multiplications per propagation (about 2 ms), torch uses one thread."""

TINY_WORK = 5_000_000
"""Below this many multiplications per propagation, kernels use one thread too."""


class Grand(NodeClassifier):
    """Graph random neural network.

    Parameters
    ----------
    config : GrandConfig
    class_weights, node_weights, device
        As of :class:`~dropnode.methods.base.NodeClassifier`.
    """

    name = "grand"
    config_type = GrandConfig
    config: GrandConfig
    _step: Step | None = None
    _first: First | None = None
    _new_rows: NewRows | None = None

    def __init__(
        self,
        config: GrandConfig,
        *,
        class_weights: np.ndarray | None = None,
        node_weights: np.ndarray | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(
            config, class_weights=class_weights, node_weights=node_weights, device=device
        )
        # Only the layers of the attention head use torch's generator; the rest uses streams.
        self.draws_from_torch = config.head == "gat"
        # They once summed messages in another order.
        self.revision = 2 if config.head == "gat" else 1
        self.perturbation = PERTURBATIONS[config.perturbation](
            config.drop_rate, config.mask_scaling
        )

    @property
    def head(self) -> Head:
        """The network: a head that reads propagated features."""
        head: Head = self.network
        return head

    @property
    def hops(self) -> int:
        """One hop per propagation step, and one per graph layer of the head."""
        return self.config.order + (2 if self.head.graph_layers else 0)

    @property
    def sparse_features(self) -> bool | None:
        """Whether to store features as sparse; None to store them as they are.

        The kernel that propagates features reads them as a sparse matrix.
        """
        # Dropout of feature entries draws one bit per stored entry, so the storage must not change.
        if self.head.commutes or self.config.perturbation == "dropout":
            return None
        return usable(self.device)

    def make_network(self, sizes: Sizes) -> Head:
        """Return the head of the configuration; :meth:`prepare_training` draws its weights."""
        config = self.config
        widths = sizes.features, sizes.classes, config.hidden
        rates = config.input_dropout, config.hidden_dropout
        if config.head == "gat":
            return AttentionHead(
                *widths,
                *rates,
                attention_heads=config.attention_heads,
                input_dropout_on=config.input_dropout_on,
            )
        return DenseHead(
            *widths,
            *rates,
            batch_norm=config.batch_norm,
            graph_layers=config.head == "gcn",
            input_norm=config.input_norm,
            input_dropout_on=config.input_dropout_on,
        )

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Draw the initial weights, and choose between kernels and plain torch."""
        self.head.initialise(self.config.initialisation, stream)
        if isinstance(self.head.norm1, FixedNorm):
            view = self.perturbation.inference(self.tensors.operator)
            statistics = column_statistics(
                view.operator, self.tensors.features, self.config.order, view.scale
            )
            self.head.norm1.fit(*statistics)
        self._choose_path()
        self.threads = self._worthwhile_threads()

    def _choose_path(self) -> None:
        """Choose between kernels and plain torch for a training step.

        On a CPU, kernels compute the whole step of a perceptron, and the first layer of a graph
        head if the features themselves have to be propagated. Plain torch computes the rest.
        """
        self._step = self._first = None
        head, tensors = self.head, self.tensors
        order, views = self.config.order, self.config.augmentations
        # The kernels that propagate features read a sparse matrix, and have no fixed norm.
        propagates = isinstance(tensors.features, SparseMatrix) and not isinstance(
            head.norm1, FixedNorm
        )
        if not usable(self.device) or not (head.commutes or propagates):
            return
        if isinstance(head, DenseHead) and not head.graph_layers:
            self._step = Step(head, tensors.features, tensors.operator, order, views, self._task())
        elif not head.commutes:
            assert isinstance(tensors.features, SparseMatrix)
            self._first = First(head, tensors.features, tensors.operator, order, views)

    def _task(self) -> Task:
        """Return the labels and the weights of both losses for the kernels."""
        config, nodes = self.config, self.tensors.num_nodes
        labels = np.zeros(nodes, dtype=np.int64)
        labels[self.train_rows.numpy()] = self.train_targets.numpy()
        label_weights, agreement = summand_weights(
            nodes, self.train_rows, config, self.train_weights
        )
        return Task(labels, label_weights, agreement, config.temperature)

    def _worthwhile_threads(self) -> Threads:
        """Return limits on threads: on a small graph, starting a second one costs more time."""
        config, operator = self.config, self.tensors.operator
        if self._step is None:
            return Threads()
        if not self.head.commutes:
            # Kernels do most of the work, and have their own threads.
            return Threads(torch=1)
        work = config.augmentations * config.hidden * config.order * len(operator.values)
        return Threads(
            torch=1 if work < SMALL_WORK else None, kernels=1 if work < TINY_WORK else None
        )

    def phases(self) -> list[Phase]:
        """Return the only phase: Adam on all weights, until validation stops it."""
        config = self.config
        optimiser = Adam(
            self.head.parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        return [self.until_validated("train", optimiser)]

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of S augmentations, and its supervised and consistency parts."""
        self.head.train()
        config, tensors = self.config, self.tensors
        streams = [stream.at("augmentation", s) for s in range(config.augmentations)]
        views = [
            self.perturbation.draw(s.at("perturbation"), tensors.operator, tensors.features)
            for s in streams
        ]
        if self._step is not None:
            total, supervised, weighted = self._step(views, streams)
            if config.consistency_weight == 0:
                return total, {"supervised": supervised}
            consistency = weighted / config.consistency_weight
            return total, {"supervised": supervised, "consistency": consistency}
        logs = self.classify_views(tensors, views, streams).log_softmax(dim=-1)
        supervised = supervised_loss(
            logs[self.train_rows], self.train_targets, config.reduction, self.train_weights
        )
        if config.consistency_weight == 0:
            return supervised, {"supervised": supervised}
        consistency = consistency_loss(logs, config.temperature, config.reduction)
        total = supervised + config.consistency_weight * consistency
        return total, {"supervised": supervised, "consistency": consistency}

    def classify_views(
        self, tensors: GraphTensors, views: list[Augmentation], streams: list[Stream] | None = None
    ) -> torch.Tensor:
        """Return the logits (n, S, C) of S views; with streams, dropout is on."""
        head, order = self.head, self.config.order
        # Without dropout, even a batch norm can be folded into the linear map.
        if head.commutes or streams is None:
            hidden = _multiply_first(tensors.features, head, views, streams, order)
            return head.rest(hidden, tensors.operator, Dropout(streams) if streams else None)
        if self._first is not None:
            return head.rest(self._first(views, streams), tensors.operator, Dropout(streams))
        logits = []
        for s, view in enumerate(views):
            propagated = _propagate_first(tensors.features, view, order)
            logits.append(head(propagated, tensors.operator, Dropout([streams[s]])))
        return torch.stack(logits, dim=1)

    def classify(self, tensors: GraphTensors) -> torch.Tensor:
        """Return the logits of unperturbed features."""
        return self.classify_views(tensors, [self.perturbation.inference(tensors.operator)])[:, 0]

    def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
        """Return a function that returns the current logits of some training-graph nodes."""
        if not isinstance(self.head, DenseHead) or self.head.graph_layers:
            return super().watch(rows)
        # ĀX never changes, and a perceptron's logits of a node depend only on its row of ĀX.
        view = self.perturbation.inference(self.tensors.operator)
        return watch_rows(self.head, view, self.tensors.features, rows, self.config.order)

    def new_logits(
        self, features: Matrix, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return logits of new nodes; with a perceptron, the cost depends only on their edges."""
        if not isinstance(self.head, DenseHead) or self.head.graph_layers:
            return super().new_logits(features, links, among)
        held, head, order = self.held(features), self.head, self.config.order
        if self._new_rows is None or self._new_rows.tensors is not self.tensors:
            self._new_rows = NewRows(
                self.tensors,
                np.ones(order + 1),
                scale=self.perturbation.inference(self.tensors.operator).scale,
                adapted=partial(_at_inference, self.perturbation),
            )
        head.eval()
        with torch.no_grad():
            weight, offset = head.folded()
            hidden = self._new_rows(held, weight, links, among) / (order + 1)
            hidden = hidden if offset is None else hidden + offset
            activated = head.activated(hidden[:, None], None)[:, 0]
            return independent_product(activated, head.weight2) + head.bias2


def _at_inference(perturbation: Perturbation, operator: SparseMatrix) -> SparseMatrix:
    """Return what an unperturbed view propagates by."""
    return perturbation.inference(operator).operator


def _multiply_first(
    features: Features,
    head: Head,
    views: list[Augmentation],
    streams: list[Stream] | None,
    order: int,
) -> torch.Tensor:
    """Return Ā(mask ⊙ X W) of every view as (n, S, h); views with one operator share a product."""
    rate = head.input_dropout
    masked_views, offsets = [], []
    for s, view in enumerate(views):
        seen = view.mask_entries(features)
        factors = None
        if streams is not None and head.drops("entries"):
            kept = entry_mask(streams[s].at("input"), features, rate)
            seen = masked(seen, kept, 1.0 / (1.0 - rate))
        if streams is not None and head.drops("columns"):
            columns = Mask.draw(streams[s].at("input"), 1, head.weight1.shape[0], rate)
            factors = columns.tensor(head.weight1.device)[0] / (1.0 - rate)
        weight, offset = head.folded(factors)
        masked_views.append(view.mask_nodes(seen @ weight))
        offsets.append(offset)
    if all(view.operator is views[0].operator for view in views):
        propagated = mixed_order(views[0].operator, torch.cat(masked_views, dim=1), order)
        hidden = propagated.view(len(propagated), len(views), -1)
    else:
        pairs = zip(views, masked_views, strict=True)
        hidden = torch.stack([mixed_order(view.operator, x, order) for view, x in pairs], dim=1)
    added = [offset for offset in offsets if offset is not None]
    return hidden + torch.stack(added) if added else hidden


def _propagate_first(features: Features, view: Augmentation, order: int) -> torch.Tensor:
    """Return Ā(mask ⊙ X) of one view as (n, d)."""
    seen = view.mask_entries(features)
    dense = seen.to_dense() if isinstance(seen, SparseMatrix) else seen
    return mixed_order(view.operator, view.mask_nodes(dense), order)
