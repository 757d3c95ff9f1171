"""What a rate means in the random attack."""

from __future__ import annotations

from typing import Any

import pytest
from small_graphs import small_graph

from dropnode.analysis.attacks.random_edges import add_random_edges, number_of_edges
from dropnode.data import load_dataset
from dropnode.errors import ConfigError


def test_the_first_published_script_added_55_per_cent_as_10() -> None:
    # The counts that a user of that script reported.
    assert 13264 + number_of_edges(13264, 0.10, "cumulative") == 20554
    assert number_of_edges(5278, 0.10, "cumulative") == 2898
    assert number_of_edges(5278, 0.01, "cumulative") == 52


@pytest.mark.parametrize(("definition", "added"), [("clean", 5), ("cumulative", 15)])
def test_both_definitions_add_what_they_say(definition: str, added: int) -> None:
    graph = small_graph(60, seed=2)
    wanted = number_of_edges(graph.num_edges, 0.05, definition)
    attacked = add_random_edges(graph, 0.05, definition=definition)
    assert attacked.num_edges == graph.num_edges + wanted
    assert wanted == pytest.approx(added * graph.num_edges / 100, abs=5)


def test_fake_edges_join_all_nodes_alike() -> None:
    """Of 6,000 ends, half are in either half of the nodes, up to five standard deviations."""
    graph = load_dataset("sbm", nodes=600, classes=3)
    fake = add_random_edges(graph, 1.0).adjacency - graph.adjacency
    ends = fake.sum(axis=1)
    assert ends.sum() == 6000
    assert abs(ends[:300].sum() / 6000 - 0.5) < 5 * 0.5 / 6000**0.5


@pytest.mark.parametrize("rate", [0.105, 0.001])
def test_the_cumulative_definition_knows_whole_per_cent_only(rate: float) -> None:
    with pytest.raises(ConfigError, match="whole per cent"):
        number_of_edges(1000, rate, "cumulative")


@pytest.mark.parametrize(("changes", "message"), [
    ({"definition": "cumulativ"}, "definition = .cumulativ.; expected"),
    ({"rate": -0.1}, "rate = -0.1; expected above 0"),
    ({"rate": float("nan")}, "rate = nan"),
    ({"rate": 1e9}, "expected at most 1,000"),
    ({"rate": 1e-5}, "a rate of 1e-05 of 1,500 edges is less than one; raise the rate"),
    ({"seed": 1.5}, "seed = 1.5"),
    ({"seed": -1}, "seed = -1"),
])  # fmt: skip
def test_what_cannot_be_added_is_refused(changes: dict[str, Any], message: str) -> None:
    graph = load_dataset("sbm", nodes=300, classes=3)
    with pytest.raises(ConfigError, match=message):
        add_random_edges(graph, **{"rate": 0.1, **changes})
