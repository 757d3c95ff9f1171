"""Every named method is the configuration that the paper describes, and trains."""

from __future__ import annotations

from importlib import resources
from typing import Any

import numpy as np
import pytest
import yaml

from dropnode.errors import ConfigError
from dropnode.graph import Graph
from dropnode.methods.grand.config import preset
from dropnode.methods.table import GRAND_VARIANTS, METHODS, make_method
from dropnode.training import train

# From the paper's lists of variants and ablations: what each changes, and nothing else.
DESCRIBED: dict[str, dict[str, Any]] = {
    "grand": {},
    "grand-dropout": {"perturbation": "dropout"},
    "grand-dropedge": {"perturbation": "dropedge", "mask_scaling": "training"},
    "grand-gcn": {"head": "gcn"},
    "grand-gat": {"head": "gat", "hidden": 64, "batch_norm": False},
    "grand-no-cr": {"consistency_weight": 0.0},
    "grand-no-mdn": {"augmentations": 1},
    "grand-no-sharpening": {"temperature": 1.0},
    "grand-no-cr-dn": {"consistency_weight": 0.0, "drop_rate": 0.0},
}


def test_the_variants_are_those_described() -> None:
    assert list(GRAND_VARIANTS) == list(DESCRIBED)
    assert set(DESCRIBED) < set(METHODS)


@pytest.mark.parametrize("name", GRAND_VARIANTS)
@pytest.mark.parametrize("dataset", ["cora", "citeseer", "pubmed"])
@pytest.mark.parametrize("fidelity", ["official", "paper"])
def test_a_variant_changes_what_it_says_and_nothing_else(
    name: str, dataset: str, fidelity: str
) -> None:
    choice = make_method(name, dataset, fidelity)
    assert choice.preset == fidelity
    assert choice.config == preset(fidelity, dataset)[1].as_dict() | DESCRIBED[name]


@pytest.mark.parametrize("name", GRAND_VARIANTS)
def test_tuned_gives_rates_of_its_own_to_attention_on_pubmed_alone(name: str) -> None:
    for dataset in ("cora", "citeseer", "pubmed"):
        own = {"learning_rate": 0.01, "hidden_dropout": 0.6}
        expected = preset("tuned", dataset)[1].as_dict() | DESCRIBED[name]
        if (name, dataset) == ("grand-gat", "pubmed"):
            assert expected | own != expected
            expected |= own
        assert make_method(name, dataset, "tuned").config == expected


def test_rates_of_a_variant_are_for_variants_that_exist() -> None:
    text = (
        resources.files("dropnode.methods.grand")
        .joinpath("presets.yaml")
        .read_text(encoding="utf-8")
    )
    for datasets in yaml.safe_load(text)["variants"].values():
        for variants in datasets.values():
            assert set(variants) <= set(GRAND_VARIANTS)


@pytest.mark.parametrize("name", GRAND_VARIANTS)
def test_every_variant_trains_and_predicts(name: str, community: Graph) -> None:
    choice = make_method(name, community.catalogue_name, changes={"max_epochs": 3, "hidden": 8})
    outcome = train(choice.method, community)
    logits = choice.method.logits().numpy()
    assert outcome.epochs == 3
    assert logits.shape == (community.num_nodes, community.num_classes)
    assert np.isfinite(logits).all()
    assert ("consistency" in outcome.history[0]) == ("no-cr" not in name)


def test_changes_stand_above_the_variant_and_are_checked() -> None:
    assert make_method("grand-no-cr", "cora", changes={"order": 3}).config["order"] == 3
    assert (
        make_method("grand-no-mdn", "cora", changes={"augmentations": 2}).config["augmentations"]
        == 2
    )
    with pytest.raises(ConfigError, match="did you mean 'order'"):
        make_method("grand", "cora", changes={"oder": 3})
    with pytest.raises(ConfigError, match="unknown method 'gand'; did you mean 'grand'"):
        make_method("gand", "cora")


@pytest.mark.parametrize("name", [None, 3, np.array(["grand", "gcn"]), np.zeros(2, "i4,f4")])
def test_a_name_that_is_no_text_is_an_unknown_method(name: Any) -> None:
    with pytest.raises(ConfigError, match="unknown method"):
        make_method(name, None)
