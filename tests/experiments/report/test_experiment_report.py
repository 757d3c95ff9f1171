"""The report of an experiment, as its reader sees it: in the file, and in a browser."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.image import imread
from report_folder import (
    CLASSES,
    ERROR,
    data_of,
    part_of_table,
    write_folder,
    write_results_json,
    write_search,
)
from report_page import Page

from dropnode.errors import ConfigError
from dropnode.experiments import measures
from dropnode.experiments.measures import Measure
from dropnode.experiments.report import write_report
from dropnode.experiments.report.evidence import POINTS, curve_of
from dropnode.experiments.report.series import Line, draw_plot, plots_of
from dropnode.experiments.report.svg import relative_path
from dropnode.experiments.results import Results
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.store import Store
from dropnode.experiments.trials import Trial

FAILED, ABSENT = ("grand-gat", "citeseer"), ("grand-gat", "pubmed")
BARE, FAR = ("grand-dropout", "cora"), ("grand-no-cr", "cora")
CURSED = "<script>alert('x')</script>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Table 1 as it may turn out: 27 cells, some seeds failed, one cell never run."""
    folder = tmp_path_factory.mktemp("table1")
    write_folder(
        folder,
        spec=part_of_table(seeds=7),
        broken={FAILED: [3, 4, 6]},
        absent=[ABSENT],
        bare=[BARE],
        shift={FAR: -2.0},
    )
    write_report(folder)
    return folder


@pytest.fixture(scope="module")
def results(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "results.json").read_text())


@pytest.fixture(scope="module")
def page(folder: Path) -> Page:
    return Page(folder / "report.html")


SMALL = [("grand", "cora"), ("grand-no-cr", "cora")]


def small(folder: Path, **changes: Any) -> Results:
    """Write a folder of two methods on one dataset."""
    spec = part_of_table(datasets=["cora"], methods=["grand", "grand-no-cr"], seeds=3)
    return write_folder(folder, spec=spec, **changes)


def test_every_row_is_told_in_full(page: Page, results: dict[str, Any]) -> None:
    for name in ("cora", "citeseer", "pubmed"):
        told = page.tables[f"Results on {name}"][1:]
        rows = [row for row in results["rows"] if row["dataset"] == name]
        assert [line[0] for line in told] == [row["label"] for row in rows]
        for line, row in zip(told, rows, strict=True):
            assert line[5] == f"{row['paper']} ± {row['paper_std']}"
            if row["n"] == 0:
                assert line[1:4] == ["no result", "–", "–"]
                continue
            low, high = row["mean"] - row["ci95"], row["mean"] + row["ci95"]
            assert line[1] == f"{row['mean']:.2f} ± {row['std']:.2f}"
            assert line[2] == f"{low:.2f} to {high:.2f}"
            assert line[3] == f"{row['median']:.2f}"
            assert line[6].removeprefix("▼ ") == f"{row['difference']:+.2f}".replace("-", "−")


def test_the_overview_has_methods_as_rows_and_datasets_as_columns(
    page: Page, results: dict[str, Any]
) -> None:
    table = page.tables["Results of all methods on all datasets"]
    assert table[0] == ["method", "cora", "citeseer", "pubmed"]
    for row in results["rows"]:
        (line,) = (line for line in table if line[0] == row["label"])
        cell = line[table[0].index(row["dataset"])]
        assert cell.startswith("no result" if row["mean"] is None else f"{row['mean']:.2f} ± ")
        assert f"paper {row['paper']}" in cell


def test_failures_and_missing_seeds_are_said_loudly(page: Page) -> None:
    assert [found for found in page.all("div") if found.get("class") == "alarm"]
    said = " ".join(page.text.split())
    assert "2 of 27 results are incomplete" in said
    assert "citeseer, GRAND with GAT: 4 of 7 seeds have a result, 3 failed." in said
    assert f"{ERROR} (seed 3, seed 4, seed 6)" in said
    assert "pubmed, GRAND with GAT: 0 of 7 seeds have a result, 7 not run." in said
    (line,) = (line for line in page.tables["Results on citeseer"] if line[0] == "GRAND with GAT")
    assert line[4] == "4 of 7, 3 failed"


def test_a_complete_experiment_raises_no_alarm(tmp_path: Path) -> None:
    small(tmp_path, bare=SMALL)
    page = Page(write_report(tmp_path))
    assert "All trials have a result." in page.text
    assert not [found for found in page.all("div") if found.get("class") == "alarm"]


