"""Experiments: many runs that belong together, on all cores."""
