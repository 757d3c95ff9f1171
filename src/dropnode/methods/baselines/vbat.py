"""VBAT: a GCN with batch virtual adversarial training, by optimisation (O-BVAT).

Deng, Dong and Zhu, *Batch Virtual Adversarial Training for Graph Convolutional Networks*, 2019. To
the cross-entropy of the labelled nodes come two terms over all nodes: the cross-entropy between the
prediction on X and the one on X + R, where R is sought, again in every epoch, to make the two
disagree while it stays small; and the entropy of the predictions, so that they are confident. Every
entry of the features is perturbed, those that are zero included. R starts from noise and takes a
few steps of Adam down ½‖R‖² less the cross-entropy.

As in the authors' code, the labels' term, the terms over all nodes and every step of the search
draw dropout of their own, and layers have no bias. Deviations: the authors keep the last weights of
200 epochs, here the best validated ones are kept; the search's Adam starts afresh with R, where
theirs carries its moments on from epoch to epoch; dropout falls on X and not on R.

R is dense, and so are its gradient and Adam's moments: four matrices of nodes by features.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from dropnode.methods.baselines.base import Parts, drop, drop_features
from dropnode.methods.baselines.gcn import GCN
from dropnode.methods.baselines.layered import LayeredConfig
from dropnode.methods.baselines.pyg_layers import Convolution
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import Features, SparseMatrix
from dropnode.settings import positive, repeats, weight
from dropnode.training.optimiser import Adam


@dataclass(frozen=True, kw_only=True)
class VBATConfig(LayeredConfig):
    """Settings of the terms over all nodes.

    Attributes
    ----------
    adversarial_weight : of the cross-entropy under perturbation; 0 leaves it out
    entropy_weight : of the predictions' entropy; 0 leaves it out
    adversary_spread : standard deviation of the noise that a perturbation starts from
    adversary_steps : steps that make it adversarial
    adversary_rate : learning rate of these steps
    """

    adversarial_weight: float = weight()
    entropy_weight: float = weight()
    adversary_spread: float = positive()
    adversary_steps: int = repeats()
    adversary_rate: float = positive()


class VBAT(GCN):
    """A GCN trained to be robust to perturbed features."""

    name = "vbat"
    config_type = VBATConfig
    config: VBATConfig

    def make_layer(self, num_inputs: int, num_outputs: int) -> Convolution:
        """Return one convolution without bias."""
        return Unbiased(num_inputs, num_outputs)

    def loss(self, batch: None, stream: Stream) -> tuple[torch.Tensor, Parts]:
        """Return the cross-entropy of the labelled nodes and the terms over all nodes."""
        total, parts = super().loss(batch, stream)
        config = self.config
        perturbation = self.adversary(stream.at("adversary")) if config.adversarial_weight else None
        logits = self.classify(self.tensors, stream.at("unperturbed"))
        if perturbation is not None:
            shift = perturbation @ self.network[0].lin.weight.T
            shifted = self.classify_shifted(shift, stream.at("perturbed"))
            parts["adversarial"] = disagreement(logits, shifted)
            total = total + config.adversarial_weight * parts["adversarial"]
        if config.entropy_weight:
            parts["entropy"] = F.cross_entropy(logits, torch.softmax(logits, dim=1))
            total = total + config.entropy_weight * parts["entropy"]
        return total, parts

    def adversary(self, stream: Stream) -> torch.Tensor:
        """Return a small change of all features that predictions are sensitive to."""
        config, first = self.config, self.network[0].lin.weight.detach()
        perturbation = torch.empty(self.tensors.features.shape, device=self.device)
        # A normal distribution cut off at two standard deviations, by its inverse.
        edge = math.erf(math.sqrt(2.0))
        perturbation.uniform_(-edge, edge).erfinv_().mul_(math.sqrt(2.0) * config.adversary_spread)
        perturbation.grad = torch.empty_like(perturbation)
        optimiser = Adam([perturbation], lr=config.adversary_rate, fused=True)
        for step in range(config.adversary_steps):
            with torch.no_grad():
                logits = self.classify(self.tensors, stream.at("unperturbed", step))
            shift = (perturbation @ first.T).requires_grad_()
            shifted = self.classify_shifted(shift, stream.at("perturbed", step))
            # With respect to the perturbation alone: the network's gradients are not touched.
            (ascent,) = torch.autograd.grad(disagreement(logits, shifted), shift)
            torch.addmm(perturbation, ascent, first, alpha=-1.0, out=perturbation.grad)
            optimiser.step()
        return perturbation

    def classify_shifted(self, shift: torch.Tensor, stream: Stream | None = None) -> torch.Tensor:
        """Return logits of all nodes on features X + R, given the shift R W of the first layer.

        Between X W and R W, sparse features stay sparse.
        """
        rate, operator = self.config.dropout, self.tensors.operator
        first, *others = self.network
        x = first(drop_features(self.tensors.features, rate, stream), operator) + operator @ shift
        for number, layer in enumerate(others, start=1):
            x = layer(drop(torch.relu(x), rate, stream, f"hidden {number}"), operator)
        return x


class Unbiased(Convolution):
    """A graph convolution without bias.

    With one, the terms over all nodes can be met by preferring some classes everywhere: on Cora,
    validation accuracy falls after sixty epochs where it otherwise rises to the end.
    """

    def __init__(self, num_inputs: int, num_outputs: int) -> None:
        super().__init__(num_inputs, num_outputs)
        self.bias = None

    def forward(self, x: Features, operator: SparseMatrix) -> torch.Tensor:
        """Return Â x W."""
        return operator @ (x @ self.lin.weight.T)


def disagreement(logits: torch.Tensor, perturbed: torch.Tensor) -> torch.Tensor:
    """Return the mean cross-entropy of perturbed predictions, the others being the targets."""
    return F.cross_entropy(perturbed, torch.softmax(logits.detach(), dim=1))
