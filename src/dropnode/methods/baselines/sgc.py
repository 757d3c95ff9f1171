"""SGC: simple graph convolution.

Wu et al., *Simplifying Graph Convolutional Networks*, ICML 2019. A GCN without what lies between
its layers: softmax(Âᴷ X W), logistic regression on features that are propagated K times.

The authors propagate the features once, and train on the result. Everything being linear, W may as
well come first, Â(Â(XW)): the same logits and gradients, a few columns instead of as many as there
are features, and sparse features that stay sparse. As in their code the logits have a bias, which
the paper does not write, and which is decayed like the weights.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from dropnode.methods.base import Sizes
from dropnode.methods.baselines.base import Baseline, BaselineConfig
from dropnode.methods.baselines.pyg_layers import Linear
from dropnode.methods.tensors import GraphTensors
from dropnode.ops.randomness import Stream
from dropnode.settings import repeats


@dataclass(frozen=True, kw_only=True)
class SGCConfig(BaselineConfig):
    """Settings of SGC.

    Attributes
    ----------
    steps : propagation steps [K]
    """

    steps: int = repeats()


class SGC(Baseline):
    """A linear classifier of propagated features."""

    name = "sgc"
    config_type = SGCConfig
    config: SGCConfig

    @property
    def hops(self) -> int:
        """One hop per propagation step."""
        return self.config.steps

    def make_network(self, sizes: Sizes) -> Linear:
        """Return a linear map."""
        return Linear(sizes.features, sizes.classes)

    def classify(self, tensors: GraphTensors, stream: Stream | None = None) -> torch.Tensor:
        """Map, then propagate."""
        x = tensors.features @ self.network.weight.T
        for _ in range(self.config.steps):
            x = tensors.operator @ x
        return x + self.network.bias