@pytest.mark.parametrize(
    ("difference", "marked"),
    [(1.0 + 1e-9, ""), (-1.0, ""), (1.01, "▲ +1.01"), (-2.5, "▼ −2.50"), (None, "")],
)
def test_what_is_far_from_the_paper_is_marked(
    tmp_path: Path, difference: float | None, marked: str
) -> None:
    results = small(tmp_path, bare=SMALL)
    first, second = results.rows
    rows = (replace(first, difference=difference), replace(second, difference=0.0))
    write_results_json(tmp_path, replace(results, rows=rows))
    table = Page(write_report(tmp_path)).tables["Results on cora"]
    assert [line[6] for line in table if "▲" in line[6] or "▼" in line[6]] == [marked] * bool(
        marked
    )


def test_claims_have_verdicts_and_corrected_chances(page: Page, results: dict[str, Any]) -> None:
    told = [line for line in page.tables["Claims and verdicts"][1:] if len(line) > 1]
    claims = results["claims"]
    assert [line[1] for line in told] == [claim["verdict"] for claim in claims]
    for line, claim in zip(told, claims, strict=True):
        if claim["p_holm"] is None:
            assert line[2:4] + line[5:7] == ["–"] * 4
        else:
            low, high = map(number, line[3].split(" to "))
            assert (low, high) == pytest.approx((claim["low"], claim["high"]), abs=0.0051)
            assert number(line[6]) == pytest.approx(claim["p_holm"], rel=0.05, abs=5e-4)
            assert number(line[5]) == pytest.approx(claim["p"], rel=0.05, abs=5e-4)
        assert line[7] == f"{claim['n_better']}, {claim['n_than']}"
    heads = [line[0] for line in page.tables["Claims and verdicts"] if len(line) == 1]
    assert heads[0] == "consistency regularisation helps GRAND better than without CR"


def test_pairwise_comparisons_are_all_there(page: Page, results: dict[str, Any]) -> None:
    for name in ("cora", "citeseer", "pubmed"):
        told = page.tables[f"Pairwise comparisons on {name}"][1:]
        pairs = [pair for pair in results["comparisons"] if pair["dataset"] == name]
        assert len(told) == len(pairs) == 8
        for line, pair in zip(told, pairs, strict=True):
            if pair["low"] is None:
                assert set(line[2:8]) == {"–"}
                continue
            assert number(line[2]) == pytest.approx(pair["difference"], abs=0.005)
            low, high = line[3].split(" to ")
            assert (number(low), number(high)) == pytest.approx(
                (pair["low"], pair["high"]), abs=0.0051
            )
            chances = ("p", "p_holm", "wilcoxon_p", "wilcoxon_holm")
            for text, key in zip(line[4:8], chances, strict=True):
                if pair[key] is None:
                    assert text == "–"
                else:
                    assert number(text) == pytest.approx(pair[key], rel=0.05, abs=5e-4)


@pytest.mark.parametrize(
    ("splits", "told"),
    [
        ((None, None), "Welch's test of all trials, and of Wilcoxon's signed-rank test over the s"),
        ((5, 5), "a t-test of the differences between the means of each split, and of Wilcoxon"),
        (
            (5, None),
            "Welch's test of all trials or, where methods share several splits, a t-test of the "
            "differences between the means of each split, and of Wilcoxon's signed-rank test over "
            "the splits",
        ),
    ],
)
def test_the_tests_of_all_pairs_are_named(
    tmp_path: Path, splits: tuple[int | None, int | None], told: str
) -> None:
    """One pair may share several splits where the next does not, for instance after Ctrl-C."""
    results = small(tmp_path, bare=SMALL)
    pair = results.comparisons[0]
    pairs = [replace(pair, test=replace(pair.test, splits=number)) for number in splits]
    write_results_json(tmp_path, replace(results, comparisons=tuple(pairs)))
    assert f"Two-sided p-values of {told}" in Page(write_report(tmp_path)).text


def number(text: str) -> float:
    """Read a number as the page writes it."""
    digits = str.maketrans("−⁻⁰¹²³⁴⁵⁶⁷⁸⁹", "--0123456789")
    return float(text.replace(" × 10", "e").translate(digits))


