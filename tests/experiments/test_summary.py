"""From stored trials to tables: what is counted, compared, judged, chosen and written."""

from __future__ import annotations

import csv
import errno
import html
import io
import json
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from dropnode.csv_text import csv_rows
from dropnode.errors import ConfigError
from dropnode.experiments import measures, writers
from dropnode.experiments.measures import Measure
from dropnode.experiments.record import Record
from dropnode.experiments.results import (
    DatasetFacts,
    Machine,
    Results,
    RowResult,
    read_results,
)
from dropnode.experiments.runner import Cell
from dropnode.experiments.spec import Spec
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.statistics import Summary, compare, holm
from dropnode.experiments.summary import summarise_experiment, summarise_stage
from dropnode.experiments.trials import Data, Trial
from dropnode.experiments.writers import as_csv, as_latex, as_markdown, write_results
from dropnode.graph import Graph

TEXT = """
title: Three rows
description: For the tests.
datasets: [cora, pubmed]
preset: official
seeds: 3
reference: grand
rows:
  - method: grand
    label: GRAND
    paper: {cora: [85.4, 0.4], pubmed: 82.7}
  - {method: grand-gcn, label: GCN, paper: {cora: [84.5, 0.3]}}
  - {method: grand-gat, seeds: {cora: 3}}
claims:
  - {claim: no convolution, better: grand, than: grand-gcn}
  - {claim: no attention, better: grand-gcn, than: grand-gat}
"""
COMMAND = "dropnode reproduce mine.yaml --out runs/mine"

Score = float | str | None
"""The fraction that a trial got right, or why it failed, or None if it has not ended."""


class Stored:
    """Trials of some cells, as if an experiment had run."""

    def __init__(self) -> None:
        self.cells: list[Cell] = []
        self.records: dict[str, Record] = {}

    def add(
        self,
        name: str,
        scores: Sequence[Score],
        dataset: str = "cora",
        *,
        val: Sequence[float] | None = None,
        seconds: Sequence[float | None] | None = None,
        label: str | None = None,
        setting: Mapping[str, Any] | None = None,
    ) -> Cell:
        trials = tuple(
            Trial(dataset, f"{dataset:0<64}", "public", 0, name, 1, "official", {"order": 8}, seed)
            for seed in range(len(scores))
        )
        for place, (trial, score) in enumerate(zip(trials, scores, strict=True)):
            took = 12.0 if seconds is None else seconds[place]
            if isinstance(score, str):
                record = Record(trial, "failed", {}, None, "2026-11-16T02:10:00+00:00", {}, score)
            elif score is not None:
                metrics = {
                    "test_accuracy": score,
                    "val_accuracy": score if val is None else val[place],
                }
                record = Record(trial, "done", metrics, took, "2026-11-16T02:10:00+00:00", {})
            else:
                continue
            self.records[trial.id] = record
        self.cells.append(Cell(dataset, name, label or name, trials, setting or {}))
        return self.cells[-1]


@pytest.fixture
def stored() -> Stored:
    return Stored()


@pytest.fixture
def data(community: Graph) -> Data:
    """The same small graph under two names."""
    assert community.split is not None
    names = ("cora", "pubmed")
    return Data(
        dict.fromkeys(names, community),
        {(name, 0): community.split for name in names},
        {name: f"hash of {name}" for name in names},
    )


def summed_up(spec: Spec, data: Data, stored: Stored) -> Results:
    return summarise_experiment(spec, data, stored.cells, stored.records.get, COMMAND)


@pytest.fixture
def whole(data: Data, stored: Stored) -> Results:
    """Everything that can happen to a cell: done, one failed, not begun, not asked for."""
    stored.add("grand", [0.85, 0.86, 0.855], label="GRAND", seconds=[10.0, 30.0, 14.0])
    stored.add("grand", [0.82, "ValueError: the loss is nan", 0.83], "pubmed", label="GRAND")
    stored.add("grand-gcn", [0.84, None, None], label="GCN", seconds=[None, None, None])
    stored.add("grand-gcn", [None, None, None], "pubmed", label="GCN")
    stored.add("grand-gat", ["killed", "killed", "killed"])
    return summed_up(parse_spec("mine", TEXT), data, stored)


def row_of(results: Results, method: str, dataset: str) -> RowResult:
    (row,) = (r for r in results.rows if (r.method, r.dataset) == (method, dataset))
    return row


def test_a_row_says_in_percent_what_its_trials_came_to(whole: Results, stored: Stored) -> None:
    row = row_of(whole, "grand", "cora")
    assert row.accuracy.mean == pytest.approx(85.5)
    assert row.median == pytest.approx(85.5)
    assert row.accuracy.std == pytest.approx(statistics.stdev([85.0, 86.0, 85.5]))
    assert row.accuracy.ci95 == pytest.approx(4.302653 * 0.5 / 3**0.5), "Student's t with 2 degrees"
    assert (row.accuracy.n, row.asked, row.failed) == (3, 3, 0)
    assert (row.paper, row.paper_std) == (85.4, 0.4)
    assert row.difference == pytest.approx(0.1)
    assert row.seconds == 14.0, "the median"
    assert (row.label, row.preset, row.config) == ("GRAND", "official", {"order": 8})
    assert row.trials == tuple(trial.id for trial in stored.cells[0].trials)
    assert len(set(row.trials)) == 3


