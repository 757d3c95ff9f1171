"""Specs: the shipped ones say what the paper says, and a mistake in one is named before any run."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from dropnode.data import dataset_names
from dropnode.errors import ConfigError
from dropnode.experiments.references import Reference
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import load_spec, parse_spec, spec_names
from dropnode.methods.baselines import BASELINES
from dropnode.methods.table import GRAND_VARIANTS, make_method, restore_method

# The paper's table "Overall classification accuracy", from GRAND_dropout down: mean and standard
# deviation on Cora, Citeseer and Pubmed.
TABLE_1 = {
    "grand-dropout": ((84.9, 0.4), (75.0, 0.3), (81.7, 1.0)),
    "grand-dropedge": ((84.5, 0.3), (74.4, 0.4), (80.9, 0.9)),
    "grand-gcn": ((84.5, 0.3), (74.2, 0.3), (80.0, 0.3)),
    "grand-gat": ((84.3, 0.4), (73.2, 0.4), (79.2, 0.6)),
    "grand": ((85.4, 0.4), (75.4, 0.4), (82.7, 0.6)),
    "grand-no-cr": ((84.4, 0.5), (73.1, 0.6), (80.9, 0.8)),
    "grand-no-mdn": ((84.7, 0.4), (74.8, 0.4), (81.0, 1.1)),
    "grand-no-sharpening": ((84.6, 0.4), (72.2, 0.6), (81.6, 0.8)),
    "grand-no-cr-dn": ((83.2, 0.5), (70.3, 0.6), (78.5, 1.4)),
}
# The same table, above: the baselines.
BASELINES_OF_TABLE_1 = {
    "gcn": ((81.5, None), (70.3, None), (79.0, None)),
    "gat": ((83.0, 0.7), (72.5, 0.7), (79.0, 0.3)),
    "appnp": ((83.8, 0.3), (71.6, 0.5), (79.7, 0.3)),
    "graphunet": ((84.4, 0.6), (73.2, 0.5), (79.6, 0.2)),
    "sgc": ((81.0, 0.0), (71.9, 0.1), (78.9, 0.0)),
    "mixhop": ((81.9, 0.4), (71.4, 0.8), (80.8, 0.6)),
    "gmnn": ((83.7, None), (72.9, None), (81.8, None)),
    "graphnas": ((84.2, 1.0), (73.1, 0.9), (79.6, 0.4)),
    "graphsage": ((78.9, 0.8), (67.4, 0.7), (77.8, 0.6)),
    "fastgcn": ((81.4, 0.5), (68.8, 0.9), (77.6, 0.5)),
    "vbat": ((83.6, 0.5), (74.0, 0.6), (79.9, 0.4)),
    "g3nn": ((82.5, 0.2), (74.4, 0.3), (77.9, 0.4)),
    "graphmix": ((83.9, 0.6), (74.5, 0.6), (81.0, 0.6)),
    "dropedge": ((82.8, None), (72.3, None), (79.6, None)),
}
DATASETS = ("cora", "citeseer", "pubmed")

COMPARISON = """
title: Is it the classifier?
description: >
  Two rows
  of three words.
datasets: [cora, pubmed]
preset: official
set: {max_epochs: 50}
seeds: 4
splits: 2
reference: grand
rows:
  - method: grand
    label: GRAND
    seeds: {cora: 7, pubmed: 3}
    paper: {cora: [85.4, 0.4], pubmed: 82.7}
  - {method: grand-gcn}
  - {name: deeper, method: grand, preset: fast, set: {order: 12, max_epochs: 60}, seeds: 2}
claims:
  - {claim: the perceptron is better, better: grand, than: grand-gcn}
  - {claim: depth helps, better: deeper, than: grand}
"""

SEARCH = """
title: A search
datasets: [cora, citeseer]
seeds: 3
set: {hidden: 16}
search:
  method: grand
  stages:
    - {order: [2, 4]}
    - {temperature: [0.1, 0.2], consistency_weight: [0.5]}