def test_data_and_machine_are_named(page: Page, results: dict[str, Any]) -> None:
    assert page.tables["Datasets"][1][:9] == (
        ["cora", "2,708", "5,278", "1,433", "7", "public", "140", "500", "1,000"]
    )
    for dataset in results["datasets"]:
        assert dataset["sha256"] in page.text
    for version in results["environment"]["versions"].values():
        assert version in page.text
    assert results["command"] in page.text
    assert "2026-11-16 02:10 UTC" in page.text


def test_sizes_before_a_transform_say_so(tmp_path: Path) -> None:
    results = small(tmp_path)
    (cora,) = results.datasets
    attacked = replace(cora, name="cora@random-edges:rate=0.1", sizes_of="cora")
    write_results_json(tmp_path, replace(results, datasets=(cora, attacked)))
    write_report(tmp_path)
    first, second = Page(tmp_path / "report.html").tables["Datasets"][1:]
    assert first[0] == "cora"
    assert second[0].startswith("cora@random-edges:rate=0.1")
    assert "sizes and sha256 of cora, before its edges or labels were changed" in second[0]


def test_the_confusion_matrix_is_that_of_the_stored_trials(
    folder: Path, page: Page, results: dict[str, Any]
) -> None:
    row = next(row for row in results["rows"] if row["dataset"] == "citeseer")
    with Store(folder) as store:
        records = [store.get(identifier) for identifier in row["trials"]]
    total = np.zeros((6, 6))
    for record in records:
        assert record is not None
        total += record.metrics["confusion"]
    share = 100 * np.diag(total) / total.sum(axis=1)
    told = page.figure("Confusion matrix of GRAND on citeseer")
    assert told is not None
    for name, value in zip(CLASSES["citeseer"], share, strict=True):
        assert f"{name} {value:.1f} %" in told


def test_the_calibration_error_is_that_of_the_stored_bins(
    folder: Path, page: Page, results: dict[str, Any]
) -> None:
    row = next(row for row in results["rows"] if row["dataset"] == "pubmed")
    errors = []
    with Store(folder) as store:
        for identifier in row["trials"]:
            record = store.get(identifier)
            assert record is not None
            bins = record.metrics["reliability"]
            error, nodes = 0.0, sum(bins["count"])
            names = ("count", "confidence", "correct")
            for count, sure, right in zip(*(bins[name] for name in names), strict=True):
                if count:
                    error += count / nodes * abs(right / count - sure / count)
            errors.append(100 * error)
    expected = f"{np.mean(errors):.2f} ± {np.std(errors, ddof=1):.2f} %"
    told = page.figure("Reliability diagram of GRAND on pubmed")
    assert told is not None
    assert told.endswith(f"Expected calibration error {expected}.")
    assert f"Expected calibration error (ECE): {expected}" in page.text


def test_trials_without_a_history_are_named(page: Page, results: dict[str, Any]) -> None:
    row = next(row for row in results["rows"] if (row["method"], row["dataset"]) == BARE)
    assert (
        "No training curve of GRAND with dropout: its trials were stored without it." in page.text
    )
    for seed, identifier in enumerate(row["trials"]):
        assert f"seed {seed} ({identifier})" in page.text
    curves = page.figure("Validation loss and accuracy against epochs on cora")
    assert curves is not None
    assert "GRAND with dropout" not in curves
    assert "GRAND with DropEdge" in curves


def test_figures_without_data_are_left_out_with_a_sentence(tmp_path: Path) -> None:
    small(tmp_path, bare=[("grand", "cora")], absent=[("grand-no-cr", "cora")])
    page = Page(write_report(tmp_path))
    for sentence in (
        "No confusion matrix of GRAND: its trials were stored without it.",
        "No reliability diagram of GRAND: its trials were stored without it.",
        "No training curve of GRAND: its trials were stored without it.",
        "No training curve of without CR: no trial is done.",
    ):
        assert sentence in page.text
    assert [path.name for path in sorted((tmp_path / "figures").iterdir())] == [
        "cora-seeds.png",
        "cora-seeds.svg",
    ]


def test_an_experiment_of_which_nothing_is_done_has_a_page(tmp_path: Path) -> None:
    small(tmp_path, absent=SMALL)
    page = Page(write_report(tmp_path))
    assert "2 of 2 results are incomplete" in page.text
    assert "No box plot: no trial has a test accuracy." in page.text
    assert not page.all("svg")