def test_failed_trials_and_missing_ones_are_counted_apart(whole: Results) -> None:
    partly = row_of(whole, "grand", "pubmed")
    assert (partly.accuracy.n, partly.asked, partly.failed) == (2, 3, 1)
    assert partly.accuracy.mean == pytest.approx(82.5)
    assert (partly.paper, partly.paper_std) == (82.7, None)
    single = row_of(whole, "grand-gcn", "cora")
    assert (single.accuracy.n, single.asked, single.failed) == (1, 3, 0)
    assert single.accuracy.mean == single.median == pytest.approx(84.0)
    assert [single.accuracy.std, single.accuracy.ci95, single.seconds] == [None] * 3
    for method, dataset, failed in (("grand-gcn", "pubmed", 0), ("grand-gat", "cora", 3)):
        empty = row_of(whole, method, dataset)
        assert (empty.accuracy.n, empty.asked, empty.failed) == (0, 3, failed)
        assert empty.accuracy == Summary(mean=None, std=None, ci95=None, n=0)
        assert [empty.median, empty.difference, empty.seconds] == [None] * 3
    assert row_of(whole, "grand-gcn", "pubmed").paper is None


def test_trials_of_one_seed_on_several_splits_all_count(data: Data, stored: Stored) -> None:
    """The means of a split pair with those of another method on the same split."""
    means = {"grand": (0.8, 0.9), "grand-gcn": (0.79, 0.88)}
    for name, (first, second) in means.items():
        cell = stored.add(name, [first - 0.01, first, first + 0.01])
        other = stored.add(name, [second] * 3)
        moved = tuple(replace(trial, split="second", split_seed=1) for trial in other.trials)
        for trial in moved:
            stored.records[trial.id] = Record(
                trial, "done", {"test_accuracy": second}, 1.0, "2026-11-16T02:10:00+00:00", {}
            )
        stored.add(name, [first - 0.01, first, first + 0.01])
        stored.cells[-3:] = [replace(cell, trials=cell.trials + moved)]
    results = summed_up(parse_spec("mine", TEXT), data, stored)
    row = row_of(results, "grand", "cora")
    assert (row.accuracy.n, row.asked) == (6, 6)
    assert row.accuracy.mean == pytest.approx(85.0)
    test = results.comparisons[0].test
    assert (test.n_first, test.n_second, test.splits) == (6, 6, 2)
    assert test.difference == pytest.approx(1.5)
    # The differences of the two splits' means are 1 and 2 points.
    assert test.p == pytest.approx(scipy.stats.ttest_1samp([1.0, 2.0], 0).pvalue)


@pytest.mark.parametrize(
    ("tests", "told"),
    [
        ({}, "Welch's test of all trials"),
        ({"unpaired_splits": 5}, "Welch's test of the means of each split"),
        ({"splits": 5}, "A t-test of the differences between the means of each split"),
    ],
)
def test_the_tests_are_named_as_they_were_made(
    tests: dict[str, int], told: str, data: Data, stored: Stored
) -> None:
    spec = parse_spec("mine", TEXT)
    for row in ("grand", "grand-gcn", "grand-gat"):
        stored.add(row, [0.8, 0.81, 0.79])
    results = summed_up(spec, data, stored)
    claim = replace(results.claims[0], **tests)
    first = writers.tests_of_claims(replace(results, claims=(claim,)))
    assert first == f"{told}; two-sided, corrected by Holm over all claims."
    plain = replace(results.claims[0], splits=None, unpaired_splits=None)
    both = writers.tests_of_claims(replace(results, claims=(claim, plain)))
    assert both.startswith("Welch's test of all trials" + (" or, where" if tests else ";"))
    assert told[1:] in both


def test_every_row_is_compared_with_the_reference_where_both_were_asked_for(
    whole: Results,
) -> None:
    places = [(one.dataset, one.first, one.second) for one in whole.comparisons]
    assert places == [
        ("cora", "grand", "grand-gcn"),
        ("cora", "grand", "grand-gat"),
        ("pubmed", "grand", "grand-gcn"),
    ]
    first, second, third = whole.comparisons
    assert first.test.difference == pytest.approx(1.5)
    assert (first.test.n_first, first.test.n_second, first.test.p) == (3, 1, None)
    assert second.test.difference is third.test.difference is None
    assert second.test.n_second == 0


def test_comparisons_are_corrected_over_all_of_them(data: Data, stored: Stored) -> None:
    levels = {"grand": 0.85, "grand-gcn": 0.848, "grand-gat": 0.84}
    noise = [0.001, -0.002, 0.003, 0.0, 0.004, -0.001, 0.002]
    scores: dict[tuple[str, str], dict[tuple[str, int], float]] = {}
    for name, level in levels.items():
        for dataset in ("cora", "pubmed"):
            shift = 0.0 if dataset == "cora" else -0.02
            values = [level + shift + step * (1 + 0.1 * len(name)) for step in noise]
            stored.add(name, values, dataset)
            scores[name, dataset] = {
                ("public", seed): 100 * value for seed, value in enumerate(values)
            }
    compared = summed_up(parse_spec("mine", TEXT), data, stored).comparisons
    assert len(compared) == 4
    for one in compared:
        expected = compare(scores[one.first, one.dataset], scores[one.second, one.dataset])
        assert asdict(one.test) == pytest.approx(asdict(expected))
    for raw, corrected in (
        ([one.test.p for one in compared], [one.p_holm for one in compared]),
        ([one.test.wilcoxon_p for one in compared], [one.wilcoxon_holm for one in compared]),
    ):
        assert None not in raw
        assert corrected == pytest.approx(holm(raw))