"""

Change = Callable[[dict[str, Any]], Any]


def changed(text: str, change: Change) -> str:
    """Return a valid spec after something was done to it."""
    values = yaml.safe_load(text)
    change(values)
    return yaml.safe_dump(values, sort_keys=False, allow_unicode=True)


def refusal(text: str) -> str:
    """Return what is said against a spec."""
    with pytest.raises(ConfigError) as caught:
        parse_spec("mine", text)
    message = str(caught.value)
    assert message.startswith("spec mine: "), "which spec?"
    return message


@pytest.fixture
def comparison() -> Spec:
    return parse_spec("mine", COMPARISON)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow) if name.startswith("tune-large") else name
        for name in spec_names()
    ],
)
def test_every_shipped_spec_can_be_run(name: str) -> None:
    spec = load_spec(name)
    assert spec.name == name
    assert spec.title
    assert spec.description
    assert {Reference.parse(dataset).source for dataset in spec.datasets} <= set(dataset_names())
    asked = [
        (dataset, row.method, row.presets[dataset], dict(row.changes))
        for row in spec.rows
        for dataset in row.seeds
    ]
    if spec.search is not None:
        grid = {key: values for stage in spec.search.stages for key, values in stage.items()}
        for values in itertools.product(*grid.values()):
            tried = {**spec.search.changes, **dict(zip(grid, values, strict=True))}
            asked += [
                (dataset, spec.search.method, spec.search.preset, tried)
                for dataset in spec.datasets
            ]
    assert {dataset for dataset, *_ in asked} == set(spec.datasets), "a column without a number"
    for dataset, method, preset, changes in asked:
        choice = make_method(method, Reference.parse(dataset).catalogue_name, preset, changes)
        assert choice.config | changes == choice.config
        assert preset in (None, choice.preset)
        assert restore_method(method, choice.identity).config.as_dict() == choice.config
    # What is kept in the experiment's folder is the same experiment.
    assert parse_spec(name, spec.text) == spec


def test_table_1_is_the_papers() -> None:
    spec = load_spec("table1-grand")
    assert spec.datasets == DATASETS
    assert {row.name: row.method for row in spec.rows} == {name: name for name in GRAND_VARIANTS}
    figures = {row.name: tuple(row.paper[dataset] for dataset in DATASETS) for row in spec.rows}
    assert figures == TABLE_1
    assert {preset for row in spec.rows for preset in row.presets.values()} == {"tuned"}
    assert not any(row.changes for row in spec.rows)
    assert spec.reference == "grand"


def test_the_whole_table_1_has_the_baselines_too() -> None:
    spec, part = load_spec("table1"), load_spec("table1-grand")
    own = [row for row in spec.rows if row.method not in GRAND_VARIANTS]
    figures = {
        row.name: tuple(row.paper[dataset] for dataset in DATASETS) for row in own if row.paper
    }
    assert figures == BASELINES_OF_TABLE_1
    assert {row.method for row in own} == set(BASELINES)
    assert spec.rows[len(own) :] == part.rows
    assert spec.claims[-len(part.claims) :] == part.claims
    claims = spec.claims[: -len(part.claims)]
    beaten = {claim.than for claim in claims if claim.better == "grand"}
    assert beaten == set(BASELINES_OF_TABLE_1)
    assert {preset for row in own for preset in row.presets.values()} == {"official"}


def test_an_included_spec_has_to_be_about_the_same() -> None:
    values = yaml.safe_load(COMPARISON) | {"include": "table1-grand"}
    del values["reference"], values["claims"]
    values["rows"] = [{"method": "gcn"}]
    with pytest.raises(
        ConfigError, match="the datasets cora, citeseer, pubmed; expected a spec with rows on cora"
    ):
        parse_spec("mine", yaml.safe_dump(values))
    with pytest.raises(ConfigError, match="unknown experiment 'table'"):
        parse_spec("mine", yaml.safe_dump(values | {"include": "table"}))


def test_the_paper_claims_what_table_1_has_it_claim() -> None:
    spec = load_spec("table1-grand")
    assert spec.claims
    for claim in spec.claims:
        for better, than in zip(TABLE_1[claim.better], TABLE_1[claim.than], strict=True):
            assert better[0] > than[0], claim


def test_the_search_is_that_of_the_papers_appendix() -> None:
    """K, then S, then T and λ together, each setting with 20 seeds."""
    search = load_spec("hyperparameters").search
    assert search is not None
    assert search.method == "grand"
    assert search.stages == (
        {"order": (2, 4, 5, 6, 8)},
        {"augmentations": (2, 3, 4)},
        {"temperature": (0.1, 0.2, 0.3, 0.5), "consistency_weight": (0.5, 0.7, 1.0)},
    )
    assert search.seeds == 20


def test_rows_take_from_the_whole_what_they_do_not_say(comparison: Spec) -> None:
    assert (comparison.title, comparison.splits) == ("Is it the classifier?", 2)
    assert comparison.description == "Two rows of three words."
    first, second, third = comparison.rows
    assert (first.name, first.label, set(first.presets.values())) == (
        "grand",
        "GRAND",
        {"official"},
    )
    assert first.changes == {"max_epochs": 50}
    assert first.seeds == {"cora": 7, "pubmed": 3}
    assert first.paper == {"cora": (85.4, 0.4), "pubmed": (82.7, None)}
    assert (second.name, second.method, second.label) == ("grand-gcn",) * 3
    assert second.seeds == {"cora": 4, "pubmed": 4}
    assert second.paper == {}
    assert (third.name, third.method, set(third.presets.values())) == ("deeper", "grand", {"fast"})
    assert third.changes == {"order": 12, "max_epochs": 60}
    assert third.seeds == {"cora": 2, "pubmed": 2}
    assert comparison.search is None


def test_seeds_of_the_whole_may_differ_by_dataset_too() -> None:
    spec = parse_spec(
        "mine", changed(COMPARISON, lambda v: v.update(seeds={"cora": 9, "pubmed": 8}))
    )
    assert [row.seeds for row in spec.rows] == [
        {"cora": 7, "pubmed": 3},
        {"cora": 9, "pubmed": 8},
        {"cora": 2, "pubmed": 2},
    ]


def test_a_row_may_leave_out_a_dataset() -> None:
    spec = parse_spec("mine", changed(COMPARISON, lambda v: v["rows"][0]["seeds"].pop("cora")))
    assert spec.rows[0].seeds == {"pubmed": 3}
    # A preset that only one dataset has is no mistake if the row leaves out the others.
    row = {"method": "grand", "preset": "official", "name": "x", "seeds": {"cora": 1}}
    text = changed(
        COMPARISON,
        lambda v: v.update(datasets=["cora", "digits"], rows=[row], claims=[], reference="x"),
    )
    assert parse_spec("mine", text).rows[0].seeds == {"cora": 1}


def test_a_search_has_stages_and_no_rows() -> None:
    spec = parse_spec("mine", SEARCH)
    assert spec.search is not None
    assert spec.search.changes == {"hidden": 16}
    assert spec.search.stages[1] == {"temperature": (0.1, 0.2), "consistency_weight": (0.5,)}
    assert (spec.rows, spec.claims, spec.reference, spec.splits) == ((), (), None, 1)


# What is done to the comparison, or to the search, and what has to be said of it.
WRONG: dict[str, tuple[str, Change, list[str]]] = {
    "key": (COMPARISON, lambda v: v.update(colour="red"), ["unknown key 'colour' in spec;"]),
    "key, misspelt": (
        COMPARISON,
        lambda v: v.update(sedes=3),
        ["'sedes'", "did you mean 'seeds'?"],
    ),
    "key of a row": (
        COMPARISON,
        lambda v: v["rows"][1].update(methods="grand"),
        ["unknown key 'methods' in spec.rows[1]", "did you mean 'method'?"],
    ),
    "key of a claim": (
        COMPARISON,
        lambda v: v["claims"][0].update(worse="grand"),
        ["unknown key 'worse' in spec.claims[0]"],
    ),
    "key of the search": (
        SEARCH,
        lambda v: v["search"].update(preset="official"),
        ["unknown key 'preset' in spec.search"],
    ),
    "key of set": (
        COMPARISON,
        lambda v: v["set"].update(temprature=0.2),
        ["unknown configuration key 'temprature'; did you mean 'temperature'?"],
    ),
    "key of a row's set": (
        COMPARISON,
        lambda v: v["rows"][2]["set"].update(lam=1.0),
        ["unknown configuration key 'lam'"],
    ),
    "key of a stage": (
        SEARCH,
        lambda v: v["search"]["stages"][0].update(orders=[2]),
        ["unknown configuration key 'orders'; did you mean 'order'?"],
    ),
    "paper of no dataset": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(citeseer=75.4),
        ["unknown key 'citeseer' in paper of grand"],
    ),
    "seeds of no dataset": (
        COMPARISON,
        lambda v: v["rows"][0]["seeds"].update(citeseer=5),
        ["unknown key 'citeseer' in seeds of grand"],
    ),
    "no title": (COMPARISON, lambda v: v.pop("title"), ["spec lacks title"]),
    "no seeds": (SEARCH, lambda v: v.pop("seeds"), ["spec lacks seeds"]),
    "no datasets": (COMPARISON, lambda v: v.pop("datasets"), ["spec lacks datasets"]),
    "row without a method": (
        COMPARISON,
        lambda v: v["rows"][2].pop("method"),
        ["spec.rows[2] lacks method"],
    ),
    "claim that is half": (
        COMPARISON,
        lambda v: v["claims"][1].pop("than"),
        ["spec.claims[1] lacks than"],
    ),
    "search without stages": (
        SEARCH,
        lambda v: v["search"].pop("stages"),
        ["spec.search lacks stages"],
    ),
    "dataset": (
        COMPARISON,
        lambda v: v["datasets"].append("coar"),
        ["unknown dataset 'coar'; did you mean 'cora'?"],
    ),
    "optional dataset of nobody": (
        COMPARISON,
        lambda v: v.update(optional=["digits"]),
        ["optional has 'digits', which is not one of the datasets"],
    ),
    "dataset twice": (COMPARISON, lambda v: v["datasets"].append("cora"), ["each once"]),
    "no dataset": (
        COMPARISON,
        lambda v: v.update(datasets=[]),
        ["spec.datasets = (); expected a list of words, at least one"],
    ),
    "dataset that is no list": (
        COMPARISON,
        lambda v: v.update(datasets="cora"),
        ["spec.datasets = 'cora'; expected a list"],
    ),
    "method": (
        COMPARISON,
        lambda v: v["rows"][1].update(method="grand-gnc"),
        ["unknown method 'grand-gnc'; did you mean 'grand-gcn'?"],
    ),
    "method with swapped letters": (
        COMPARISON,
        lambda v: v["rows"][1].update(method="gnc"),
        ["unknown method 'gnc'; did you mean 'gcn'?"],
    ),
    "method of the search": (
        SEARCH,
        lambda v: v["search"].update(method="gran"),
        ["unknown method 'gran'; did you mean 'grand'?"],
    ),
    "preset": (
        COMPARISON,
        lambda v: v["rows"][1].update(preset="offical"),
        ["unknown preset 'offical'", "official"],
    ),
    "preset that a dataset lacks": (
        COMPARISON,
        lambda v: v.update(datasets=["digits"], rows=[{"method": "grand"}], claims=[]),
        ["not for digits", "use preset 'default'"],
    ),
    "value": (
        COMPARISON,
        lambda v: v["rows"][2]["set"].update(temperature=2.0),
        ["temperature = 2.0; expected above 0 (at least 0.001) and at most 1"],
    ),
    "value of the whole": (
        COMPARISON,
        lambda v: v["set"].update(order="deep"),
        ["order = 'deep'; expected a whole number"],
    ),
    "value of a stage": (
        SEARCH,
        lambda v: v["search"]["stages"][1]["temperature"].append(0),
        ["temperature = 0.0; expected above 0"],
    ),
    "stage without a list": (
        SEARCH,
        lambda v: v["search"]["stages"][0].update(order=2),
        ["spec.search.stages[0]['order'] = 2; expected a list"],
    ),
    "empty stage": (SEARCH, lambda v: v["search"]["stages"].append({}), ["a stage is empty"]),
    "two rows of one name": (
        COMPARISON,
        lambda v: v["rows"][2].pop("name"),
        ["two rows are called 'grand'; rename one of them"],
    ),
    "claim about no row": (
        COMPARISON,
        lambda v: v["claims"][0].update(than="grand-gat"),
        ["claim 'the perceptron is better' is about 'grand-gat', which is not a row"],
    ),
    "claim about a misspelt row": (
        COMPARISON,
        lambda v: v["claims"][1].update(better="deper"),
        ["'deper', which is not a row; did you mean 'deeper'?"],
    ),
    "reference that is no row": (
        COMPARISON,
        lambda v: v.update(reference="grnad"),
        ["reference 'grnad' is not a row; did you mean 'grand'?"],
    ),
    "rows and a search": (
        COMPARISON,
        lambda v: v.update(search=yaml.safe_load(SEARCH)["search"]),
        ["either rows or a search, and not both"],
    ),
    "neither rows nor a search": (
        SEARCH,
        lambda v: v.pop("search"),
        ["expected either rows or a search"],
    ),
    "no seeds at all": (
        COMPARISON,
        lambda v: v.update(seeds=0),
        ["seeds of grand-gcn = 0", "at least 1"],
    ),
    "seeds that are true": (
        COMPARISON,
        lambda v: v.update(seeds=True),
        ["spec.seeds = True; expected a whole"],
    ),
    "seeds in words": (
        COMPARISON,
        lambda v: v.update(seeds="ten"),
        ["spec.seeds = 'ten'; expected a whole"],
    ),
    "seeds that are a list": (
        COMPARISON,
        lambda v: v.update(seeds=[1, 2]),
        ["spec.seeds = [1, 2]; expected"],
    ),
    "seeds of a row": (
        COMPARISON,
        lambda v: v["rows"][0]["seeds"].update(cora=0),
        ["seeds of grand = 0; expected a whole number of at least 1"],
    ),
    "half a seed": (SEARCH, lambda v: v.update(seeds=0.5), ["spec.seeds = 0.5; expected a whole"]),
    "no splits": (COMPARISON, lambda v: v.update(splits=0), ["spec.splits = 0; expected a whole"]),
    "figure in words": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(cora="85.4 ± 0.4"),
        ["spec.rows[0].paper['cora'] = '85.4 ± 0.4'; expected a number or a list of numbers"],
    ),
    "figure of three": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(cora=[85.4, 0.4, 100]),
        ["[85.4, 0.4, 100.0]; expected a mean, or [mean, deviation]"],
    ),
    "row that is a word": (
        COMPARISON,
        lambda v: v["rows"].append("grand-gat"),
        ["spec.rows[3] = 'grand-gat'; expected the keys method"],
    ),
    "rows by name": (
        COMPARISON,
        lambda v: v.update(rows={"grand": {}}),
        ["spec.rows = {'grand': {}}; expected a list"],
    ),
    "claim that is a sentence": (
        COMPARISON,
        lambda v: v["claims"].append("GRAND is best"),
        ["spec.claims[2] = 'GRAND is best'; expected the keys claim"],
    ),
    "set that is a list": (
        COMPARISON,
        lambda v: v.update(set=["order=3"]),
        ["spec.set = ['order=3']; expected keys and values"],
    ),
    "paper that is a number": (
        COMPARISON,
        lambda v: v["rows"][0].update(paper=85.4),
        ["spec.rows[0].paper = 85.4; expected keys and values"],
    ),
    "search that is a list": (
        SEARCH,
        lambda v: v.update(search=[{"order": [2]}]),
        ["spec.search = [{'order': [2]}]; expected the keys method, stages"],
    ),
}


@pytest.mark.parametrize(("text", "change", "told"), WRONG.values(), ids=WRONG.keys())
def test_a_wrong_spec_is_refused_and_what_is_wrong_named(
    text: str, change: Change, told: list[str]
) -> None:
    parse_spec("mine", text)
    message = refusal(changed(text, change))
    for part in told:
        assert part in message


# Mistakes that would only show when an experiment has run, or as a traceback, or never.
UNSEEN: dict[str, tuple[str, Change, str]] = {
    "row on no dataset": (COMPARISON, lambda v: v["rows"][0].update(seeds={}), "grand"),
    "no rows": (COMPARISON, lambda v: [v.update(rows=[], claims=[]), v.pop("reference")], "rows"),
    "no stages": (SEARCH, lambda v: v["search"].update(stages=[]), "stage"),
    "nothing to try": (SEARCH, lambda v: v["search"]["stages"][0].update(order=[]), "order"),
    "preset in a list": (COMPARISON, lambda v: v.update(preset=["fast"]), "fast"),
    "method of the search in a list": (
        SEARCH,
        lambda v: v["search"].update(method=["grand"]),
        "grand",
    ),
    "method of the search a number": (SEARCH, lambda v: v["search"].update(method=5), "5"),
    "no method of the search": (SEARCH, lambda v: v["search"].update(method=None), "None"),
    "number for a key of set": (COMPARISON, lambda v: v["set"].update({5: 1}), "5"),
    "number for a key of a stage": (
        SEARCH,
        lambda v: v["search"]["stages"][0].update({5: [1]}),
        "5",
    ),
    "key that Python uses": (COMPARISON, lambda v: v["set"].update(self=1), "'self'"),
    "figure that is true": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(cora=True),
        "True",
    ),
    "figure that is no number": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(cora=float("nan")),
        "nan",
    ),
    "deviation without end": (
        COMPARISON,
        lambda v: v["rows"][0]["paper"].update(cora=[85.4, float("inf")]),
        "inf",
    ),
    "seeds that every row overrides": (
        COMPARISON,
        lambda v: [v.update(seeds="ten"), v["rows"][1].update(seeds=3)],
        "'ten'",
    ),
    "settings that do not go together": (
        SEARCH,
        lambda v: v["search"].update(
            method="grand-gat", stages=[{"hidden": [64, 24]}, {"attention_heads": [8, 16]}]
        ),
        "hidden = 24 with 16 attention heads",
    ),
}


@pytest.mark.parametrize(("text", "change", "named"), UNSEEN.values(), ids=UNSEEN.keys())
def test_a_mistake_does_not_wait_for_the_run(text: str, change: Change, named: str) -> None:
    assert named in refusal(changed(text, change))


def test_settings_that_only_work_together_are_tried_together() -> None:
    """Attention needs batch norm gone, and Pubmed's preset has it: one without the other fails."""
    stage = {"head": ["gat"], "batch_norm": [False], "hidden": [64]}
    values = {"title": "t", "datasets": ["pubmed"], "seeds": 1}
    search = {"method": "grand", "stages": [stage]}
    spec = parse_spec("mine", yaml.safe_dump(values | {"search": search}))
    assert spec.search is not None
    assert spec.search.stages == ({"head": ("gat",), "batch_norm": (False,), "hidden": (64,)},)


