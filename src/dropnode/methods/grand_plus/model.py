"""GrandPlus: GRAND on mini-batches of precomputed rows.

Feng et al., *GRAND+: Scalable Graph Random Neural Networks*, WWW 2022. GRAND propagates features
over the whole graph in every epoch. GRAND+ computes, once, a few large entries of the rows of Π
that training needs: those of the training nodes and of a sample of the others. A view drops entries
of such a row. So an epoch costs the same on a graph of any size.

Predictions are exact, and so is validation. The released code validates on truncated rows, whose
accuracy can be far below that of the exact rows which predictions are made from; then it stops too
early, or keeps a worse epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch

from dropnode.engines.base import Run
from dropnode.graph import Graph, Split
from dropnode.graph.arrays import Matrix
from dropnode.memory import check_memory
from dropnode.methods.base import NodeClassifier, Sizes, cross_entropy
from dropnode.methods.grand_plus.agreement import agreement_loss, least_confidence
from dropnode.methods.grand_plus.config import FITTED, GrandPlusConfig
from dropnode.methods.grand_plus.fitting import fitted_shares
from dropnode.methods.grand_plus.head import Head
from dropnode.methods.grand_plus.inference import exact_logits, exact_rows, watch_rows
from dropnode.methods.grand_plus.pushed import PushedRows
from dropnode.methods.new_rows import NewRows, independent_product
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.kernels.threads import Threads
from dropnode.ops.push import pushed_rows, walk_shares
from dropnode.ops.randomness import Dropout, Part, Stream
from dropnode.training import Phase
from dropnode.training.optimiser import ClippedAdam

Batch = tuple[np.ndarray, np.ndarray]
"""The places of labelled and of unlabelled nodes among the pushed rows."""


class GrandPlus(NodeClassifier):
    """GRAND+, for graphs of any size."""

    name = "grand-plus"
    config_type = GrandPlusConfig
    config: GrandPlusConfig
    draws_from_torch = False
    reads_stored = True
    # A batch is too small for several threads of torch; push and exact propagation have kernels.
    threads = Threads(torch=1)
    # The engine that pushes; by default this process does.
    run: Run | None = None
    _new_rows: NewRows | None = None

    @property
    def head(self) -> Head:
        """The network."""
        head: Head = self.network
        return head

    @property
    def hops(self) -> int:
        """One hop per step of the walk."""
        return self.config.order

    @property
    def shares(self) -> np.ndarray:
        """The weights of the powers of P in Π, up to the last that counts."""
        return np.trim_zeros(self.head.shares.cpu().numpy(), "b")

    def make_network(self, sizes: Sizes) -> Head:
        """Return the head; :meth:`prepare_training` draws its weights."""
        return Head(sizes.features, sizes.classes, self.config)

    def least_memory(self, sizes: Sizes) -> int:
        """Return the bytes of the first weights with Adam's moments.

        How many rows are pushed depends on the split; :meth:`prepare_training` looks at that.
        """
        config = self.config
        units = config.hidden if config.layers > 1 else sizes.classes
        return 16 * units * sizes.features

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Draw the weights and the unlabelled nodes, choose the walk, and push the rows."""
        config = self.config
        self.start_head(self._walk(graph, split), stream)
        others = split.test
        if config.agree_on == "unlabelled" or len(others) == 0:
            others = np.setdiff1d(np.arange(graph.num_nodes), split.train)
        if len(others) > config.unlabelled:
            generator = stream.at("unlabelled").generator()
            others = np.sort(generator.choice(others, config.unlabelled, replace=False))
        self.labelled, self.unlabelled = len(split.train), len(others)
        nodes, shares, tensors = np.concatenate([split.train, others]), self.shares, self.tensors
        row = 12 * min(config.top, graph.num_nodes) + 4 * graph.num_features * config.tail
        check_memory(
            len(nodes) * row,
            f"training on the rows of {len(nodes):,} nodes",
            "lower unlabelled or top, give fewer training nodes, or set tail=false",
        )
        rows = pushed_rows(
            tensors.adjacency,
            tensors.degrees,
            nodes,
            shares,
            config.threshold,
            config.top,
            run=self.run,
        )
        exact = exact_rows(tensors, nodes, shares) if config.tail else None
        self.rows = PushedRows(rows, tensors.features, exact)

    def start_head(self, shares: np.ndarray, stream: Stream) -> None:
        """Draw the weights of the head, and tell it the walk."""
        self.head.initialise(stream.at("weights"))
        self.head.shares.copy_(torch.from_numpy(shares))

    def _walk(self, graph: Graph, split: Split) -> np.ndarray:
        """Return the weights of the powers of P, as configured or fitted."""
        config = self.config
        if config.walk != FITTED:
            return walk_shares(config.walk, config.order, config.teleport)
        return fitted_shares(
            self.tensors,
            split.train,
            graph.labels[split.train],
            config.order,
            config.teleport,
            self.head.normalised,
        )

    def phases(self) -> list[Phase]:
        """Return the only phase: Adam on all weights, until validation stops it."""
        config = self.config
        optimiser = ClippedAdam(
            self.head.parameters(),
            clip=config.clip,
            lr=config.learning_rate,
            weight_decay=config.weight_decay,
            fused=True,
        )
        return [self.until_validated("train", optimiser)]

    def begin(self, phase: Phase, stream: Stream) -> None:
        """Keep the address of the orders in which training nodes are passed through."""
        self.passes = stream

    def batches(self, phase: Phase, stream: Stream) -> Iterator[Batch]:
        """Yield some batches: training nodes pass by pass, other nodes at random.

        Passes through the training nodes go on from epoch to epoch.
        """
        config = self.config
        per_pass = -(-self.labelled // config.labelled_batch)
        for index in range(config.batches):
            number, place = divmod(int(self.head.batches), per_pass)
            order = self.passes.at("pass", number).generator().permutation(self.labelled)
            first = place * config.labelled_batch
            generator = stream.at("unlabelled", index).generator()
            size = min(config.unlabelled_batch, self.unlabelled)
            drawn = generator.choice(self.unlabelled, size, replace=False)
            yield order[first : first + config.labelled_batch], self.labelled + drawn

    def loss(self, batch: Batch, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss of a batch, and its supervised and consistency parts.

        With a team, those of its own share of the batch.
        """
        config, views, team = self.config, self.config.augmentations, self.team
        labelled, unlabelled = batch
        if config.consistency_weight == 0:
            unlabelled = unlabelled[:0]
        chosen = np.repeat(np.concatenate([labelled, unlabelled]), views)
        known, agreeing = team.share(len(labelled)), team.share(len(unlabelled))
        part = None
        if team.size > 1:
            places = np.arange(len(labelled) + len(unlabelled))
            nodes = np.concatenate([places[known], places[len(labelled) :][agreeing]])
            part = Part((nodes[:, None] * views + np.arange(views)).ravel(), len(chosen))
        x = self.rows.view(chosen, config.drop_rate, stream.at("scores"), part)
        self.head.train()
        logits = self.head(x, Dropout([stream], part), team)
        supervised = self._supervised(logits, labelled, known)
        self.head.batches += 1
        if len(unlabelled) == 0:
            return supervised, {"supervised": supervised}
        own, classes = agreeing.stop - agreeing.start, self.sizes.classes
        consistency = agreement_loss(
            logits[len(logits) - own * views :].log_softmax(dim=1).view(own, views, classes),
            config.temperature,
            config.distance,
            least_confidence(config.confidence, classes),
            team,
        )
        risen = min(1.0, int(self.head.batches) / max(config.warmup, 1))
        total = supervised + config.consistency_weight * risen * consistency
        return total, {"supervised": supervised, "consistency": consistency}

    def _supervised(self, logits: torch.Tensor, labelled: np.ndarray, own: slice) -> torch.Tensor:
        """Return the cross-entropy of the own ones of the labelled nodes of a batch."""
        views, weights, whole = self.config.augmentations, self.train_weights, None
        if self.team.size > 1:
            if weights is None:
                weights = torch.ones(self.labelled, device=self.device)
            whole = views * weights[torch.from_numpy(labelled).to(self.device)].sum()
        places = torch.from_numpy(np.repeat(labelled[own], views)).to(self.device)
        return cross_entropy(
            logits[: len(places)],
            self.train_targets[places],
            None if weights is None else weights[places],
            whole,
        )

    def classify(self, tensors: GraphTensors) -> torch.Tensor:
        """Return exact logits."""
        return exact_logits(self.head, tensors, self.shares)

    def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
        """Return a function that returns the current exact logits of some nodes."""
        return watch_rows(self.head, self.tensors, rows, self.shares)

    def new_logits(
        self, features: Matrix, links: Matrix, among: Matrix | None = None
    ) -> torch.Tensor:
        """Return logits of new nodes; without a node norm, the cost depends on their edges alone.

        A node norm needs whole rows of ΠX, and so the neighbourhood.
        """
        head = self.head
        if head.node_norm:
            return super().new_logits(features, links, among)
        held, rows = self.held(features), self._new_rows
        # The shares belong to the weights, which may have been loaded since.
        known = rows is not None and np.array_equal(rows.shares, self.shares)
        if rows is None or not known or rows.tensors is not self.tensors:
            rows = self._new_rows = NewRows(self.tensors, self.shares, walk=True)
        head.eval()
        with torch.no_grad():
            weight, offset = head.folded(0)
            hidden = rows(held, weight, links, among) + offset
            if head.layers == 1:
                return hidden
            weight, offset = head.folded(1)
            return independent_product(torch.relu(hidden), weight) + offset
