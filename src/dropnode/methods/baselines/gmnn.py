"""GMNN: graph Markov neural network.

Qu, Bengio and Tang, *GMNN: Graph Markov Neural Networks*, ICML 2019. A conditional random field
over the labels of all nodes, trained by variational EM with two graph convolutional networks that
teach each other: q infers a label from features, p predicts it from the labels of neighbours. q is
first trained on the labelled nodes. In the M-step q annotates every node, by a sample of its
sharpened prediction, and p learns to predict these labels from themselves; in the E-step p's
predictions annotate every node, and q learns from them. Labelled nodes keep their own label
throughout. The final prediction is that of q.

This is the form without features in p, as the authors released it, with 83.4, 73.0 and 81.3 on
Cora, Citeseer and Pubmed in place of the paper's figures: the mean of 100 seeds, each at its best
validation accuracy in the E-step. Deviations: of epochs of equal validation accuracy the latest is
kept, not the first; every phase starts an optimiser, where the authors hand q's on from its best
epoch; of several rounds, the last one's best is kept; with class weights, annotations are weighted
as labels are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig, Parts, drop, drop_features
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import Config, choice, count, rate, repeats, temperature, width
from dropnode.training import Outcome, Phase
from dropnode.training.optimiser import Adam, RMSprop
from dropnode.training.stopping import Stopping

PRETRAINING, M_STEP, E_STEP = "pretraining", "M-step", "E-step"


@dataclass(frozen=True, kw_only=True)
class GMNNConfig(BaselineConfig):
    """Settings of GMNN.

    Attributes
    ----------
    hidden : width of the hidden layer of both networks
    input_dropout, hidden_dropout : of both networks
    optimiser : ``"adam"`` or ``"rmsprop"``
    temperature : sharpens q's predictions before labels are drawn from them
    rounds : M-steps, each followed by an E-step
    round_epochs : epochs of each M-step and E-step; ``max_epochs`` are those of the pretraining
    """

    hidden: int = width()
    input_dropout: float = rate()
    hidden_dropout: float = rate()
    optimiser: str = choice("adam", "rmsprop")
    temperature: float = temperature()
    rounds: int = repeats()
    round_epochs: int = count()


class GMNN(Baseline):
    """Two graph convolutional networks, one on features and one on labels."""

    name = "gmnn"
    config_type = GMNNConfig
    config: GMNNConfig

    @property
    def hops(self) -> int:
        """One hop per layer of q."""
        return 2

    def make_network(self, sizes: Sizes) -> nn.ModuleDict:
        """Return q, p, and a buffer for the annotations that one learns from the other."""
        hidden = self.config.hidden
        classes = sizes.classes
        q, p = _layers(sizes.features, hidden, classes), _layers(classes, hidden, classes)
        network = nn.ModuleDict({"q": q, "p": p})
        network.register_buffer("annotations", torch.zeros(sizes.nodes, classes))
        return network

    def phases(self) -> list[Phase]:
        """Return the pretraining of q, then an M-step and an E-step per round."""
        phases = [self.until_validated(PRETRAINING, self._optimiser("q"))]
        epochs = self.config.round_epochs
        for _ in range(self.config.rounds):
            e_step = self.until_validated(E_STEP, self._optimiser("q"))
            phases.append(Phase(M_STEP, self._optimiser("p"), epochs, Stopping("never")))
            phases.append(dataclasses.replace(e_step, max_epochs=epochs))
        return phases

    @torch.no_grad()
    def begin(self, phase: Phase, stream: Stream) -> None:
        """Annotate every node with a prediction of the network that is not trained."""
        annotations = self.network.annotations
        classes = annotations.shape[1]
        if phase.name == M_STEP:
            said = torch.softmax(self.classify(self.tensors) / self.config.temperature, dim=1)
            drawn = torch.multinomial(said, 1)[:, 0]
            annotations.copy_(F.one_hot(drawn, classes))
        elif phase.name == E_STEP:
            annotations.copy_(torch.softmax(self.classify_labels(), dim=1))
        annotations[self.train_rows] = F.one_hot(self.train_targets, classes).float()

    def batches(self, phase: Phase, stream: Stream) -> Iterable[str]:
        """Return one full batch, known by its phase."""
        return [phase.name]

    def loss(self, batch: str, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy of the labels in the pretraining, else of all annotations."""
        if batch == PRETRAINING:
            supervised = self.supervised(self.classify(self.tensors, stream)[self.train_rows])
            return supervised, {"supervised": supervised}
        m_step = batch == M_STEP
        logits = self.classify_labels(stream) if m_step else self.classify(self.tensors, stream)
        annotated = self.annotated(logits)
        return annotated, {"annotated": annotated}

    def annotated(self, logits: torch.Tensor) -> torch.Tensor:
        """Return the cross-entropy of the annotations of all nodes."""
        terms = logits, self.network.annotations, self.class_weights
        if self.node_weights is None:
            return F.cross_entropy(*terms)
        # The weights are those of given labels; other nodes are annotated with predictions.
        weights = torch.ones(len(logits), device=self.device)
        weights[self.train_rows] = self.node_weights[self.train_rows]
        return (F.cross_entropy(*terms, reduction="none") * weights).sum() / weights.sum()

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Return q's logits."""
        return self._convolve("q", tensors.features, tensors.operator, stream)

    def classify_labels(self, stream: Stream | None = None) -> torch.Tensor:
        """Return p's logits, given the annotations."""
        return self._convolve("p", self.network.annotations, self.tensors.operator, stream)

    def trained_as_long(self, outcome: Outcome) -> Config:
        """Return the configuration unchanged: it fixes the length of every phase."""
        config: Config = self.config
        return config

    def _convolve(
        self, name: str, x: Features, operator: SparseMatrix, stream: Stream | None
    ) -> torch.Tensor:
        first, second = self.network[name]
        hidden = operator @ first(drop_features(x, self.config.input_dropout, stream))
        hidden = drop(torch.relu(hidden), self.config.hidden_dropout, stream, "hidden")
        return operator @ second(hidden)

    def _optimiser(self, name: str) -> torch.optim.Optimizer:
        kind = {"adam": Adam, "rmsprop": RMSprop}[self.config.optimiser]
        settings = {"lr": self.config.learning_rate, "weight_decay": self.config.weight_decay}
        return kind(self.network[name].parameters(), **settings)


def _layers(*widths: int) -> nn.ModuleList:
    """Return linear maps without bias, whose weights start as the authors' do."""
    layers = [Linear(n, m, bias=False) for n, m in pairwise(widths)]
    for layer in layers:
        bound = layer.out_channels**-0.5
        nn.init.uniform_(layer.weight, -bound, bound)
    return nn.ModuleList(layers)