def test_a_key_given_twice_is_refused() -> None:
    """One of two values would be dropped without a word, and which is not obvious."""
    assert "seeds" in refusal(COMPARISON + "seeds: 100\n")
    assert "order" in refusal(COMPARISON.replace("{order: 12,", "{order: 12, order: 3,"))


def test_what_is_left_empty_is_not_the_word_none() -> None:
    spec = parse_spec("mine", changed(COMPARISON, lambda v: v.update(description=None)))
    assert spec.description == ""
    assert "title" in refusal(changed(COMPARISON, lambda v: v.update(title=None)))


@pytest.mark.parametrize("key", ["reference", "claims"])
def test_a_search_has_nothing_to_compare(key: str) -> None:
    value = "grand" if key == "reference" else [{"claim": "c", "better": "grand", "than": "grand"}]
    message = refusal(changed(SEARCH, lambda v: v.update({key: value})))
    assert key.rstrip("s") in message
    assert not message.endswith("expected one of "), "nothing is offered"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("title: [unclosed", "not valid YAML"),
        ("title: a\n\tdatasets: b", "not valid YAML"),
        ("title: a: b", "line 1, column 9"),
        ("title: a\n---\ntitle: b\n", "not valid YAML"),
        ("title: !!python/object/apply:os.system [ls]", "not valid YAML"),
        ("title: \x00", "not valid YAML"),
        ("title: 2026-02-30", "not valid YAML"),
        ("", "spec = None; expected the keys title, datasets"),
        ("# only a comment\n", "spec = None; expected the keys title, datasets"),
        ("- title: a", "spec = [{'title': 'a'}]; expected the keys title, datasets"),
        ("table1-grand", "spec = 'table1-grand'; expected the keys title, datasets"),
    ],
)
def test_what_is_no_spec_at_all_is_said_in_one_line(text: str, told: str) -> None:
    message = refusal(text)
    assert told in message
    assert "\n" not in message