def test_a_search_shows_what_each_stage_chose(tmp_path: Path) -> None:
    results = write_search(tmp_path)
    page = Page(write_report(tmp_path))
    for stage in results.stages:
        told = page.tables[f"Settings tried on citeseer, stage {stage.stage}"][1:]
        assert len(told) == len(stage.rows)
        for line, row in zip(told, stage.rows, strict=True):
            setting = ", ".join(f"{key} = {value}" for key, value in row.changes.items())
            assert line[0] == setting + " ✓ chosen" * row.chosen
            assert line[1] == f"{row.val_mean:.2f} ± {row.val_std:.2f}"
            assert line[2] == f"{row.test_mean:.2f} ± {row.test_std:.2f}"
    # The last stage varies two keys at once, which one axis cannot show.
    assert len(page.all("svg")) == 2
    assert page.figure("Validation and test accuracy on citeseer against order. Chosen: order")
    assert "results" not in {found.get("id") for _, found in page.elements}


def test_names_from_outside_stay_text(tmp_path: Path) -> None:
    spec = part_of_table(datasets=["cora"], methods=["grand", "grand-no-cr"], seeds=3)
    first, second = spec.rows
    cursed = ["$x^{$", CURSED, '"><b onload="x">', "]]>&amp;", "--><script>", "\\frac", "Theory"]
    write_folder(
        tmp_path,
        spec=replace(
            spec,
            title=f"Title {CURSED}",
            description=f"About {CURSED}",
            rows=(replace(first, label=f"GRAND {CURSED}"), second),
        ),
        data=data_of(["cora"], {"cora": cursed}),
    )
    path = write_report(tmp_path)
    page = Page(path)
    assert "<script" not in path.read_text()
    assert not page.all("script")
    assert not page.all("b")
    assert f"About {CURSED}" in page.text
    told = page.figure("Confusion matrix")
    assert told is not None
    for name in cursed:
        assert name in told
    for file in (tmp_path / "figures").glob("*.svg"):
        assert not [one for one in ElementTree.parse(file).iter() if one.tag.endswith("script")]


def test_the_page_needs_nothing_but_itself(folder: Path, page: Page) -> None:
    text = (folder / "report.html").read_text()
    for tag, found in page.elements:
        for name in ("src", "href", "srcset", "data", "action"):
            assert found.get(name, "#").startswith("#"), (tag, found)
        assert not [name for name in found if name.startswith("on")], (tag, found)
        assert all(target.startswith("#") for target in re.findall(r"url\((.)", str(found)))
    assert not {tag for tag, _ in page.elements} & {"script", "link", "img", "iframe", "object"}
    (style,) = re.findall(r"<style>(.*?)</style>", text, re.DOTALL)
    assert "@import" not in style
    assert "url(" not in style


def test_identifiers_are_unique_and_references_lead_somewhere(folder: Path, page: Page) -> None:
    names = [found["id"] for _, found in page.elements if "id" in found]
    assert len(page.all("svg")) == 12
    assert len(names) == len(set(names))
    references = [found["href"][1:] for _, found in page.elements if "href" in found]
    references += [
        found["aria-labelledby"] for _, found in page.elements if "aria-labelledby" in found
    ]
    references += re.findall(r"url\(#([^)]*)\)", (folder / "report.html").read_text())
    assert len(references) > 100
    assert set(references) <= set(names)


def test_the_page_is_of_modest_size(folder: Path) -> None:
    assert (folder / "report.html").stat().st_size < 1_000_000


def test_figures_are_files_too(folder: Path, page: Page) -> None:
    names = {path.stem for path in (folder / "figures").iterdir()}
    kinds = ("seeds", "confusion", "reliability", "curves")
    assert names == {f"{one}-{kind}" for one in ("cora", "citeseer", "pubmed") for kind in kinds}
    for name in names:
        picture = imread(folder / "figures" / f"{name}.png")
        assert picture.shape[1] == 1000
        assert (picture[0, 0, :3] == 1).all(), "the corner is not white"
        assert 0.01 < (picture[:, :, :3].min(axis=2) < 0.5).mean() < 0.5
        root = ElementTree.parse(folder / "figures" / f"{name}.svg").getroot()
        title = root.find("{http://www.w3.org/2000/svg}title")
        assert title is not None
        assert title.text in {found["aria-label"] for found in page.all("svg")}


