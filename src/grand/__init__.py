"""Few-label node classification with graph random neural networks."""

__version__ = "0.1.0.dev0"
