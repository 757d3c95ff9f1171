"""Configurations: the paper's numbers are there, and nothing that cannot be meant gets through."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from importlib import resources
from typing import Any

import numpy as np
import pytest
import yaml

from dropnode.errors import ConfigError
from dropnode.methods.grand.config import GrandConfig, preset, preset_names

Configure = Callable[..., GrandConfig]

# The appendix' table "Hyperparameters of GRAND", row by row: Cora, Citeseer, Pubmed.
TABLE: dict[str, tuple[float, float, float]] = {
    "drop_rate": (0.5, 0.5, 0.5),
    "order": (8, 2, 5),
    "augmentations": (4, 2, 4),
    "consistency_weight": (1.0, 0.7, 1.0),
    "temperature": (0.5, 0.3, 0.2),
    "learning_rate": (0.01, 0.01, 0.2),
    "patience": (200, 200, 100),
    "hidden": (32, 32, 32),
    "weight_decay": (5e-4, 5e-4, 5e-4),
    "input_dropout": (0.5, 0.0, 0.6),
    "hidden_dropout": (0.5, 0.2, 0.8),
}
DATASETS = ("cora", "citeseer", "pubmed")


@pytest.mark.parametrize("name", ["paper", "official"])
@pytest.mark.parametrize("column", range(3), ids=DATASETS)
def test_presets_hold_the_papers_table(name: str, column: int) -> None:
    used, config = preset(name, DATASETS[column])
    assert used == name
    for key, values in TABLE.items():
        assert getattr(config, key) == values[column], key
    assert config.perturbation == "dropnode"
    assert config.head == "mlp"
    assert config.feature_scaling == "row"
    assert config.batch_norm is (DATASETS[column] == "pubmed")
    assert config.max_epochs == 5000


def test_paper_and_official_differ_in_what_is_known_to_differ() -> None:
    fidelity = {
        "paper": ("training", "glorot", "sum", "loss"),
        "official": ("inference", "released", "mean", "loss-or-accuracy"),
    }
    for name, values in fidelity.items():
        for dataset in DATASETS:
            config = preset(name, dataset)[1]
            keys = (config.mask_scaling, config.initialisation, config.reduction, config.stopping)
            assert keys == values


def test_tuned_changes_only_which_epoch_is_kept_on_pubmed() -> None:
    for dataset in DATASETS:
        tuned, official = preset("tuned", dataset)[1], preset("official", dataset)[1]
        changes = {"stopping": "accuracy"} if dataset == "pubmed" else {}
        assert tuned == official.replace(**changes)


def test_fast_commutes_on_every_dataset_and_changes_only_what_it_must() -> None:
    places = {"input_dropout_on", "input_norm"}
    retuned = {"input_dropout", "hidden_dropout", "consistency_weight"}
    for dataset in DATASETS:
        fast, official = preset("fast", dataset)[1], preset("official", dataset)[1]
        assert fast.input_dropout_on != "propagated"
        assert fast.input_norm == "fixed"
        both = fast.as_dict().items(), official.as_dict().items()
        assert dict(both[0] - both[1]).keys() <= places | retuned


def test_every_preset_in_the_file_loads_and_is_listed() -> None:
    text = (
        resources.files("dropnode.methods.grand")
        .joinpath("presets.yaml")
        .read_text(encoding="utf-8")
    )
    table = yaml.safe_load(text)
    parts = {"datasets", "fidelities", "adjustments", "variants", "default", "searched"}
    assert set(table) == parts
    for part in ("adjustments", "variants"):
        assert set(table[part]) <= set(table["fidelities"])
        for adjusted in table[part].values():
            assert set(adjusted) <= set(table["datasets"])
    assert preset_names() == [*table["fidelities"], "default"]
    for name in table["fidelities"]:
        for dataset in table["datasets"]:
            assert isinstance(preset(name, dataset)[1], GrandConfig)
    known = {field.name for field in dataclasses.fields(GrandConfig)}
    assert set(table["default"]) <= known
    for dataset, chosen in table["searched"].items():
        name, config = preset("tuned", dataset)
        assert (name, config) == ("tuned", preset("default", dataset)[1].replace(**chosen))
        assert preset(None, dataset)[0] == "default"


@pytest.mark.parametrize("part", ["datasets", "fidelities", "default"])
def test_a_misspelt_key_in_the_file_is_an_error(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (
        resources.files("dropnode.methods.grand")
        .joinpath("presets.yaml")
        .read_text(encoding="utf-8")
    )
    table = yaml.safe_load(text)
    row = {"datasets": lambda: table["datasets"]["cora"], "default": lambda: table["default"]}.get(
        part, lambda: table["fidelities"]["paper"]
    )()
    row["temprature"] = 0.2
    monkeypatch.setattr("dropnode.methods.grand.config._table", lambda: table)
    with pytest.raises(ConfigError, match="unknown configuration key 'temprature'; did you mean "):
        preset("default" if part == "default" else "paper", "cora")


def test_a_row_without_a_key_is_an_error(configure: Configure) -> None:
    values = configure().as_dict()
    del values["temperature"], values["order"]
    with pytest.raises(ConfigError, match="lacks order, temperature; give every key"):
        GrandConfig.from_dict(values)


def test_without_a_name_the_dataset_decides() -> None:
    assert preset(None, "pubmed")[0] == "official"
    assert preset(None, "my-graph")[0] == "default"
    assert preset("default", "cora")[1] == preset(None, "my-graph")[1]


def test_a_preset_that_does_not_exist_is_an_error_that_names_those_that_do() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'offical'; did you mean 'official'"):
        preset("offical", "cora")
    with pytest.raises(
        ConfigError, match="exists for the datasets cora, citeseer, pubmed, not for digits"
    ):
        preset("paper", "digits")


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("temprature", "temperature"),
        ("drop_rates", "drop_rate"),
        ("consistency_weigth", "consistency_weight"),
        ("max_epoch", "max_epochs"),
    ],
)
def test_an_unknown_key_is_an_error_with_a_suggestion(
    configure: Configure, key: str, meant: str
) -> None:
    message = f"unknown configuration key '{key}'; did you mean '{meant}'?"
    with pytest.raises(ConfigError) as caught:
        configure(**{key: 0.5})
    assert str(caught.value) == message
    with pytest.raises(ConfigError) as caught:
        GrandConfig.from_dict(configure().as_dict() | {key: 0.5})
    assert str(caught.value) == message


@pytest.mark.parametrize("key", ["lam", "tem", "lmbda", "T", 5])
def test_a_key_like_no_other_is_answered_with_all_of_them(configure: Configure, key: Any) -> None:
    with pytest.raises(ConfigError, match=f"unknown configuration key {key!r}") as caught:
        GrandConfig.from_dict(configure().as_dict() | {key: 0.5})
    if "did you mean" not in str(caught.value):
        listed = str(caught.value).split("expected one of ")[1].split(", ")
        assert listed == [field.name for field in dataclasses.fields(GrandConfig)]


WRONG: list[tuple[str, Any, str]] = [
    ("drop_rate", 1.0, "at least 0 and below 1"),
    ("drop_rate", -0.1, "at least 0 and below 1"),
    ("drop_rate", "0.5", "a number"),
    ("drop_rate", None, "a number"),
    ("drop_rate", True, "a number"),
    ("input_dropout", 1.0, "at least 0 and below 1"),
    ("hidden_dropout", 1.5, "at least 0 and below 1"),
    ("temperature", 0.0, "above 0"),
    ("temperature", -1.0, "above 0"),
    ("temperature", 1.1, "at most 1"),
    ("temperature", float("nan"), "a number"),
    ("temperature", np.float64("nan"), "a number"),
    ("temperature", [0.5], "a number"),
    ("temperature", 0.5 + 0j, "a number"),
    ("consistency_weight", -1.0, "a number of at least 0"),
    ("consistency_weight", float("inf"), "a number"),
    ("learning_rate", 0.0, "above 0"),
    ("learning_rate", -0.01, "above 0"),
    ("weight_decay", -1e-9, "a number of at least 0"),
    ("order", -1, "a whole number of at least 0"),
    ("order", 2.5, "a whole number"),
    ("order", True, "a whole number"),
    ("order", np.bool_(True), "a whole number"),
    ("order", float("inf"), "a whole number"),
    ("order", "2", "a whole number"),
    ("augmentations", 0, "a whole number of at least 1"),
    ("hidden", 0, "a whole number of at least 1"),
    ("patience", 0, "a whole number of at least 1"),
    ("max_epochs", 0, "a whole number of at least 1"),
    ("attention_heads", 0, "a whole number of at least 1"),
    ("batch_norm", 1, "true or false"),
    ("batch_norm", "false", "true or false"),
    ("head", "cnn", "one of mlp, gcn, gat"),
    ("head", 3, "a word"),
    ("perturbation", "dropblock", "one of dropnode, dropout, dropedge"),
    ("feature_scaling", "Row", "one of auto, row, binary, unit, standard, none"),
    ("mask_scaling", "never", "one of training, inference"),
    ("initialisation", "xavier", "one of glorot, released"),
    ("reduction", "max", "one of sum, mean"),
    ("stopping", "never", "one of loss, loss-or-accuracy"),
]


@pytest.mark.parametrize(("key", "value", "expected"), WRONG)
def test_a_value_that_cannot_be_meant_is_an_error(
    configure: Configure, key: str, value: Any, expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(**{key: value})
    message = str(caught.value)
    assert message.startswith(f"{key} = {value!r}; expected ")
    assert expected in message


def test_numpy_numbers_and_whole_floats_are_taken(configure: Configure) -> None:
    config = configure(
        drop_rate=np.float64(0.25),
        temperature=np.float32(0.5),
        consistency_weight=1,
        order=np.int64(4),
        hidden=32.0,
        augmentations=np.uint8(2),
    )
    plain = {name: type(value) for name, value in config.as_dict().items()}
    for field in dataclasses.fields(GrandConfig):
        assert plain[field.name].__name__ == field.type
    assert (config.drop_rate, config.temperature, config.consistency_weight) == (0.25, 0.5, 1.0)
    assert (config.order, config.hidden, config.augmentations) == (4, 32, 2)


@pytest.mark.parametrize(
    ("key", "value"),
    [("temperature", 1.0), ("drop_rate", 0.0), ("order", 0), ("consistency_weight", 0.0),
     ("weight_decay", 0.0), ("drop_rate", 0.999)],
)  # fmt: skip
def test_the_ends_of_the_ranges_are_inside(configure: Configure, key: str, value: float) -> None:
    assert getattr(configure(**{key: value}), key) == value


def test_combinations_that_cannot_work_are_errors(configure: Configure) -> None:
    with pytest.raises(ConfigError, match="batch_norm = true with head = 'gat'; set batch_norm=f"):
        configure(head="gat", batch_norm=True)
    with pytest.raises(ConfigError, match="hidden = 6 with 4 attention heads; expected a multiple"):
        configure(head="gat", attention_heads=4)
    assert configure(head="mlp", attention_heads=4).hidden == 6


def test_a_configuration_survives_being_written(configure: Configure) -> None:
    config = configure(temperature=0.1 + 0.2, head="gat")
    assert GrandConfig.from_dict(yaml.safe_load(yaml.safe_dump(config.as_dict()))) == config


def test_a_configuration_cannot_be_changed_in_place(configure: Configure) -> None:
    config = configure()
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.order = 3  # type: ignore[misc]
    assert configure(order=5) is not config
    assert config.order == 3


@pytest.mark.parametrize("place", ["columns", "entries"])
def test_raw_dropout_before_a_batch_norm_is_refused(place: str) -> None:
    """The norm needs propagated features, and the dropout would have been forgotten."""
    _, config = preset("official", "pubmed")
    with pytest.raises(ConfigError, match="set input_norm=fixed"):
        config.replace(input_dropout_on=place)
    assert config.replace(input_dropout_on=place, input_norm="fixed").input_dropout_on == place
    attention = config.replace(head="gat", hidden=64, batch_norm=False, input_dropout_on=place)
    assert attention.input_dropout_on == place