def test_a_test_that_two_claims_share_is_corrected_for_once(data: Data, stored: Stored) -> None:
    once = "claims:\n  - {claim: first, better: grand, than: grand-gcn, datasets: [cora]}\n"
    again = "  - {claim: second, better: grand, than: grand-gcn, datasets: [cora]}\n"
    other = "  - {claim: third, better: grand, than: grand-gat, datasets: [cora]}\n"
    for name, level in {"grand": 0.85, "grand-gcn": 0.848, "grand-gat": 0.847}.items():
        stored.add(name, [level - 0.001, level, level + 0.002])
    text = TEXT[: TEXT.index("claims:")]
    first, second, third = summed_up(
        parse_spec("mine", text + once + again + other), data, stored
    ).claims
    assert (first.claim, second.claim) == ("first", "second")
    assert first.p_holm == second.p_holm
    assert [first.p_holm, third.p_holm] == pytest.approx(holm([first.p, third.p]))


@pytest.mark.parametrize(("size", "verdict"), [(1.5, "confirmed"), (3.0, "contradicted")])
def test_a_claim_about_a_size_needs_that_size(
    data: Data, stored: Stored, size: float, verdict: str
) -> None:
    """A lead of 1.5 points, by much more than chance, is none of 3."""
    claim = f"better: grand, than: grand-gcn, datasets: [cora], paper: {size}, size: true"
    stored.add("grand", [0.85 + 0.001 * seed for seed in range(3)])
    stored.add("grand-gcn", [0.835 + 0.001 * seed for seed in range(3)])
    text = TEXT[: TEXT.index("claims:")] + f"claims: [{{claim: a lead, {claim}}}]\n"
    (judged,) = summed_up(parse_spec("mine", text), data, stored).claims
    assert (judged.difference, judged.verdict) == (pytest.approx(1.5), verdict)
    with pytest.raises(ConfigError, match="add paper"):
        parse_spec("mine", text.replace(f"paper: {size}, ", ""))


def test_a_size_outside_the_interval_is_contradicted_whatever_p_is(
    data: Data, stored: Stored
) -> None:
    """No difference is found, and the interval has no room for 7 points either."""
    stored.add("grand", spaced(0.85, 5))
    stored.add("grand-gcn", spaced(0.851, 5))
    claim = "better: grand, than: grand-gcn, datasets: [cora], paper: 7, size: true"
    text = TEXT[: TEXT.index("claims:")] + f"claims: [{{claim: a lead, {claim}}}]\n"
    (judged,) = summed_up(parse_spec("mine", text), data, stored).claims
    assert judged.p_holm is not None
    assert judged.p_holm > 0.05
    assert judged.verdict == "contradicted"
    within = text.replace("paper: 7", "paper: 0.1")
    (judged,) = summed_up(parse_spec("mine", within), data, stored).claims
    assert judged.verdict == "too few seeds"


STEPS = ("label-rate:rate=0.02", "random-edges:rate=0.1", "one-class:code=1")


def test_sizes_say_of_which_graph_they_are(stored: Stored) -> None:
    names = ["digits", *(f"digits@{step}" for step in STEPS)]
    text = json.dumps({"title": "t", "datasets": names, "seeds": 1, "rows": [{"method": "gcn"}]})
    results = summed_up(parse_spec("mine", text), Data.load(names), stored)
    assert [one.sizes_of for one in results.datasets] == ["", "", "digits", "digits"]
    values = results.as_json()
    assert Results.from_json(values) == results
    assert "sizes_of" not in values["datasets"][0], "as in results of earlier versions"


def test_without_a_reference_nothing_is_compared(data: Data, stored: Stored) -> None:
    spec = parse_spec("mine", TEXT).only(datasets=["cora"], methods=["grand-gcn", "grand-gat"])
    stored.add("grand-gcn", [0.84, 0.85])
    stored.add("grand-gat", [0.82, 0.83])
    results = summed_up(spec, data, stored)
    assert results.comparisons == ()
    assert [claim.claim for claim in results.claims] == ["no attention"]
    assert [dataset.name for dataset in results.datasets] == ["cora"]


CLAIM = """
title: t
datasets: [cora]
seeds: 1
rows: [{method: grand}, {method: grand-gcn}]
claims: [{claim: better, better: grand, than: grand-gcn}]
"""


def spaced(middle: float, n: int, width: float = 0.01) -> list[float]:
    """Return n values about a middle."""
    return [middle + width * (place / (n - 1) - 0.5) for place in range(n)]


@pytest.mark.parametrize(
    ("better", "than", "verdict"),
    [
        (spaced(0.85, 4), spaced(0.80, 4), "confirmed"),
        (spaced(0.80, 4), spaced(0.85, 4), "contradicted"),
        (spaced(0.80, 20), spaced(0.80, 20), "not confirmed"),
        (spaced(0.80, 20), spaced(0.801, 20), "not confirmed"),
        (spaced(0.80, 20), spaced(0.80, 19), "too few seeds"),
        (spaced(0.80, 19), spaced(0.80, 20), "too few seeds"),
        (spaced(0.80, 3), spaced(0.80, 100), "too few seeds"),
        ([0.9], [0.1], "too few seeds"),
        ([], [0.1, 0.2], "too few seeds"),
        ([0.813] * 10, [0.813] * 100, "too few seeds"),
        ([0.851] * 20, [0.851] * 100, "not confirmed"),
    ],
)
def test_a_claim_is_judged_by_what_was_measured(
    data: Data, stored: Stored, better: list[float], than: list[float], verdict: str
) -> None:
    stored.add("grand", better or [None])
    stored.add("grand-gcn", than)
    (claim,) = summed_up(parse_spec("mine", CLAIM), data, stored).claims
    assert claim.verdict == verdict
    assert (claim.n_better, claim.n_than) == (len(better), len(than))
    assert claim.p_holm == claim.p, "one question has nothing to be corrected for"
    if better:
        expected = 100 * (statistics.fmean(better) - statistics.fmean(than))
        assert claim.difference == pytest.approx(expected, abs=1e-9)


