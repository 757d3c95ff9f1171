"""The digits that come with scikit-learn, joined to their nearest neighbours."""

from __future__ import annotations

from dropnode.graph import Graph

NEIGHBOURS = 10


def make() -> Graph:
    """Return 1,797 images of 8×8 pixels, each joined to its ten nearest neighbours."""
    # scikit-learn takes a second to import, and only this dataset needs it.
    from sklearn.datasets import load_digits

    from dropnode.graph.neighbours import nearest_neighbour_graph

    images, labels = load_digits(return_X_y=True)
    adjacency = nearest_neighbour_graph(images, k=NEIGHBOURS)
    return Graph.from_scipy(adjacency, images, labels, name="digits")
