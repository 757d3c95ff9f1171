"""The picture of an explanation shows its numbers, names and places."""

from __future__ import annotations

import io

import numpy as np
import pytest
import scipy.sparse as sp
from matplotlib.figure import Figure

from dropnode.analysis.explain import Explanation
from dropnode.analysis.picture import AGAINST, FOR, draw_explanation
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split

NAMES = ["$5", "a_b", "x" * 40]


def case(amounts: np.ndarray) -> tuple[Explanation, Graph]:
    """A path of five nodes whose middle is explained, and a sixth node alone."""
    graph = Graph.from_edges(
        [("a", "b"), ("b", "$c$"), ("$c$", "d"), ("d", "e")],
        features=np.ones((6, 3)),
        labels=["tea", "mate", None, "tea", "mate", None],
        ids=["a", "b", "$c$", "d", "e", "f"],
        split=Split([0, 3], [1], []),
    )
    nodes = np.flatnonzero(amounts.any(axis=1))
    score = float(amounts.sum() + 0.5)
    logits = np.array([0.0, score])
    why = Explanation(2, 1, None, score, 0.5, logits, nodes, sp.csr_array(amounts[nodes]))
    return why, graph


@pytest.fixture
def amounts() -> np.ndarray:
    amounts = np.zeros((6, 3))
    amounts[:5, 0] = [1.0, 0.02, 0.5, -2.0, 0.3]
    amounts[2, 1:] = [0.25, -0.75]
    return amounts


def texts(figure: Figure, panel: int) -> list[str]:
    return [text.get_text() for text in figure.axes[panel].texts]


def test_the_bars_sum_to_the_score(amounts: np.ndarray) -> None:
    why, graph = case(amounts)
    for most in (1, 2, 10):
        figure = draw_explanation(why, graph, columns=most)
        bars = [patch.get_width() for patch in figure.axes[1].patches]  # type: ignore[attr-defined]
        assert sum(bars) == pytest.approx(why.score)
        assert len(bars) == min(most, 3) + 1 + (most < 3)


def test_names_amounts_and_classes_are_shown(amounts: np.ndarray) -> None:
    why, graph = case(amounts)
    figure = draw_explanation(why, graph, names=NAMES)
    shown = texts(figure, 0)
    # Nodes a and d trained the model, so their classes are known.
    assert {"a (tea)\n+1.00", "$c$\n+0.00", "d (tea)\n−2.00", "e\n+0.30", "b\n+0.02"} <= set(shown)
    assert {"1 hop", "2 hops"} <= set(shown)
    assert {"$5", "a_b", "x" * 23 + "…", "bias", "+0.50"} <= set(texts(figure, 1))
    assert figure.get_suptitle() == "Node $c$: tea, logit −0.18"


def test_nodes_are_on_the_ring_of_their_hops(amounts: np.ndarray) -> None:
    """Of two nodes on each side, the nearer ones are not drawn, so dashed lines lead over them."""
    amounts[1], amounts[3] = 0.01, -0.01
    why, graph = case(amounts)
    figure = draw_explanation(why, graph, nodes=2)
    axes = figure.axes[0]
    places = np.concatenate([dots.get_offsets() for dots in axes.collections])  # type: ignore[misc]
    # One ring is left, that of two hops.
    np.testing.assert_allclose(np.hypot(*places.T), [0.0, 1.0, 1.0], atol=1e-12)
    assert "1 hop" not in texts(figure, 0)
    lines = [line for line in axes.lines if line.get_linestyle() == "--"]
    assert len(lines) == 2
    assert "2 further nodes +0.00" in axes.get_title(loc="left")


def test_blue_adds_and_orange_subtracts(amounts: np.ndarray) -> None:
    why, graph = case(amounts)
    figure = draw_explanation(why, graph)
    from matplotlib.colors import to_hex

    colours = [to_hex(dots.get_facecolor()[0]) for dots in figure.axes[0].collections]  # type: ignore[index]
    assert colours.count(AGAINST.lower()) == 1
    assert colours.count(FOR.lower()) == 4


def test_a_node_that_nothing_reaches_and_pictures_that_repeat(amounts: np.ndarray) -> None:
    why, graph = case(amounts)
    alone = Explanation(5, 0, 1, 0.5, 0.5, why.logits, np.array([5]), sp.csr_array((1, 3)))
    figure = draw_explanation(alone, graph)
    assert figure.get_suptitle() == "Node f: mate rather than tea, difference of logits +0.50"
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        draw_explanation(why, graph).savefig(file, format="png")
    assert files[0].getvalue() == files[1].getvalue()


def test_the_most_is_checked(amounts: np.ndarray) -> None:
    with pytest.raises(ConfigError, match="nodes = 0; expected a whole number of at least 1"):
        draw_explanation(*case(amounts), nodes=0)