def test_a_claim_among_many_needs_more_than_a_claim_alone(data: Data, stored: Stored) -> None:
    """What one question would confirm, one question of four does not."""
    rows = ["grand", "grand-gcn", "grand-gat", "grand-no-cr", "grand-no-mdn"]
    claims = [{"claim": name, "better": "grand", "than": name} for name in rows[1:]]
    values = {"title": "t", "datasets": ["cora"], "seeds": 1, "claims": claims}
    spec = parse_spec("mine", json.dumps(values | {"rows": [{"method": name} for name in rows]}))
    stored.add("grand", spaced(0.805, 8))
    stored.add("grand-gcn", spaced(0.8009, 8))
    for name in rows[2:]:
        stored.add(name, spaced(0.805, 8))
    close, *others = summed_up(spec, data, stored).claims
    assert 0.0125 < close.p < 0.05 < close.p_holm
    assert close.p_holm == pytest.approx(4 * close.p)
    assert close.verdict == "too few seeds"
    assert {other.verdict for other in others} == {"too few seeds"}
    (alone,) = summed_up(spec.only(methods=["grand", "grand-gcn"]), data, _part(stored, 2)).claims
    assert (alone.p, alone.verdict) == (close.p, "confirmed")


def _part(stored: Stored, cells: int) -> Stored:
    part = Stored()
    part.cells, part.records = stored.cells[:cells], stored.records
    return part


def test_a_stage_is_decided_by_validation_alone(stored: Stored) -> None:
    tried = [
        stored.add("a", [0.90, 0.92], val=[0.70, 0.71], setting={"order": 2}),
        stored.add("b", [0.80, 0.82], val=[0.74, 0.76], setting={"order": 4}),
        stored.add("c", [0.99, 0.99], val=[0.60, 0.79], setting={"order": 8}),
    ]
    (stage,) = summarise_stage(2, tried, stored.records.get)
    assert (stage.dataset, stage.stage, stage.varied) == ("cora", 2, ("order",))
    assert [row.chosen for row in stage.rows] == [False, True, False]
    best = stage.rows[1]
    assert best.changes == {"order": 4}
    assert [best.val_mean, best.test_mean] == pytest.approx([75.0, 81.0])
    assert [best.val_std, best.test_std] == pytest.approx([2**0.5, 2**0.5])
    assert (best.n, best.asked) == (2, 2)
    assert best.trials == tuple(trial.id for trial in tried[1].trials)


def test_of_equal_settings_the_first_is_chosen(stored: Stored) -> None:
    tried = [
        stored.add("a", [0.5, 0.5], setting={"order": 2}),
        stored.add("b", [0.6, 0.8], val=[0.7, 0.9], setting={"order": 4}),
        stored.add("c", [0.9, 0.9], val=[0.9, 0.7], setting={"order": 5}),
    ]
    (stage,) = summarise_stage(1, tried, stored.records.get)
    assert [row.chosen for row in stage.rows] == [False, True, False]


def test_equal_numbers_of_nodes_are_equal_settings(stored: Stored) -> None:
    """The same accuracies in another order are a tie, though their sums round differently."""
    values = [0.701, 0.702, 0.706, 0.713, 0.7]
    orders = [sorted(values), sorted(values, reverse=True), values, values[::-1]]
    tried = [stored.add(str(k), one, setting={"order": k}) for k, one in enumerate(orders)]
    (stage,) = summarise_stage(1, tried, stored.records.get)
    assert [row.chosen for row in stage.rows] == [True, False, False, False]


def test_every_dataset_of_a_stage_chooses_for_itself(stored: Stored) -> None:
    tried = [
        stored.add("a", [0.7], "cora", setting={"order": 2}),
        stored.add("b", [0.6], "cora", setting={"order": 4}),
        stored.add("a", [0.7], "pubmed", setting={"order": 2}),
        stored.add("b", [0.8], "pubmed", setting={"order": 4}),
    ]
    cora, pubmed = summarise_stage(1, tried, stored.records.get)
    assert (cora.dataset, pubmed.dataset) == ("cora", "pubmed")
    assert [row.chosen for row in cora.rows] == [True, False]
    assert [row.chosen for row in pubmed.rows] == [False, True]


def test_a_setting_without_a_number_is_never_chosen(stored: Stored) -> None:
    tried = [
        stored.add("a", ["killed", None], setting={"order": 2}),
        stored.add("b", ["killed", 0.1], setting={"order": 4}),
    ]
    (stage,) = summarise_stage(1, tried, stored.records.get)
    assert [row.chosen for row in stage.rows] == [False, True]
    assert [(row.n, row.asked) for row in stage.rows] == [(0, 2), (1, 2)]
    (stage,) = summarise_stage(1, tried[:1], stored.records.get)
    assert not any(row.chosen for row in stage.rows)


# What others read in results.json, key by key.
KEYS = {
    "": (
        "experiment title description command finished environment datasets rows comparisons "
        "claims search"
    ),
    "environment": "platform processor cores python versions",
    "datasets": ("name sha256 nodes edges features classes class_names split train val test"),
    "rows": (
        "dataset method label preset config mean std ci95 n asked failed paper paper_std "
        "difference median seconds trials"
    ),
    "comparisons": (
        "dataset first second difference low high p p_holm wilcoxon_p wilcoxon_holm "
        "n_first n_second"
    ),
    "claims": "claim dataset better than difference p p_holm n_better n_than verdict",
}
CLAIMS_MAY_HAVE = {"measure", "low", "high", "against", "wider_than", "paper"}
CLAIMS_MAY_HAVE |= {"splits", "unpaired_splits"}
"""Keys that a claim has only where there is something to say."""
STAGE_KEYS = "dataset stage varied rows"
SETTING_KEYS = "changes val_mean val_std test_mean test_std n asked chosen trials"


