"""Uncertainty from perturbed views: how much a prediction depends on what happens to be dropped.

In training, GRAND sees views of the graph in which random nodes are without their features. Such
views at inference give a sample of predictions for every node. Where they agree, losing some
neighbours would not change the answer.

The entropy of the mean prediction is a sum of two parts. The mean entropy of the views is the doubt
that every view has, as at the border of two classes. The rest is the mutual information: the doubt
that comes from views that are sure of different classes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import entr, softmax

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.base import NodeClassifier
from dropnode.methods.grand.model import Grand
from dropnode.ops.randomness import Stream
from dropnode.settings import count, read_value
from dropnode.settings import seed as seed_field

VIEWS = 8
"""The views that are classified together."""


@dataclass(frozen=True, eq=False)
class Uncertainty:
    """What a sample of predictions says about every node.

    Attributes
    ----------
    probabilities : ndarray (nodes, classes)
        The mean of the sampled probabilities.
    entropy : ndarray (nodes,)
        The entropy of that mean, in nats: from 0 to log(classes).
    mutual_information : ndarray (nodes,)
        The part of the entropy that comes from disagreement; from 0 to ``entropy``.
    """

    probabilities: np.ndarray
    entropy: np.ndarray
    mutual_information: np.ndarray


@torch.no_grad()
def sample_uncertainty(
    method: NodeClassifier, samples: int = 50, *, seed: int = 0, graph: Graph | None = None
) -> Uncertainty:
    """Classify perturbed views of a graph, and return their mean and how much they disagree.

    Features are dropped as in training; the dropout of the network's own layers stays off.

    Parameters
    ----------
    method : NodeClassifier
        GRAND, trained, with any head and any perturbation.
    samples : int
        The number of views.
    seed : int
        The same seed draws the same views. The first views are the same for every number of them.
    graph : Graph, optional
        By default the training graph.

    Examples
    --------
    >>> from dropnode import GrandClassifier, load_dataset
    >>> model = GrandClassifier(max_epochs=20, random_state=0).fit(load_dataset("sbm", nodes=300))
    >>> doubt = sample_uncertainty(model.method_, samples=20)
    >>> bool((doubt.mutual_information <= doubt.entropy).all())
    True
    """
    if not isinstance(method, Grand):
        raise ConfigError(
            f"{method.name} does not perturb its input; expected grand or one of its variants"
        )
    if method.config.drop_rate == 0:
        raise ConfigError(
            "this model was trained with drop_rate = 0, so that all views are the same; use a "
            "model with a drop rate above 0"
        )
    samples = read_value(int, samples, "samples", count())
    stream = Stream(read_value(int, seed, "seed", seed_field())).at("uncertainty")
    tensors = method.tensors if graph is None else method.tensors_of(graph)
    method.network.eval()
    total = np.zeros((tensors.num_nodes, method.sizes.classes))
    doubt = np.zeros(tensors.num_nodes)
    for first in range(0, samples, VIEWS):
        views = [
            method.perturbation.draw(stream.at(number), tensors.operator, tensors.features)
            for number in range(first, min(first + VIEWS, samples))
        ]
        logits = method.classify_views(tensors, views).double().cpu().numpy()
        sampled = softmax(logits, axis=2)
        total += sampled.sum(axis=1)
        doubt += entr(sampled).sum(axis=(1, 2))
    mean = total / samples
    entropy = entr(mean).sum(axis=1)
    # Rounding may take the difference below 0.
    return Uncertainty(mean, entropy, np.maximum(entropy - doubt / samples, 0.0))
