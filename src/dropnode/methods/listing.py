"""Lists of all methods and presets, with one line about each.

The list of methods imports none of them, so that showing it does not wait for torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from dropnode.errors import ConfigError

TITLES: Mapping[str, str] = MappingProxyType(
    {
        "grand": "GRAND: random propagation with DropNode, and consistency of the views",
        "grand-dropout": "GRAND with dropout of feature entries instead of DropNode",
        "grand-dropedge": "GRAND with DropEdge instead of DropNode",
        "grand-gcn": "GRAND with a graph-convolution head instead of a perceptron",
        "grand-gat": "GRAND with a graph-attention head instead of a perceptron",
        "grand-no-cr": "GRAND without consistency regularisation",
        "grand-no-mdn": "GRAND with one view per epoch instead of several",
        "grand-no-sharpening": "GRAND without sharpening of the averaged prediction",
        "grand-no-cr-dn": "GRAND without consistency regularisation and without DropNode",
        "grand-plus": "GRAND+: GRAND on mini-batches, for graphs of any size",
        "gcn": "GCN: graph convolutional network",
        "gat": "GAT: graph attention network",
        "appnp": "APPNP: approximate personalised propagation of neural predictions",
        "graphunet": "Graph U-Net: repeated pooling to fewer nodes, and back",
        "sgc": "SGC: simple graph convolution",
        "mixhop": "MixHop: several powers of the adjacency matrix side by side",
        "gmnn": "GMNN: graph Markov neural network",
        "graphnas": "GraphNAS: an architecture found by a search",
        "graphsage": "GraphSAGE: sampled neighbours, aggregated",
        "fastgcn": "FastGCN: graph convolutions on sampled nodes",
        "vbat": "VBAT: a GCN with batch virtual adversarial training",
        "g3nn": "G³NN: a generative model of labels and edges",
        "graphmix": "GraphMix: a GCN and a perceptron with shared weights, trained by mixup",
        "dropedge": "DropEdge: a GCN that drops random edges in every epoch",
        "label-propagation": "Label propagation: labels spread along the edges; no features",
        "mlp": "MLP: a perceptron on a node's own features; no edges",
        "logistic": "Logistic regression on features averaged over the neighbourhood",
        "boosting": "Gradient-boosted trees on features and their propagated forms",
    }
)
"""One line about every method, in the order of ``dropnode.methods.table.METHODS``."""

PRESET_TITLES: Mapping[str, str] = MappingProxyType(
    {
        "paper": "the settings and formulas of the paper's text",
        "official": "the settings that the method's authors chose for the dataset",
        "tuned": "settings that validation chose, in a search of ours or of a published benchmark",
        "fast": "official, with dropout and normalisation moved to where they cost less",
        "default": "for graphs without a preset of their own",
    }
)
"""One line about every preset."""


def list_methods() -> list[dict[str, Any]]:
    """Return the name and the title of every method."""
    return [{"name": name, "title": title} for name, title in TITLES.items()]


def list_presets(datasets: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return every preset of GRAND, of GRAND+ and of each baseline, and the datasets it exists for.

    In the result, ``datasets`` is None if a preset is for any graph.
    """
    from dropnode.methods.baselines import BASELINES, baseline_presets
    from dropnode.methods.grand.config import preset_names
    from dropnode.methods.grand_plus.config import preset_names as plus_preset_names
    from dropnode.methods.presets import DEFAULT

    families = {
        "grand": preset_names(),
        "grand-plus": plus_preset_names(),
        **{name: baseline_presets(name) for name in BASELINES},
    }
    return [
        {
            "method": method,
            "name": name,
            "title": PRESET_TITLES[name],
            "datasets": None
            if name == DEFAULT
            else [dataset for dataset in datasets if _exists(method, dataset, name)],
        }
        for method, names in families.items()
        for name in names
    ]


def _exists(method: str, dataset: str, preset: str) -> bool:
    from dropnode.methods.table import configuration

    try:
        configuration(method, dataset, preset)
    except ConfigError:
        return False
    return True
