"""Graphs: the one type that every part of the package takes, and the checks behind it."""

from dropnode.graph.graph import Graph
from dropnode.graph.split import Split

__all__ = ["Graph", "Split"]
