"""APPNP: approximate personalised propagation of neural predictions.

Gasteiger (Klicpera), Bojchevski and Günnemann, *Predict then Propagate: Graph Neural Networks meet
Personalized PageRank*, ICLR 2019. A perceptron predicts from a node's own features; its predictions
h are then propagated with personalised PageRank, z ← (1-α) Â z + α h, a few steps of the power
iteration. Trained end to end on the cross-entropy of the labelled nodes, with dropout on features,
hidden units and the entries of Â (drawn again in every step), and weight decay on the first layer.

Without dropout, PyTorch Geometric's layer computes the same. With dropout, that layer drops from
the entries that the previous step has left, so that after ten steps hardly any remain; the authors'
code and this one draw from all of Â every time.

Deviations: the authors' accuracies are averages over random splits that hold back validation nodes
of their own; here, as in GRAND's comparison, the public split is used. Of epochs with equal
validation accuracy they keep the one of lower loss, the loop here the latest.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from dropnode.methods.baselines.layered import LayeredConfig
from dropnode.methods.baselines.mlp import MLP
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.kernels.memory import padded
from dropnode.ops.perturb import dropped, entry_mask
from dropnode.ops.randomness import Stream
from dropnode.settings import repeats, share


@dataclass(frozen=True, kw_only=True)
class APPNPConfig(LayeredConfig):
    """Further settings.

    Attributes
    ----------
    steps : steps of the power iteration [K]
    teleport : probability of returning to the node's own prediction in a step [α]
    """

    steps: int = repeats()
    teleport: float = share()


class APPNP(MLP):
    """A perceptron whose predictions are propagated."""

    name = "appnp"
    config_type = APPNPConfig
    config: APPNPConfig

    @property
    def hops(self) -> int:
        """One hop per step of the power iteration."""
        return self.config.steps

    def make_layer(self, num_inputs: int, num_outputs: int) -> Linear:
        """Return one linear map, without a bias."""
        return Linear(num_inputs, num_outputs, bias=False)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Predict, then propagate."""
        predicted = super().classify(tensors, stream)
        teleport, rate, operator = self.config.teleport, self.config.dropout, tensors.operator
        # Padded to whole vectors once, or kernels would pad the product of every step.
        classes = predicted.shape[1]
        arrived = predicted = F.pad(predicted, (0, padded(classes) - classes))
        for step in range(self.config.steps):
            if stream is not None:
                kept = entry_mask(stream.at("step", step), tensors.operator, rate)
                operator = dropped(tensors.operator, kept, 1.0 / (1.0 - rate))
            arrived = (1.0 - teleport) * (operator @ arrived) + teleport * predicted
        return arrived[:, :classes]