PLACES: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]]]] = {
    "the spec": (COMPARISON, lambda v: v),
    "set": (COMPARISON, lambda v: v["set"]),
    "a row": (COMPARISON, lambda v: v["rows"][1]),
    "a row's set": (COMPARISON, lambda v: v["rows"][2]["set"]),
    "a row's seeds": (COMPARISON, lambda v: v["rows"][0]["seeds"]),
    "a row's paper": (COMPARISON, lambda v: v["rows"][0]["paper"]),
    "a claim": (COMPARISON, lambda v: v["claims"][1]),
    "a search": (SEARCH, lambda v: v),
    "a search's set": (SEARCH, lambda v: v["set"]),
    "search": (SEARCH, lambda v: v["search"]),
    "a stage": (SEARCH, lambda v: v["search"]["stages"][1]),
}
KNOWN = {
    *"title description datasets preset set seeds splits reference rows claims search".split(),
    *"method name label paper claim better than stages self".split(),
    *dataset_names(),
    *make_method("grand", "cora").config,
}
"""Every word that is a key somewhere; what happens to ``self`` is tested above."""


@given(
    key=st.text(st.characters(codec="utf-8"), max_size=12).filter(lambda text: text not in KNOWN),
    place=st.sampled_from(sorted(PLACES)),
    value=st.sampled_from([1, 0.5, "grand", [1], True]),
)
def test_a_foreign_key_anywhere_is_refused_by_its_name(key: str, place: str, value: Any) -> None:
    text, find = PLACES[place]
    values = yaml.safe_load(text)
    find(values)[key] = value if place != "a stage" else [1]
    written = yaml.safe_dump(values, allow_unicode=True)
    assert yaml.safe_load(written) == values
    assert repr(key) in refusal(written)


