"""Analyses: pure functions on a graph, on arrays, or on a trained method."""
