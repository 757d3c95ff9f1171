"""G³NN: a generative model of labels and edges, and a GCN as its approximate posterior.

Ma, Tang, Zhu and Mei, *A Flexible Generative Framework for Graph-based Semi-supervised Learning*,
NeurIPS 2019, as its LSM-GCN. Labels come from features, p(y|x) being an MLP, and edges from both:
p(e|x,y) is logistic in a few rectified combinations of the features of either end, and in its
label. A GCN, q(y|x,G), approximates the unknown labels, and classifies. The loss is the sum of

- ``supervised``, the cross-entropy of q on the labelled nodes, times λ;
- ``prior``, the cross-entropy of p(y|x) on the same;
- ``agreement``, E_q[-log p(y|x)] of all other nodes, which ties the two to each other;
- ``entropy`` of q on these nodes;
- ``edges``, the logistic loss of edges against as many random pairs, drawn again every epoch.
  Labels are the known ones on training nodes, elsewhere what p(y|x) expects.

The authors' code decides where it differs from their bound: agreement and entropy are means over
nodes *and* classes, and the entropy is added, hence made small, where the bound asks for much of
it. The edge model is additive, a linear map of two ends side by side: it learns which features and
labels have many edges, and never which pairs of labels attract each other. Edges count alike; their
weights are seen by Â alone.

Deviations: the layers of p start from Glorot uniform weights, as those of q do. The authors tuned
settings for each dataset but did not release them; the defaults of their code are used for all.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, Parts, drop, drop_features
from dropnode.methods.baselines.pyg_layers import Convolution, Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import MOST_REPEATS, positive, rate, weight, width


@dataclass(frozen=True, kw_only=True)
class G3NNConfig(BaselineConfig):
    """Further settings.

    Attributes
    ----------
    hidden : width of the hidden layers of q and of p(y|x)
    latent : combinations of features that the edge model reads
    input_dropout : of q
    dropout : elsewhere
    negatives : random pairs for each edge
    discriminative_weight : of the cross-entropy of q on the labelled nodes [λ]
    """

    hidden: int = width()
    latent: int = width()
    input_dropout: float = rate()
    dropout: float = rate()
    negatives: float = positive(most=MOST_REPEATS)
    discriminative_weight: float = weight()


class G3NN(Baseline):
    """A GCN that is held to a generative model."""

    name = "g3nn"
    config_type = G3NNConfig
    config: G3NNConfig

    def make_network(self, sizes: Sizes) -> nn.ModuleDict:
        """Return q, p(y|x) and the two maps of p(e|x,y)."""
        hidden, latent = self.config.hidden, self.config.latent
        features, classes = sizes.features, sizes.classes
        return nn.ModuleDict(
            {
                "posterior": nn.ModuleList(
                    [Convolution(features, hidden), Convolution(hidden, classes)]
                ),
                "prior": nn.ModuleList([Linear(features, hidden), Linear(hidden, classes)]),
                "latent": Linear(features, latent),
                "edge": Linear(2 * (latent + classes), 1),
            }
        )

    @property
    def hops(self) -> int:
        """One hop per layer of q."""
        return 2

    def prepare_training(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Find the nodes without a known label."""
        unknown = torch.ones(graph.num_nodes, dtype=torch.bool, device=self.device)
        unknown[self.train_rows] = False
        self.unlabelled = unknown.nonzero()[:, 0]

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return the logits of q."""
        config, (first, last) = self.config, self.network["posterior"]
        x = first(drop_features(tensors.features, config.input_dropout, stream), tensors.operator)
        logits: torch.Tensor = last(
            drop(torch.relu(x), config.dropout, stream, "hidden"), tensors.operator
        )
        return logits

    def prior(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return the logits of p(y|x)."""
        rate, (first, last) = self.config.dropout, self.network["prior"]
        x = first(drop_features(tensors.features, rate, stream))
        logits: torch.Tensor = last(drop(torch.relu(x), rate, stream, "hidden"))
        return logits

    def ends(
        self, tensors: GraphTensors, prior: torch.Tensor, stream: Stream | None = None
    ) -> torch.Tensor:
        """Return the edge model's input for each node: latent features, then the label."""
        latent = self.network["latent"](
            drop_features(tensors.features, self.config.dropout, stream)
        )
        gold = F.one_hot(self.train_targets, prior.shape[1]).to(prior.dtype)
        labels = prior.softmax(dim=1).index_copy(0, self.train_rows, gold)
        return torch.cat([torch.relu(latent), labels], dim=1)

    def edge_scores(self, ends: torch.Tensor, pairs: torch.Tensor) -> torch.Tensor:
        """Return the logit of an edge from the first to the second node of each pair."""
        edge = self.network["edge"]
        # A linear map of two ends is the sum of a term per end, which is computed once per node.
        first, second = (ends @ edge.weight.view(2, -1).T).unbind(dim=1)
        return first.index_select(0, pairs[0]) + second.index_select(0, pairs[1]) + edge.bias

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the discriminative loss and the negative bound, as the authors compute it."""
        self.network.train()
        tensors = self.tensors
        q = self.classify(tensors, stream.at("posterior"))
        prior = self.prior(tensors, stream.at("prior"))
        parts = {
            "supervised": self.supervised(q[self.train_rows]),
            "prior": self.supervised(prior[self.train_rows]),
        }
        if len(self.unlabelled):
            log_q = q[self.unlabelled].log_softmax(dim=1)
            log_p = prior[self.unlabelled].log_softmax(dim=1)
            parts["agreement"] = -(log_q.exp() * log_p).mean()
            parts["entropy"] = -(log_q.exp() * log_q).mean()
        pairs, _ = tensors.edges
        if pairs.shape[1]:
            ends = self.ends(tensors, prior, stream.at("edges"))
            others = self.random_pairs(stream.at("pairs"))
            parts["edges"] = -(
                F.logsigmoid(self.edge_scores(ends, pairs)).mean()
                + F.logsigmoid(-self.edge_scores(ends, others)).mean()
            )
        weights = {"supervised": self.config.discriminative_weight}
        total = torch.stack([weights.get(name, 1.0) * part for name, part in parts.items()]).sum()
        return total, parts

    def random_pairs(self, stream: Stream) -> torch.Tensor:
        """Draw pairs of any two nodes, in proportion to the edges."""
        pairs, _ = self.tensors.edges
        number = max(1, int(self.config.negatives * pairs.shape[1]))
        drawn = stream.generator().integers(self.tensors.num_nodes, size=(2, number))
        return torch.from_numpy(drawn).to(self.device)
