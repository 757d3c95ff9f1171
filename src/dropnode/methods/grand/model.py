"""Grand: perturb → propagate → classify → agree, composed into one Method."""

from __future__ import annotations

import numpy as np
import scipy.sparse as sp
import torch

from dropnode.graph import Graph, Split
from dropnode.methods.base import Inputs, NodeClassifier
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.fused.autograd import First
from dropnode.methods.grand.fused.kernels.rows import Task
from dropnode.methods.grand.fused.step import Step
from dropnode.methods.grand.heads import AttentionHead, DenseHead, FixedNorm, Head
from dropnode.methods.grand.objective import consistency_loss, supervised_loss
from dropnode.ops.kernels.memory import usable
from dropnode.ops.kernels.threads import Threads
from dropnode.ops.perturb import PERTURBATIONS, Augmentation, entry_mask, masked
from dropnode.ops.propagation import (
    Features,
    SparseMatrix,
    column_statistics,
    mixed_order,
    propagated_rows,
)
from dropnode.ops.randomness import Dropout, Mask, Stream
from dropnode.ops.scaling import FeatureScaling
from dropnode.training import Phase
from dropnode.training.optimiser import Adam

SMALL_WORK = 30_000_000
"""Multiplications of a propagation, about 2 ms, below which torch's own operations are short."""

TINY_WORK = 5_000_000
"""Those below which kernels are short too."""