def test_only_some_datasets(comparison: Spec) -> None:
    part = comparison.only(datasets=["pubmed"])
    assert part.datasets == ("pubmed",)
    assert [row.seeds for row in part.rows] == [{"pubmed": 3}, {"pubmed": 4}, {"pubmed": 2}]
    assert (part.claims, part.reference) == (comparison.claims, "grand")
    assert comparison.only(datasets=["pubmed", "cora"]) == comparison, "the spec's order stays"


def test_only_some_rows_drop_the_claims_about_others(comparison: Spec) -> None:
    part = comparison.only(methods=["deeper", "grand"])
    assert [row.name for row in part.rows] == ["grand", "deeper"]
    assert [claim.claim for claim in part.claims] == ["depth helps"]
    assert part.reference == "grand"
    alone = comparison.only(methods=["grand-gcn"])
    assert ([row.name for row in alone.rows], alone.claims) == (["grand-gcn"], ())
    assert alone.reference is None


def test_other_seeds_are_those_of_every_cell(comparison: Spec) -> None:
    part = comparison.only(datasets=["cora"], methods=["grand"], seeds=5)
    assert [dict(row.seeds) for row in part.rows] == [{"cora": 5}]
    assert comparison.only(seeds=5).rows[0].seeds == {"cora": 5, "pubmed": 5}
    search = parse_spec("mine", SEARCH).only(seeds=1).search
    assert search is not None
    assert search.seeds == 1
    assert comparison.rows[0].seeds == {"cora": 7, "pubmed": 3}, "the whole was changed"
    with pytest.raises(ConfigError, match="0 seeds; expected at least 1"):
        comparison.only(seeds=0)