def test_the_same_folder_gives_the_same_bytes(tmp_path: Path) -> None:
    small(tmp_path)

    def contents() -> dict[Path, bytes]:
        paths = [tmp_path / "report.html", *(tmp_path / "figures").iterdir()]
        return {path: path.read_bytes() for path in paths}

    write_report(tmp_path)
    first = contents()
    assert len(first) == 9
    # Another process orders its sets another way.
    program = f"""
from pathlib import Path
from dropnode.experiments.report import write_report
write_report(Path({str(tmp_path)!r}))
"""
    environment = os.environ | {"PYTHONHASHSEED": "3"}
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120, env=environment)
    assert contents() == first


def test_without_results_one_is_told_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=rf"dropnode reproduce EXPERIMENT --out {tmp_path}"):
        write_report(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("best", [1, 3, 402, 650])
def test_a_curve_goes_on_from_phase_to_phase_and_through_the_kept_epoch(best: int) -> None:
    """GMNN's history counts epochs anew in each of its phases; its kept epoch counts them all."""
    epochs = np.concatenate([np.arange(1, 401), np.arange(1, 251)]).astype(float)
    losses = np.linspace(1.0, 0.0, len(epochs))
    history = {"epoch": epochs, "val_loss": losses, "val_accuracy": 1.0 - losses}
    curve = curve_of(history, best)
    assert curve is not None
    assert (np.diff(curve.epoch) > 0).all()
    assert curve.epoch[[0, -1]].tolist() == [1, 650]
    assert curve.loss[curve.epoch == best].tolist() == [losses[best - 1]]
    assert len(curve.epoch) <= POINTS + 1


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two methods with a number, a fraction, a matrix, counts of confidence and a curve."""
    invented = {
        "gap": Measure("loss gap", "number", lambda training: None),
        "coverage": Measure("coverage", "fraction", lambda training: None),
        "before": Measure("confusion before training", "matrix", lambda training: None),
        "scaled": Measure("reliability after scaling", "reliability", lambda training: None),
        "depth": Measure("similarity", "curves", lambda training: None, x="depth"),
    }
    monkeypatch.setattr(measures, "MEASURES", {**measures.MEASURES, **invented})

    def further(trial: Trial) -> dict[str, Any]:
        bins = {"count": [0, 10], "confidence": [0.0, 8.0], "correct": [0, 8 - trial.seed]}
        values = {"gap": 0.01 * (trial.seed + 1), "coverage": 0.9, "scaled": bins}
        matrix = np.diag([9] * 7) + 1
        depth = {"depth": [1.0, 2.0, 3.0], "cosine": [0.5, 0.25 * (trial.seed + 1), 0.125]}
        # One trial is without a curve, and one has a shorter one.
        shorter = {name: values[: 3 - trial.seed] for name, values in depth.items()}
        curve = {"depth": shorter} if trial.seed < 2 else {}
        return {**values, "before": matrix.tolist(), **curve}

    spec = part_of_table(datasets=["cora"], methods=["grand", "grand-no-cr"], seeds=3)
    asked = ("gap", "coverage", "before", "scaled", "depth")
    write_folder(tmp_path, spec=replace(spec, measures=asked), further=further)
    return write_report(tmp_path)


def test_numbers_that_a_spec_asks_for_are_columns(measured: Path) -> None:
    heads, first, second = Page(measured).tables["Results on cora"]
    assert heads[7:] == ["loss gap", "coverage (%)", "seconds"]
    assert first[7:9] == second[7:9] == ["0.0200 ± 0.0100", "90.00 ± 0.00"]


SERIES = """
title: Steps
datasets: [cora]
seeds: 2
measures: [madgap_by_hops, loss_gap]
rows:
  - {name: second, method: grand, label: GRAND, vary: {order: [2, 4]}}
  - {name: level, method: gcn, label: GCN}
  - {name: first, method: grand-no-cr, label: without CR, vary: {order: [2, 4]}}
claims:
  - {claim: deeper, better: second order=4, than: second order=2, measure: loss_gap}
plots:
  - {title: Both, x: steps, measures: [madgap_by_hops, test_accuracy]}
  - {title: None, x: steps, measures: [madgap_by_hops]}
"""


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two series and a horizontal line, of which one measure has no value anywhere."""
    folder = tmp_path_factory.mktemp("series")
    spec = parse_spec("series", SERIES)
    write_folder(
        folder,
        spec=spec,
        further=lambda trial: {
            # The horizontal line alone has one.
            "madgap_by_hops": 0.3 if trial.method == "gcn" else None,
            "loss_gap": -0.5 - 0.1 * trial.seed - 0.2 * trial.config.get("order", 0),
        },
    )
    return write_report(folder)


def test_measures_without_a_value_have_no_panel(series: Path) -> None:
    page = Page(series)
    assert page.figure("test accuracy (%) against steps on cora") is not None
    assert page.text.count("No values of MADGap by hops against steps.") == 2
    assert page.figure("MADGap by hops against") is None
    names = {path.name for path in (series.parent / "figures").iterdir()}
    assert "cora-both.svg" in names
    assert "cora-none.svg" not in names


def test_a_legend_has_the_order_of_the_rows(series: Path) -> None:
    results = Results.from_json(json.loads((series.parent / "results.json").read_text()))
    plot, _, lines = plots_of(results)[0]
    figure = draw_plot(plot, lines)
    assert len(figure.axes) == 1
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()] == ["GRAND", "GCN", "without CR"]