class Grand(NodeClassifier):
    """Graph random neural network.

    Parameters
    ----------
    config : GrandConfig
    class_weights : array of float, optional
        The weight of each class in the supervised loss.
    device : str
        Where tensors live, as torch names it.
    """

    name = "grand"
    config_type = GrandConfig
    config: GrandConfig
    _step: Step | None = None
    _first: First | None = None

    def __init__(
        self,
        config: GrandConfig,
        *,
        class_weights: np.ndarray | None = None,
        device: str = "cpu",
    ) -> None:
        super().__init__(config, class_weights=class_weights, device=device)
        self.perturbation = PERTURBATIONS[config.perturbation](
            config.drop_rate, config.mask_scaling
        )

    @property
    def head(self) -> Head:
        """The network: a head that reads propagated features."""
        head: Head = self.network
        return head

    def make_network(self, num_features: int, num_classes: int) -> Head:
        """Return the head of the configuration; :meth:`prepare` draws its weights."""
        config = self.config
        sizes = num_features, num_classes, config.hidden
        rates = config.input_dropout, config.hidden_dropout
        if config.head == "gat":
            return AttentionHead(*sizes, *rates, attention_heads=config.attention_heads)
        return DenseHead(
            *sizes,
            *rates,
            batch_norm=config.batch_norm,
            graph_layers=config.head == "gcn",
            input_norm=config.input_norm,
            input_dropout_on=config.input_dropout_on,
        )

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Scale the features, normalise the adjacency, draw the initial weights."""
        super().prepare(graph, split, stream)
        self.head.initialise(self.config.initialisation, stream)
        if isinstance(self.head, DenseHead) and isinstance(self.head.norm1, FixedNorm):
            view = self.perturbation.inference(self.inputs.operator)
            statistics = column_statistics(
                view.operator, self.inputs.features, self.config.order, view.scale
            )
            self.head.norm1.fit(*statistics)
        self._step, self._first = self._fused_step(), self._fused_first()
        self.threads = self._worthwhile_threads()

    def build(self, scaling: FeatureScaling, graph: Graph) -> None:
        """Make the parts that depend on the data; all that is missing then are the weights."""
        super().build(scaling, graph)
        self._propagated: tuple[np.ndarray, Features] | None = None
        self._step = self._first = None

    def takes_sparse(self, sparse: bool) -> bool:
        """Whether features are to be held sparse, given whether they come so."""
        # Dropout on the features has a bit for each entry as they are held.
        if self.head.commutes or self.config.perturbation == "dropout":
            return sparse
        # The kernel that propagates features reads them by column.
        return usable(self.device)

    def _worthwhile_threads(self) -> Threads:
        """Return how many threads pay: on a small graph, waking a second one costs more."""
        config, operator = self.config, self.inputs.operator
        if self._step is None:
            return Threads()
        if not self.head.commutes:
            # Everything of size is spread over threads of our own.
            return Threads(torch=1)
        work = config.augmentations * config.hidden * config.order * len(operator.values)
        return Threads(
            torch=1 if work < SMALL_WORK else None, kernels=1 if work < TINY_WORK else None
        )

    def _fused_step(self) -> Step | None:
        """Return the training step in kernels, if this head and device have one."""
        head, features = self.head, self.inputs.features
        if not isinstance(head, DenseHead) or head.graph_layers or not usable(self.device):
            return None
        if not head.commutes and (
            isinstance(head.norm1, FixedNorm) or not isinstance(features, SparseMatrix)
        ):
            return None
        config = self.config
        nodes = features.shape[0]
        weights = torch.ones(len(self.train_targets))
        if self.class_weights is not None:
            weights = self.class_weights[self.train_targets]
        per_node = 1.0 / nodes if config.reduction == "mean" else 1.0
        if config.reduction == "mean":
            weights = weights / weights.sum()
        label_weights = np.zeros(nodes, dtype=np.float32)
        label_weights[self.train_rows.numpy()] = weights.numpy() / config.augmentations
        labels = np.zeros(nodes, dtype=np.int64)
        labels[self.train_rows.numpy()] = self.train_targets.numpy()
        agreement = config.consistency_weight * per_node / config.augmentations
        task = Task(labels, label_weights, agreement, config.temperature)
        return Step(head, features, self.inputs.operator, config.order, task)

    def _fused_first(self) -> First | None:
        """Return the first layer in kernels, if there is no whole step and propagation is dear."""
        head, features = self.head, self.inputs.features
        if self._step is not None or head.commutes or not isinstance(features, SparseMatrix):
            return None
        if isinstance(head.norm1, FixedNorm) or not usable(self.device):
            return None
        return First(head, features, self.inputs.operator, self.config.order)

    def phases(self) -> list[Phase]:
        """Return GRAND's one phase: Adam on everything, until the validation says stop."""
        config = self.config
        optimiser = Adam(
            self.head.parameters(),
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        return [self.until_validated("train", optimiser)]

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Classify S augmentations, and compare them with the labels and with each other."""
        self.head.train()
        config = self.config
        streams = [stream.at("augmentation", s) for s in range(config.augmentations)]
        views = [
            self.perturbation.draw(s.at("perturbation"), self.inputs.operator, self.inputs.features)
            for s in streams
        ]
        if self._step is not None:
            total, supervised, weighted = self._step(views, streams)
            if config.consistency_weight == 0:
                return total, {"supervised": supervised}
            consistency = weighted / config.consistency_weight
            return total, {"supervised": supervised, "consistency": consistency}
        logs = self.classify(self.inputs, views, streams).log_softmax(dim=-1)
        supervised = supervised_loss(
            logs[self.train_rows], self.train_targets, config.reduction, self.class_weights
        )
        if config.consistency_weight == 0:
            return supervised, {"supervised": supervised}
        consistency = consistency_loss(logs, config.temperature, config.reduction)
        total = supervised + config.consistency_weight * consistency
        return total, {"supervised": supervised, "consistency": consistency}

    def classify(
        self, inputs: Inputs, views: list[Augmentation], streams: list[Stream] | None = None
    ) -> torch.Tensor:
        """Return the logits (n, S, C) of S views; with streams, dropout is on."""
        head, order = self.head, self.config.order
        # Without dropout even a batch norm is a linear map.
        if head.commutes or streams is None:
            hidden = _multiply_first(inputs.features, head, views, streams, order)
            return head.rest(hidden, inputs.operator, Dropout(streams) if streams else None)
        if self._first is not None:
            return head.rest(self._first(views, streams), inputs.operator, Dropout(streams))
        logits = []
        for s, view in enumerate(views):
            propagated = _propagate_first(inputs.features, view, order)
            logits.append(head(propagated, inputs.operator, Dropout([streams[s]])))
        return torch.stack(logits, dim=1)

    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return logits on unperturbed features, of the training graph or of another."""
        if graph is not None or rows is None or self.head.graph_layers:
            return super().logits(graph, rows)
        # ĀX never changes, and a perceptron reads only its own row: keep the rows asked for.
        if self._propagated is None or not np.array_equal(self._propagated[0], rows):
            wanted = torch.from_numpy(rows.copy()).to(self.device)
            view = self.perturbation.inference(self.inputs.operator)
            kept = propagated_rows(view.operator, self.inputs.features, wanted, self.config.order)
            self._propagated = rows.copy(), _compact(kept * view.scale)
        assert isinstance(self.head, DenseHead)
        self.head.eval()
        with torch.no_grad():
            weight, offset = self.head.folded()
            hidden = self._propagated[1] @ weight
            if offset is not None:
                hidden = hidden + offset
            return self.head.rest(hidden[:, None], None, None)[:, 0]

    @torch.no_grad()
    def logits_of(self, inputs: Inputs, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return logits on inputs that :meth:`read` made."""
        self.head.eval()
        view = self.perturbation.inference(inputs.operator)
        logits = self.classify(inputs, [view])[:, 0]
        return logits if rows is None else logits[torch.from_numpy(rows.copy()).to(self.device)]


def _multiply_first(
    features: Features,
    head: Head,
    views: list[Augmentation],
    streams: list[Stream] | None,
    order: int,
) -> torch.Tensor:
    """Return Ā(mask ⊙ X W) of every view as (n, S, h); views of one operator are one product."""
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


def _compact(rows: torch.Tensor) -> Features:
    """Return propagated rows sparse where that makes products with them cheaper."""
    filled = torch.count_nonzero(rows).item()
    if filled > 0.3 * rows.numel():
        return rows
    return SparseMatrix.from_scipy(sp.csr_array(rows.cpu().numpy()), rows.device)