def test_other_splits_are_those_of_every_dataset(comparison: Spec) -> None:
    part = comparison.only(splits=7)
    assert list(part.split_seeds) == list(range(7))
    assert part.num_trials * comparison.splits == 7 * comparison.num_trials
    with pytest.raises(ConfigError, match="0 splits; expected at least 1"):
        comparison.only(splits=0)


def test_nothing_chosen_is_everything(comparison: Spec) -> None:
    assert comparison.only() == comparison


def test_only_refuses_what_the_experiment_lacks(comparison: Spec) -> None:
    with pytest.raises(ConfigError, match=r"no dataset 'pubmad'; did you mean 'pubmed'\?"):
        comparison.only(datasets=["cora", "pubmad"])
    with pytest.raises(ConfigError, match="no dataset 'digits'; expected one of cora, pubmed"):
        comparison.only(datasets=["digits"])
    with pytest.raises(ConfigError, match=r"no method 'deper'; did you mean 'deeper'\?"):
        comparison.only(methods=["deper"])
    with pytest.raises(ConfigError, match="no methods to choose from"):
        parse_spec("mine", SEARCH).only(methods=["grand"])


def test_an_empty_choice_is_a_mistake(comparison: Spec) -> None:
    """As from ``--datasets ""``: an experiment of nothing ends at once, and seems to be done."""
    with pytest.raises(ConfigError, match="dataset"):
        comparison.only(datasets=[])
    with pytest.raises(ConfigError, match="method"):
        comparison.only(methods=[])


@pytest.mark.parametrize("ending", ["yaml", "yml"])
def test_a_file_of_ones_own(tmp_path: Path, comparison: Spec, ending: str) -> None:
    path = tmp_path / f"mine.{ending}"
    path.write_text(COMPARISON, encoding="utf-8")
    assert load_spec(str(path)) == comparison
    path.write_text(changed(COMPARISON, lambda v: v.update(colour=1)), encoding="utf-8")
    with pytest.raises(ConfigError, match="spec mine: unknown key 'colour'"):
        load_spec(str(path))


def test_a_file_from_another_editor(tmp_path: Path, comparison: Spec) -> None:
    """A byte-order mark and Windows' line ends change nothing."""
    path = tmp_path / "mine.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + COMPARISON.replace("\n", "\r\n").encode())
    spec = load_spec(str(path))
    assert (spec.rows, spec.claims) == (comparison.rows, comparison.claims)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(bytes(range(256)))
    folder = tmp_path / "folder.yaml"
    folder.mkdir()
    for path in (tmp_path / "absent.yaml", binary, folder):
        with pytest.raises(ConfigError, match="cannot be read") as caught:
            load_spec(str(path))
        assert str(path) in str(caught.value)


def test_an_experiment_that_does_not_exist_gets_a_suggestion() -> None:
    with pytest.raises(ConfigError, match=r"did you mean 'table1-grand'\? Or give the path"):
        load_spec("tabel1-grand")
    with pytest.raises(ConfigError, match=r"give the path of a spec file that ends in \.yaml"):
        load_spec("mine.txt")


SERIES = """
title: Steps
datasets: [cora, "cora@random-edges:rate=0.1"]
seeds: 2
measures: [loss_gap]
rows:
  - {method: grand, label: GRAND, preset: {cora: fast}, vary: {order: [2, 4]}}
  - {method: gcn, label: GCN}
claims:
  - {claim: deeper is better, better: grand order=4, than: grand order=2, measure: loss_gap,
     datasets: [cora]}
plots:
  - {title: Against steps, x: steps K, measures: [test_accuracy, loss_gap]}
  - {title: Against fake edges, x: rate, over: random-edges.rate, rows: [gcn]}
"""


def test_a_row_that_varies_a_key_is_a_series_of_rows() -> None:
    spec = parse_spec("series", SERIES)
    names = [(row.name, row.label, row.series, dict(row.at)) for row in spec.rows]
    assert names == [
        ("grand order=2", "GRAND, order = 2", "grand", {"order": 2}),
        ("grand order=4", "GRAND, order = 4", "grand", {"order": 4}),
        ("gcn", "GCN", "", {}),
    ]
    assert [row.changes.get("order") for row in spec.rows] == [2, 4, None]
    assert set(spec.rows[0].presets.values()) == {"fast"}
    assert spec.plots[0].rows == ("grand", "gcn")
    assert spec.claims[0].datasets == ("cora",)