def test_the_file_has_the_promised_keys_and_no_others(
    whole: Results, data: Data, community: Graph, tmp_path: Path
) -> None:
    write_results(tmp_path, whole)
    names = ["results.csv", "results.json", "results.md", "results.tex"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names

    def refuse(word: str) -> None:
        pytest.fail(f"{word} is not JSON")

    text = (tmp_path / "results.json").read_text(encoding="utf-8")
    results = json.loads(text, parse_constant=refuse)
    assert results == whole.as_json()
    assert read_results(tmp_path / "results.json") == whole
    for place, keys in KEYS.items():
        found = results[place] if place else results
        for values in found if isinstance(found, list) else [found]:
            extra = CLAIMS_MAY_HAVE if place == "claims" else set()
            assert set(values) - extra == set(keys.split()), place or "the file"
    assert (results["experiment"], results["title"]) == ("mine", "Three rows")
    assert (results["command"], results["search"]) == (COMMAND, None)
    assert set(results["environment"]["versions"]) >= {"dropnode", "torch", "numpy"}
    assert community.split is not None
    assert results["datasets"][1] == {
        "name": "pubmed",
        "sha256": "hash of pubmed",
        "nodes": community.num_nodes,
        "edges": community.num_edges,
        "features": community.num_features,
        "classes": 3,
        "class_names": ["0", "1", "2"],
        "split": community.split.name,
        "train": len(community.split.train),
        "val": len(community.split.val),
        "test": len(community.split.test),
    }


def test_several_splits_are_said_to_be_several(data: Data, stored: Stored) -> None:
    split = data.splits["cora", 0]
    more = data.splits | {("cora", 1): split, ("cora", 2): split}
    spec = parse_spec("mine", CLAIM)
    results = summed_up(spec, Data(data.graphs, more, data.fingerprints), stored)
    assert results.datasets[0].split == f"{split.name}, and 2 more"


@pytest.mark.parametrize("fault", ["disk full", "not a number"])
def test_a_write_that_fails_leaves_the_file_of_before(
    whole: Results, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    write_results(tmp_path, whole)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    results = replace(whole, title="Another")
    if fault == "disk full":

        def full(descriptor: int) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr("dropnode.files.os.fsync", full)
        with pytest.raises(OSError, match="No space left"):
            write_results(tmp_path, results)
        assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    else:
        broken = replace(whole.rows[0], median=float("nan"))
        results = replace(results, rows=(broken, *whole.rows[1:]))
        with pytest.raises(ValueError, match="not JSON compliant"):
            write_results(tmp_path, results)
        assert (tmp_path / "results.json").read_bytes() == before["results.json"]
        assert {path.name for path in tmp_path.iterdir()} == set(before), "something half-written"


def searched(stored: Stored) -> Results:
    """Return the results of a search: two settings, of which the second was chosen."""
    tried = [
        stored.add("a", [0.75, 0.76], val=[0.70, 0.71], setting={"order": 2, "hidden": 16}),
        stored.add("b", [0.74, None], val=[0.72, 0], setting={"order": 4, "hidden": 16}),
        stored.add("c", [None, None], setting={"order": 8, "hidden": 16}),
    ]
    return results_with(title="A search", stages=summarise_stage(1, tried, stored.records.get))


def results_with(**changes: Any) -> Results:
    """Return results on one dataset, empty but for some changes."""
    empty = Results(
        experiment="mine",
        title="t",
        description="",
        command=COMMAND,
        finished="2026-11-16T02:10:00+00:00",
        environment=Machine("Linux", "a processor", 2, "3.11.7", {"torch": "2.13.0"}),
        datasets=(DatasetFacts("cora", "0" * 64, 9, 8, 7, 2, ("a", "b"), "public", 2, 3, 4),),
        rows=(),
        comparisons=(),
        claims=(),
        stages=(),
    )
    return replace(
        empty, **{key: tuple(v) if isinstance(v, list) else v for key, v in changes.items()}
    )


def test_a_stage_has_the_promised_keys(stored: Stored) -> None:
    (stage,) = searched(stored).as_json()["search"]
    assert set(stage) == set(STAGE_KEYS.split())
    for row in stage["rows"]:
        assert set(row) == set(SETTING_KEYS.split())


def test_csv_has_a_line_a_cell(whole: Results) -> None:
    lines = list(csv.DictReader(as_csv(whole).splitlines()))
    rows = whole.as_json()["rows"]
    assert len(lines) == len(rows) == 5
    for line, row in zip(lines, rows, strict=True):
        assert set(line) == set(row) - {"config", "trials"}
        for name, text in line.items():
            if row[name] is None:
                assert text == ""
            else:
                assert type(row[name])(text) == row[name], name


def test_csv_of_a_search_has_a_line_a_setting(stored: Stored) -> None:
    lines = list(csv.DictReader(as_csv(searched(stored)).splitlines()))
    assert [line["setting"] for line in lines] == [f"order={k}, hidden=16" for k in (2, 4, 8)]
    assert [line["chosen"] for line in lines] == ["False", "True", "False"]
    assert [line["n"] for line in lines] == ["2", "1", "0"]
    assert float(lines[0]["val_mean"]) == pytest.approx(70.5)
    assert lines[2]["val_mean"] == lines[1]["val_std"] == ""


def tables(markdown: str) -> list[list[list[str]]]:
    """Return the tables of a Markdown text, cell by cell, as a renderer would split them."""
    found: list[list[list[str]]] = [[]]
    for line in markdown.splitlines():
        if line.startswith("|"):
            cells = re.split(r"(?<!\\)\|", line)[1:-1]
            unescaped = [re.sub(r"\\([|\[`\\])", r"\1", cell.strip()) for cell in cells]
            found[-1].append([html.unescape(cell) for cell in unescaped])
        elif found[-1]:
            found.append([])
    assert all(len({len(line) for line in table}) <= 1 for table in found), "ragged"
    return [table for table in found if table]


def test_markdown_has_ours_beside_the_papers(whole: Results) -> None:
    text = as_markdown(whole)
    assert text.startswith("# Three rows\n\nFor the tests.\n\n    dropnode reproduce mine.yaml ")
    accuracies, claims, comparisons = tables(text)
    assert accuracies == [
        ["", "cora", "pubmed"],
        ["---", "---", "---"],
        ["GRAND", "85.50 ± 0.50 (3) / 85.4 ± 0.4", "82.50 ± 0.71 (2), 1 failed / 82.7"],
        ["GCN", "84.00 (1) / 84.5 ± 0.3", "– (0)"],
        ["grand-gat", "– (0), 3 failed", "–"],
    ]
    assert claims[2] == [
        *("no convolution", "cora", "+1.50", "–", "+0.9", "–", "3, 1", "too few seeds"),
    ]
    assert [line[1] for line in claims[2:]] == ["cora", "pubmed", "cora"]
    assert comparisons[3] == ["grand – grand-gat", "cora", "–", "–", "–", "–"]


def test_markdown_has_what_was_tested(data: Data, stored: Stored) -> None:
    stored.add("grand", [0.85, 0.86, 0.87])
    stored.add("grand-gcn", [0.75, 0.76, 0.77])
    spec = parse_spec("mine", CLAIM.replace("rows:", "reference: grand\nrows:"))
    _, claims, comparisons = tables(as_markdown(summed_up(spec, data, stored)))
    # Two means 10 apart with standard errors 1/√3: t is 10·√1.5 with 4 degrees, p 0.00026.
    half = 2.776445 * (2 / 3) ** 0.5
    interval = f"{10 - half:+.2f} to {10 + half:+.2f}"
    assert claims[2] == ["better", "cora", "+10.00", interval, "–", "0.00026", "3, 3", "confirmed"]
    assert comparisons[2] == ["grand – grand-gcn", "cora", "+10.00", interval, "0.00026", "–"]


def test_a_claim_can_be_about_two_datasets_and_state_a_difference(
    data: Data, stored: Stored
) -> None:
    stored.add("grand", [0.85, 0.86, 0.87], "cora")
    stored.add("grand", [0.78, 0.79, 0.80], "pubmed")
    text = TEXT.partition("claims:")[0] + (
        "claims:\n  - {claim: pubmed is harder, better: grand, than: grand, datasets: [cora], "
        "against: pubmed, paper: 7}\n"
    )
    results = summed_up(parse_spec("mine", text), data, stored)
    (claim,) = results.claims
    assert claim.difference == pytest.approx(7)
    assert (claim.dataset, claim.against, claim.paper) == ("cora", "pubmed", 7.0)
    assert Results.from_json(results.as_json()) == results
    line = tables(as_markdown(results))[1][2]
    assert line[:3] + line[4:5] == ["pubmed is harder", "cora, pubmed", "+7.00", "+7"]
    with pytest.raises(ConfigError, match="datasets of claim 'pubmed is harder'"):
        parse_spec("mine", text.replace("against: pubmed", "against: citeseer"))


def test_a_claim_can_be_that_a_gap_is_wider_elsewhere(data: Data, stored: Stored) -> None:
    for dataset, better, than in (("cora", 0.85, 0.75), ("pubmed", 0.80, 0.78)):
        stored.add("grand", [better - 0.01, better, better + 0.01], dataset)
        stored.add("grand-gcn", [than - 0.01, than, than + 0.01], dataset)
    text = TEXT.partition("claims:")[0] + (
        "claims:\n  - {claim: it widens, better: grand, than: grand-gcn, datasets: [cora], "
        "wider_than: pubmed}\n"
    )
    results = summed_up(parse_spec("mine", text), data, stored)
    (claim,) = results.claims
    assert claim.difference == pytest.approx(8)
    assert (claim.wider_than, claim.n_better, claim.n_than) == ("pubmed", 3, 3)
    assert (claim.paper, claim.verdict) == (None, "confirmed")
    assert Results.from_json(results.as_json()) == results
    assert tables(as_markdown(results))[1][2][:3] == ["it widens", "cora minus pubmed", "+8.00"]
    with pytest.raises(ConfigError, match="both against and wider_than"):
        parse_spec("mine", text.replace("wider_than", "against: cora, wider_than"))


def test_markdown_of_a_search_marks_what_was_chosen(stored: Stored) -> None:
    text = as_markdown(searched(stored))
    assert "## cora, stage 1" in text
    assert tables(text) == [
        [
            ["setting", "validation (%)", "test (%)", "seeds"],
            ["---"] * 4,
            ["order=2, hidden=16", "70.50 ± 0.71", "75.50 ± 0.71", "2"],
            ["**order=4, hidden=16**", "72.00", "74.00", "1"],
            ["order=8, hidden=16", "–", "–", "0"],
        ]
    ]


def test_latex_is_one_tabular(whole: Results) -> None:
    assert as_latex(whole).splitlines() == [
        r"\begin{tabular}{lcc}",
        r"  Method & cora & pubmed \\",
        r"  \hline",
        r"  GRAND & $85.5 \pm 0.5$ & $82.5 \pm 0.7$ \\",
        r"  GCN & $84.0$ & -- \\",
        r"  grand-gat & -- & -- \\",
        r"\end{tabular}",
    ]


def test_latex_of_a_search_is_one_tabular_a_stage(stored: Stored) -> None:
    results = searched(stored)
    text = as_latex(replace(results, stages=results.stages * 2))
    assert text.count(r"\begin{tabular}{lcc}") == text.count(r"\end{tabular}") == 2
    assert r"  order=2, hidden=16 & $70.5 \pm 0.7$ & $75.5 \pm 0.7$ \\" in text.splitlines()


def empty_row(method: str, **changes: Any) -> RowResult:
    """Return the row of a method without a result."""
    row = RowResult(
        dataset="cora",
        method=method,
        label=method.upper(),
        preset="official",
        config={},
        accuracy=Summary(None, None, None, 0),
        median=None,
        asked=2,
        failed=0,
        paper=None,
        paper_std=None,
        difference=None,
        seconds=None,
        trials=(f"{method}-0", f"{method}-1"),
    )
    return replace(row, **changes)


def named(label: str) -> Results:
    """Return results with a row of some label, and another row."""
    return results_with(rows=[empty_row("a", label=label), empty_row("b")])


@given(st.text("ab |&%$#_{}<>*", max_size=8).map(lambda text: " ".join(text.split())))
def test_a_label_with_any_marks_stays_one_cell_of_markdown(label: str) -> None:
    (table,) = tables(as_markdown(named(label)))
    assert [line[0] for line in table[2:]] == [label, "B"]


@pytest.mark.parametrize(
    "text",
    ["<script>alert(1)</script>", "[x](javascript:alert(1))", "a `b` \\| c", "&lt;b>", "<!--"],
)
def test_a_reader_of_markdown_sees_text_from_outside_as_it_is(text: str) -> None:
    """The renderer is the one that comes with rich."""
    results = replace(named(text), title=text, description=text, command=f"dropnode\n{text}")
    rendered = MarkdownIt("commonmark", {"html": True}).enable("table").render(as_markdown(results))
    shown = html.escape(text, quote=False)
    assert f"<h1>{shown}</h1>" in rendered.replace("&quot;", '"')
    assert f"<p>{shown}</p>" in rendered
    assert f"<td>{shown}</td>" in rendered
    assert f"{shown}\n</code>" in rendered
    assert re.findall(r"<(?:script|a|!--)", rendered) == []


def test_formulas_are_neutral_in_the_table_for_spreadsheets() -> None:
    formulas = ["=1+1", "+1", "-1", "@x", "\t=1", "'=1", "plain"]
    rows = [empty_row(str(number), label=text) for number, text in enumerate(formulas)]
    text = as_csv(results_with(rows=rows))
    written = [row["label"] for row in csv.DictReader(io.StringIO(text))]
    assert written == ["'=1+1", "'+1", "'-1", "'@x", "'\t=1", "''=1", "plain"]
    assert [row["label"] for _, row in csv_rows(text)] == formulas


def test_a_claim_with_a_pipe_stays_one_cell_of_markdown(data: Data, stored: Stored) -> None:
    stored.add("grand", [0.85, 0.86])
    stored.add("grand-gcn", [0.75, 0.76])
    spec = parse_spec("mine", CLAIM.replace("claim: better", "claim: p(a|b) is larger"))
    *_, claims = tables(as_markdown(summed_up(spec, data, stored)))
    assert claims[2][0] == "p(a|b) is larger"


ESCAPES = {
    r"\\([&%$#_{}])": r"\1",
    r"\\(?:textasciicircum(?:\{\}|(?![A-Za-z])) ?|\^\{\})": "^",
    r"\\(?:textasciitilde(?:\{\}|(?![A-Za-z])) ?|~\{\})": "~",
    r"\\textbackslash(?:\{\}|(?![A-Za-z])) ?": r"\\",
}
"""What stands for a mark in LaTeX's text, and the mark."""


def typeset(source: str) -> str:
    """Return what LaTeX would print for a cell; a mark that it would obey is an error."""
    printed = ""
    while source:
        for pattern, mark in ESCAPES.items():
            if match := re.match(pattern, source):
                printed += match.expand(mark)
                source = source[match.end() :]
                break
        else:
            assert source[0] not in "&%$#_{}^~\\", f"LaTeX would obey {source!r}"
            printed, source = printed + source[0], source[1:]
    return printed


@pytest.mark.parametrize("label", ["A & B", "100 %", "C_max #1", "{x} costs $5"])
def test_latex_prints_marks_that_it_would_obey(label: str) -> None:
    line = as_latex(named(label)).splitlines()[3]
    assert typeset(line.removeprefix("  ").removesuffix(r" & -- \\")) == label


@pytest.mark.parametrize("label", ["G^3NN", r"a\b", "~5 layers", r"\_", "^_^ {~} \\"])
def test_latex_prints_accents_and_backslashes_too(label: str) -> None:
    """One of the paper's own baselines is called G^3NN."""
    line = as_latex(named(label)).splitlines()[3]
    assert typeset(line.removeprefix("  ").removesuffix(r" & -- \\")) == label


def test_a_label_of_two_lines_stays_one_line_of_a_table() -> None:
    """YAML's folded text ends in a newline."""
    for write in (as_markdown, as_latex):
        one, two = write(named("GRAND, tuned")), write(named("GRAND,\ntuned\n"))
        assert len(two.splitlines()) == len(one.splitlines()), write.__name__


def test_what_validation_chose_is_in_every_table_for_people() -> None:
    rows = [
        empty_row("a", chosen={"order": 8, "hidden": 16}),
        empty_row("a", dataset="pubmed", chosen={"order": 2, "hidden": 16}),
        empty_row("b"),
        empty_row("c", dataset="pubmed", chosen={"order": 4}),
    ]
    (cora,) = results_with().datasets
    results = results_with(rows=rows, datasets=[cora, replace(cora, name="pubmed")])
    lines = csv.DictReader(as_csv(results).splitlines())
    chosen = ["order=8, hidden=16", "order=2, hidden=16", "", "order=4"]
    assert [line["chosen"] for line in lines] == chosen
    text = as_markdown(results)
    assert "## Settings chosen by validation\n" in text
    _, table = tables(text)
    assert table[2:] == [["A", *chosen[:2]], ["C", "–", "order=4"]]


@pytest.fixture
def further(monkeypatch: pytest.MonkeyPatch) -> Spec:
    """A spec that asks for measures of every kind, two of them invented."""
    invented = {
        "gap": Measure("loss gap", "number", lambda training: None),
        "ece": Measure("calibration error", "fraction", lambda training: None),
    }
    monkeypatch.setattr(measures, "MEASURES", {**measures.MEASURES, **invented})
    return replace(parse_spec("mine", CLAIM), measures=("gap", "ece", "confusion"))


@pytest.fixture
def measured(further: Spec, data: Data, stored: Stored) -> Results:
    """Two seeds with a gap and a calibration error, and one method that has neither."""
    cell = stored.add("grand", [0.85, 0.86])
    stored.add("grand-gcn", [0.75, 0.76])
    for trial, gap, ece in zip(cell.trials, (0.0121, 0.0141), (0.05, None), strict=True):
        stored.records[trial.id].metrics.update(gap=gap, ece=ece, confusion=[[1, 0], [0, 1]])
    return summed_up(further, data, stored)


def test_measures_of_a_spec_are_summarised_by_their_kind(measured: Results) -> None:
    """Fractions in percent, numbers as they are, and matrices not at all."""
    first, second = measured.as_json()["rows"]
    assert set(first["measures"]) == {"gap", "ece"}
    gap, ece = (first["measures"][name] for name in ("gap", "ece"))
    assert (gap["mean"], gap["n"]) == (pytest.approx(0.0131), 2)
    assert gap["std"] == pytest.approx(statistics.stdev([0.0121, 0.0141]))
    assert gap["ci95"] == pytest.approx(12.706205 * gap["std"] / 2**0.5)
    assert ece == {"mean": pytest.approx(5.0), "std": None, "ci95": None, "n": 1}
    assert second["measures"]["gap"] == {"mean": None, "std": None, "ci95": None, "n": 0}
    assert Results.from_json(json.loads(json.dumps(measured.as_json()))) == measured


def test_every_file_has_the_measures_of_the_spec(measured: Results) -> None:
    first, second = csv.DictReader(as_csv(measured).splitlines())
    assert float(first["gap"]) == pytest.approx(0.0131)
    assert (float(first["ece"]), first["ece_std"], second["gap"]) == (pytest.approx(5), "", "")
    text = as_markdown(measured)
    _, gap, ece, _ = tables(text)
    assert "## loss gap\n" in text
    assert "## calibration error (%)\n" in text
    assert [line[1] for line in gap[2:]] == ["0.0131 ± 0.0014 (2)", "– (0)"]
    assert [line[1] for line in ece[2:]] == ["5.00 (1)", "– (0)"]
    lines = as_latex(measured).splitlines()
    assert r"  loss gap & cora \\" in lines
    assert r"  grand & $0.0131 \pm 0.0014$ \\" in lines
    assert r"  calibration error (\%) & cora \\" in lines


@pytest.mark.parametrize("measure", ["seconds_per_epoch", "val_loss", "final_loss_gap"])
@pytest.mark.parametrize(("found", "verdict"), [(0.2, "contradicted"), (0.1, "confirmed")])
def test_less_is_better(
    data: Data, stored: Stored, found: float, verdict: str, measure: str
) -> None:
    """Of time and of loss; the other method has 0.15."""
    for name, mean in (("grand", found), ("grand-gcn", 0.15)):
        cell = stored.add(name, [0.85] * 5)
        for seed, trial in enumerate(cell.trials):
            stored.records[trial.id].metrics[measure] = mean + 0.001 * seed
    claim = f"claim: c, better: grand, than: grand-gcn, datasets: [cora], measure: {measure}"
    asked = [] if measure in measures.STANDARD else [measure]
    text = f"measures: {asked}\n" + TEXT[: TEXT.index("claims:")] + f"claims: [{{{claim}}}]\n"
    (judged,) = summed_up(parse_spec("mine", text), data, stored).claims
    assert judged.p is not None
    assert judged.p < 0.001
    assert judged.verdict == verdict


@pytest.mark.parametrize(
    ("mean", "shown"),
    [
        (412.4, "412 ± 0"),
        (4.1249, "4.12 ± 0.04"),
        (0.41249, "0.412 ± 0.040"),
        (-0.0041249, "-0.00412 ± 0.04000"),
        (4e-9, "0.000000 ± 0.040000"),
        (0.0, "0.00 ± 0.04"),
    ],
)
def test_a_number_has_three_digits(mean: float, shown: str) -> None:
    assert writers.measured(Summary(mean, 0.04, 0.1, 5), "val_loss") == shown
