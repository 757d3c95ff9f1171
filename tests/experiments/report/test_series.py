"""Which line of a plot a row belongs to, at which place, and under which name."""

from __future__ import annotations

from typing import Any, cast

from dropnode.experiments.report.series import plots_of
from dropnode.experiments.results import Results, RowResult
from dropnode.experiments.spec_file import parse_spec
from dropnode.experiments.statistics import Summary

HEAD = "title: t\nseeds: 2\n"
RATES = '[cora, "cora@random-edges:rate=0.1", "cora@random-edges:rate=0.2"]'


class Planned:
    """The results of a spec, of which nothing was run."""

    def __init__(self, text: str) -> None:
        spec = parse_spec("mine", HEAD + text)
        self.plots = spec.plots
        self.rows = [
            RowResult(
                dataset=dataset,
                method=row.name,
                label=row.label,
                preset="",
                config={},
                accuracy=Summary(80.0, 1.0, 1.0, 2),
                median=80.0,
                asked=2,
                failed=0,
                paper=None,
                paper_std=None,
                difference=None,
                seconds=1.0,
                trials=(),
                series=row.series,
                at=row.at,
            )
            for row in spec.rows
            for dataset in row.seeds
        ]


def lines(text: str) -> dict[str, dict[str, Any]]:
    """Return the lines of every plot: the row and dataset at each place, or of the whole line."""

    def told(row: RowResult) -> tuple[str, str]:
        return row.method, row.dataset

    return {
        dataset: {
            line.label: told(line.level)
            if line.level
            else {place: told(row) for place, row in line.points.items()}
            for line in lines
        }
        for _, dataset, lines in plots_of(cast(Results, Planned(text)))
    }


def test_over_an_option_every_row_of_a_series_is_a_line() -> None:
    text = (
        f"datasets: {RATES}\nrows:\n  - {{method: grand, label: GRAND, vary: {{order: [2, 4]}}}}\n"
        "plots: [{title: p, x: fake edges, over: random-edges.rate}]\n"
    )
    places = {0.0: "cora", 0.1: "cora@random-edges:rate=0.1", 0.2: "cora@random-edges:rate=0.2"}
    assert lines(text)["cora"] == {
        f"GRAND, order = {order}": {
            place: (f"grand order={order}", dataset) for place, dataset in places.items()
        }
        for order in (2, 4)
    }


def test_the_unchanged_graph_is_where_its_transforms_are_the_same() -> None:
    rate, equal = "cora@label-rate:rate=0.05", "cora@label-rate:rate=0.05,classes=equal"
    text = (
        f'datasets: ["{rate}", "{equal}", "{equal}@random-edges:rate=0.1"]\n'
        "rows: [{method: gcn, label: GCN}]\n"
        "plots: [{title: p, x: fake edges, over: random-edges.rate}]\n"
    )
    assert list(lines(text).values()) == [
        {"GCN": {0.0: ("gcn", equal), 0.1: ("gcn", f"{equal}@random-edges:rate=0.1")}}
    ]


def test_other_options_of_a_transform_have_the_unchanged_graph_too() -> None:
    cumulative = "cora@random-edges:rate=0.1,definition=cumulative"
    text = (
        f'datasets: [cora, "cora@random-edges:rate=0.1", "{cumulative}"]\n'
        "rows: [{method: gcn, label: GCN}]\n"
        "plots: [{title: p, x: fake edges, over: random-edges.rate}]\n"
    )
    drawn = lines(text)
    assert list(drawn) == ["cora", "cora, definition=cumulative"]
    assert [line["GCN"][0.0] for line in drawn.values()] == [("gcn", "cora")] * 2


def test_a_published_split_is_no_label_rate_of_zero() -> None:
    text = (
        'datasets: [cora, "cora@label-rate:rate=0.01", "cora@label-rate:rate=0.05"]\n'
        "rows: [{method: gcn, label: GCN}]\n"
        "plots: [{title: p, x: labels, over: label-rate.rate}]\n"
    )
    (drawn,) = lines(text).values()
    assert list(drawn["GCN"]) == [0.01, 0.05]


def test_a_label_with_commas_is_whole() -> None:
    text = (
        "datasets: [cora]\nrows:\n"
        '  - {method: grand, label: "GRAND, as released", vary: {drop_rate: [0.1, 0.5]}}\n'
        '  - {method: gcn, label: "GCN, two layers"}\n'
        "plots: [{title: p, x: drop rate}]\n"
    )
    assert lines(text)["cora"] == {
        "GRAND, as released": {
            0.1: ("grand drop_rate=0.1", "cora"),
            0.5: ("grand drop_rate=0.5", "cora"),
        },
        "GCN, two layers": ("gcn", "cora"),
    }