def test_a_series_is_chosen_by_its_name() -> None:
    spec = parse_spec("series", SERIES).only(methods=["grand"])
    assert [row.name for row in spec.rows] == ["grand order=2", "grand order=4"]
    assert len(spec.claims) == 1


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("vary: {order: [2, 4]}", "vary: {order: [2], hidden: [8]}", "varies order, hidden"),
        ("vary: {order: [2, 4]}", "vary: {order: []}", "order is \\[\\]; expected values"),
        ("vary: {order: [2, 4]}", "vary: {order: [2, -4]}", "order = -4"),
        ("preset: {cora: fast}", "preset: {}", "preset of grand order=2 lacks cora"),
        (
            "preset: {cora: fast}",
            "preset: {cora: fast, corra: paper}",
            "unknown key 'corra' in preset of grand order=2; did you mean 'cora'?",
        ),
        ("label: GCN", "name: grand", "two rows are called 'grand'; rename one of them"),
        (
            "label: GCN}",
            "name: grand, vary: {hidden: [8, 16]}}",
            "two rows are called 'grand'; rename one of them",
        ),
        (
            "label: GRAND,",
            'seeds: {"cora@random-edges:rate=0.1": 2},',
            "'deeper is better' needs grand order=4 on cora, grand order=2 on cora, for which the "
            "row has no seeds",
        ),
        ("vary: {order: [2, 4]}", "vary: {order: [2]}, choose: {order: [2]}", "varies and chooses"),
        ("measures: [loss_gap]\n", "measures: [madgap_by_labels]\n", "the trials do not store"),
        ("measure: loss_gap,", "measure: confusion,", "which is no measure that is one number"),
        ("datasets: [cora]}", "datasets: [pubmed]}", "unknown key 'pubmed'"),
        ("[test_accuracy, loss_gap]}", "[madgap_by_labels]}", "no number that the trials store"),
        ("rows: [gcn]", "rows: [gnc]", "did you mean 'gcn'"),
        ("over: random-edges.rate", "over: metattack.rate", "which no dataset has"),
        ("x: steps K, ", "x: steps K, rows: [gcn], ", "none of its rows varies a key"),
        (
            "over: random-edges.rate",
            "over: random-edges.definition",
            "which is not a number; expected one of random-edges.rate, random-edges.seed",
        ),
        (
            "vary: {order: [2, 4]}",
            "vary: {head: [mlp, gcn]}",
            "draws 'grand' against head = 'mlp', which is not a number",
        ),
        (
            "[test_accuracy, loss_gap]}",
            "[confusion]}",
            "'confusion', which is not a number and cannot be plotted; expected some of test_acc",
        ),
        ("[test_accuracy, loss_gap]}", "[madgap_by_labels]}", "add it to measures"),
        ("[test_accuracy, loss_gap]}", "[loss_gap, loss_gap]}", "has 'loss_gap' twice"),
        ("rows: [gcn]", "rows: [gcn, gcn]", "rows of plot 'Against fake edges' has 'gcn' twice"),
        ("title: Against steps", "title: Against fake edges", "plots has 'Against fake edges' tw"),
        ("vary: {order: [2, 4]}", "vary: {order: [2, 4, 2]}", "expected each value once"),
        ("vary: {order: [2, 4]}", "choose: {order: [2, 2]}", "expected each value once"),
        (
            "vary: {order: [2, 4]}",
            "set: {order: 3}, vary: {order: [2, 4]}",
            "grand sets order and also gives values to try",
        ),
        (
            "vary: {order: [2, 4]}",
            "set: {order: 3}, choose: {order: [2, 4]}",
            "grand sets order and also gives values to try",
        ),
    ],
)
def test_an_invalid_series_claim_or_plot_is_an_error(old: str, new: str, told: str) -> None:
    assert old in SERIES
    with pytest.raises(ConfigError, match=told):
        parse_spec("series", SERIES.replace(old, new))


ATTACKED = "cora@random-edges:rate=0.1"


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        ({"than": "gcn", "datasets": ["cora"]}, "compares 'gcn' on cora with itself"),
        ({"than": "gcn", "wider_than": "cora"}, "compares 'gcn' on cora with itself"),
        ({"than": "gcn", "against": "cora"}, "compares 'gcn' on cora with itself"),
        (
            {"than": "grand order=2", "datasets": ["cora"], "wider_than": "cora"},
            "compares the difference on cora with itself",
        ),
        ({"than": "grand order=2", "wider_than": "cora"}, "the difference on cora with itself"),
        ({"than": "grand order=2", "datasets": ["cora", "cora"]}, "'cora' twice"),
        (
            {"than": "grand order=2", "datasets": [ATTACKED, f"{ATTACKED}0"]},
            "which are the same graph",
        ),
        ({"than": "grand order=2", "paper": 101}, "percentage points from -100 to 100"),
        ({"than": "grand order=2", "paper": float("inf")}, "inf"),
    ],
)
def test_a_claim_that_can_never_hold_is_refused(claim: dict[str, Any], told: str) -> None:
    values = yaml.safe_load(SERIES)
    values["claims"] = [{"claim": "no", "better": "gcn", **claim}]
    with pytest.raises(ConfigError, match=told):
        parse_spec("series", yaml.safe_dump(values))


def test_a_row_is_compared_with_itself_on_another_graph() -> None:
    values = yaml.safe_load(SERIES)
    for claim in (
        {"than": "gcn", "datasets": ["cora"], "against": ATTACKED},
        {"than": "grand order=2", "datasets": [ATTACKED], "wider_than": "cora", "paper": 150},
    ):
        values["claims"] = [{"claim": "yes", "better": "gcn", **claim}]
        assert len(parse_spec("series", yaml.safe_dump(values)).claims) == 1


