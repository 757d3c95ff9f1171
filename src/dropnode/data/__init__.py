"""Datasets by name or by path: found, verified, read and split.

>>> from dropnode.data import load_dataset
>>> load_dataset("digits").split
Split('10+10 per class, seed 0', 100/100/1,597)
"""

from dropnode.data.datasets import dataset_names, describe, draw_split, fetch, load_dataset
from dropnode.data.graph_file import save_graph
from dropnode.data.splits import (
    label_rate_split,
    per_class_split,
    public_split,
    stratified_holdout,
)

__all__ = [
    "dataset_names",
    "describe",
    "draw_split",
    "fetch",
    "label_rate_split",
    "load_dataset",
    "per_class_split",
    "public_split",
    "save_graph",
    "stratified_holdout",
]