def test_measured_places_are_named_below_a_plot_where_their_names_fit(series: Path) -> None:
    results = Results.from_json(json.loads((series.parent / "results.json").read_text()))
    plot, _, (line, *_) = plots_of(results)[0]

    def names(places: Sequence[float]) -> list[str]:
        moved = Line(line.label, dict.fromkeys(places, line.points[2.0]))
        (axes,) = draw_plot(plot, [moved]).axes
        return [label.get_text() for label in axes.get_xticklabels()]

    assert names([0.001, 0.003, 0.005]) == ["0.001", "0.003", "0.005"]
    close = [0.0, 0.01, 1.0]
    assert names(close) != ["0", "0.01", "1"]
    assert names([7.0])


def test_a_page_without_a_papers_figures_has_no_column_for_them(series: Path) -> None:
    page = Page(series)
    assert all("paper" not in row for row in page.tables["Results on cora"])
    assert "paper" not in page.tables["Claims and verdicts"][0]
    widths = {len(row) for row in page.tables["Claims and verdicts"] if len(row) > 1}
    assert widths == {7}
    assert "paper’s" not in page.text


def test_a_page_has_one_minus_sign(series: Path) -> None:
    page = Page(series)
    numbers = [cell for row in page.tables["Claims and verdicts"][2:] for cell in row[2:]]
    numbers += [cell for row in page.tables["Results on cora"][1:] for cell in row[1:]]
    assert any(cell.startswith("−") for cell in numbers)
    assert not any("-" in cell for cell in numbers)


def test_intervals_of_accuracies_end_at_100(tmp_path: Path) -> None:
    results = small(tmp_path)
    first, second = results.rows
    high = replace(first.accuracy, mean=99.0, ci95=1.5)
    low = replace(second.accuracy, mean=0.5, ci95=1.0)
    rows = (replace(first, accuracy=high), replace(second, accuracy=low))
    write_results_json(tmp_path, replace(results, rows=rows))
    _, *lines = Page(write_report(tmp_path)).tables["Results on cora"]
    assert [line[2] for line in lines] == ["97.50 to 100.00", "0.00 to 1.50"]


def test_what_validation_chose_is_told_beside_the_result(tmp_path: Path) -> None:
    results = small(tmp_path)
    first, second = results.rows
    rows = (replace(first, chosen={"order": 8, "temperature": 0.5}), second)
    write_results_json(tmp_path, replace(results, rows=rows))
    page = Page(write_report(tmp_path))
    heads, chose, fixed = page.tables["Results on cora"]
    assert heads[:3] == ["method", "chosen by validation", "ours"]
    assert (chose[1], fixed[1]) == ("order = 8, temperature = 0.5", "–")
    _, chose, fixed = page.tables["Results of all methods on all datasets"]
    assert chose[1].endswith("chosen order = 8, temperature = 0.5")
    assert "chosen" not in fixed[1]


def test_without_such_settings_the_page_does_not_mention_them(page: Page) -> None:
    assert "chosen" not in page.text