@pytest.mark.parametrize(
    ("figure", "shown"),
    [([80, -3], r"\[80.0, -3.0\]"), (101, r"\[101.0\]"), (-1, r"\[-1.0\]"), ([50, 101], "101.0")],
)
def test_a_figure_that_no_accuracy_has_is_refused(figure: Any, shown: str) -> None:
    text = changed(COMPARISON, lambda v: v["rows"][0]["paper"].update(cora=figure))
    with pytest.raises(ConfigError, match=f"paper of grand on cora is .*{shown}.* from 0 to 100"):
        parse_spec("mine", text)


@pytest.mark.parametrize(
    "again",
    ["cora@random-edges:rate=0.10", "cora@random-edges:seed=0,rate=0.1"],
)
def test_a_graph_is_named_once_however_it_is_written(again: str) -> None:
    values = yaml.safe_load(SERIES) | {"plots": [], "claims": []}
    for key, value in (
        ("datasets", ["cora", ATTACKED, again]),
        ("optional", [ATTACKED, again]),
        ("seeds", {ATTACKED: 2, again: 3}),
    ):
        with pytest.raises(ConfigError, match="which are the same graph; expected each once"):
            parse_spec("series", yaml.safe_dump(values | {key: value}))


def test_a_file_is_one_graph_by_whatever_path(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    paths = [str(tmp_path / "mine.npz"), str(tmp_path / "folder" / ".." / "mine.npz")]
    values = {"title": "t", "datasets": paths, "seeds": 1, "rows": [{"method": "gcn"}]}
    with pytest.raises(ConfigError, match="which are the same graph"):
        parse_spec("mine", yaml.safe_dump(values))
    assert parse_spec("mine", yaml.safe_dump(values | {"datasets": paths[:1]})).datasets == (
        paths[0],
    )


@pytest.mark.parametrize("key", ["name", "label"])
@pytest.mark.parametrize("text", ["", "  ", "x" * 5000])
def test_a_row_has_a_name_that_tables_can_show(key: str, text: str) -> None:
    message = refusal(changed(COMPARISON, lambda v: v["rows"][1].update({key: text})))
    assert "expected a text of 1 to 100 characters" in message
    assert len(message) < 300


def test_files_are_not_included(tmp_path: Path) -> None:
    """One could include itself, or another that includes it."""
    for name, other in (("a", "a"), ("b", "c"), ("c", "b")):
        values = {"title": "t", "datasets": ["cora"], "seeds": 1, "rows": [{"method": "gcn"}]}
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(values | {"include": str(tmp_path / f"{other}.yaml")}))
    for name in "abc":
        with pytest.raises(ConfigError, match="only experiments of the package can be included"):
            load_spec(str(tmp_path / f"{name}.yaml"))


GRID = {key: list(range(1, 51)) for key in ("order", "hidden", "patience", "max_epochs")}


def test_a_claim_about_all_datasets_is_tested_where_it_can_be() -> None:
    text = "title: t\ndatasets: [cora, citeseer]\nseeds: 2\nrows:\n"
    rows = "  - {method: gcn, seeds: {cora: 2}}\n  - {method: gat%s}\n"
    claim = "claims: [{claim: c, better: gcn, than: gat}]\n"
    assert parse_spec("part", text + rows % "" + claim).claims[0].datasets == ()
    elsewhere = text + rows % ", seeds: {citeseer: 2}" + claim
    with pytest.raises(ConfigError, match="claim 'c' needs gat on cora, for which the row has no"):
        parse_spec("nowhere", elsewhere)


def test_included_claims_bring_the_measures_that_they_are_about() -> None:
    text = "title: t\ndatasets: [cora, citeseer, pubmed]\nseeds: 2\nrows: [{method: gcn}]\n"
    spec = parse_spec("mine", text + "measures: [seconds_per_epoch]\ninclude: generalization\n")
    included = load_spec("generalization")
    assert spec.claims == included.claims
    assert spec.measures == ("seconds_per_epoch", *included.measures)
    assert {claim.measure for claim in spec.claims} <= {"test_accuracy", *spec.measures}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": 10**10}, "expected at most 1,000,000,000"),
        ({"seeds": 100_001}, "100,001 trials; expected at most 100,000"),
        ({"splits": 10**10}, "expected at most 1,000"),
        ({"seeds": 101, "splits": 1000}, "101,000 trials; expected at most 100,000"),
        (
            {"rows": [{"method": "grand", "choose": GRID}]},
            "6,250,000 combinations of hidden",
        ),
        (
            {"rows": None, "search": {"method": "grand", "stages": [GRID]}},
            "6,250,000 combinations of hidden",
        ),
        (
            {
                "rows": None,
                "search": {"method": "grand", "stages": [{key: GRID[key]} for key in GRID]},
            },
            "125,000 combinations of stage 1, stage 2, stage 3",
        ),
    ],
)
def test_more_trials_than_can_be_meant_are_refused_at_once(
    changes: dict[str, Any], told: str
) -> None:
    spec = {"title": "t", "datasets": ["digits"], "seeds": 1, "rows": [{"method": "grand"}]}
    spec = {key: value for key, value in (spec | changes).items() if value is not None}
    started = time.process_time()
    with pytest.raises(ConfigError, match=told):
        parse_spec("many", yaml.safe_dump(spec))
    assert time.process_time() - started < 10


def test_a_part_with_too_many_seeds_is_refused() -> None:
    with pytest.raises(ConfigError, match="trials; expected at most 100,000"):
        load_spec("table1").only(seeds=10**10)