def test_arrays_that_a_spec_asks_for_are_figures(measured: Path) -> None:
    page = Page(measured)
    matrix = page.figure("Confusion before training of GRAND on cora.")
    assert matrix is not None
    assert f"{CLASSES['cora'][0]} 62.5 %" in matrix
    # Errors of 0, 10 and 20 %: 8, 7 and 6 of 10 nodes are right where 8 are expected.
    scaled = (
        "Reliability after scaling of GRAND on cora. Expected calibration error 10.00 ± 10.00 %."
    )
    assert page.figure(scaled) is not None
    assert page.figure("Similarity against depth on cora, for GRAND, without CR.") is not None
    assert "Similarity against depth: mean ± standard deviation over seeds." in page.text
    assert "GRAND: 1 seed without a similarity." in page.text
    names = {path.stem for path in (measured.parent / "figures").glob("*.svg")}
    assert {"cora-before", "cora-scaled", "cora-depth", "cora-confusion"} <= names


def test_the_matrix_is_that_of_the_reference(tmp_path: Path) -> None:
    """In a table of baselines the method of interest may come last."""
    spec = part_of_table(datasets=["cora"], methods=["grand", "grand-no-cr"], seeds=3)
    first, second = spec.rows
    write_folder(tmp_path, spec=replace(spec, rows=(second, first)))
    page = Page(write_report(tmp_path))
    assert page.figure("Confusion matrix of GRAND on cora") is not None
    assert page.figure("Confusion matrix of without CR") is None


def test_the_classes_of_a_matrix_have_the_names_that_a_transform_gives(tmp_path: Path) -> None:
    """With two classes before and two after, names of before would be the wrong way round."""
    name = "pubmed@one-class:code=0"
    data = data_of(["pubmed"], {"pubmed": ["alpha", "beta"]})
    data.graphs[name], data.splits[name, 0] = data.graphs["pubmed"], data.splits["pubmed", 0]
    text = f'title: t\ndatasets: ["{name}"]\nseeds: 2\nrows: [{{method: grand}}]\n'
    write_folder(tmp_path, spec=parse_spec("mine", text), data=data)
    drawn = Page(write_report(tmp_path)).figure(f"Confusion matrix of grand on {name}")
    assert re.search(r"Correct per class: others [\d.]+ %; alpha ", str(drawn))


def test_standard_errors_of_trials_are_told_from_deviations_over_seeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    curves = {"size": [1.0, 2.0], "error": [0.1, 0.2], "error ±": [0.01, 0.02]}
    measure = Measure("relative error", "curves", lambda training: None, x="size")
    monkeypatch.setattr(measures, "MEASURES", {**measures.MEASURES, "theory": measure})
    spec = part_of_table(datasets=["cora"], methods=["grand", "grand-no-cr"], seeds=2)
    spec = replace(spec, measures=("theory",))
    write_folder(tmp_path, spec=spec, further=lambda trial: {"theory": curves})
    text = Page(write_report(tmp_path)).text
    assert (
        "Relative error against size: mean over seeds, with bars for the standard errors within"
        in text
    )


def points_of(path: str) -> list[tuple[float, float]]:
    """Return the absolute end points of a path, whose letters may be capital or small."""
    points, here, start = [], (0.0, 0.0), (0.0, 0.0)
    size = {"M": 2, "L": 2, "Q": 4, "C": 6}
    for letter, rest in re.findall(r"([a-zA-Z])([^a-zA-Z]*)", path):
        numbers = [float(one) for one in re.findall(r"-?\d*\.?\d+", rest)]
        if letter.upper() == "Z":
            here = start
            continue
        count = size[letter.upper()]
        for k in range(0, len(numbers), count):
            x, y = numbers[k + count - 2 : k + count]
            here = (here[0] + x, here[1] + y) if letter.islower() else (x, y)
            points.append(here)
        if letter.upper() == "M":
            start = here
    return points


coordinates = st.floats(-500, 500, allow_nan=False)


@given(
    st.lists(
        st.tuples(st.sampled_from("MLLLQCz"), st.lists(coordinates, min_size=6, max_size=6)),
        max_size=30,
    ),
    st.sampled_from([1, 2]),
)
def test_a_relative_path_stays_within_rounding(
    segments: list[tuple[str, list[float]]], decimals: int
) -> None:
    """Errors do not add up along a path, whatever it consists of."""
    sizes = {"M": 2, "L": 2, "Q": 4, "C": 6, "z": 0}
    path = "M 1.25 -2.5 " + " ".join(
        f"{letter} {' '.join(f'{one:.6f}' for one in numbers[: sizes[letter]])}"
        for letter, numbers in segments
    )
    short = relative_path(path, decimals)
    assert np.allclose(points_of(short), points_of(path), rtol=0, atol=0.5001 * 10**-decimals)
    assert len(short) <= len(path)
