"""Saved models: a folder of plain tensors, and one JSON file with the hashes of all three files.

A prediction for a node needs its graph, so the training graph is part of a model. Nothing is
pickled: loading a model reads numbers and text, and never executes anything in the folder.

A model in the folder is replaced in one step, and other files there are left alone. First the new
tensors are written beside the old ones, under names with their hash. Then ``model.json`` is
replaced, and from then on the folder is the new model: loading finds tensors under either name.
Last, they take the place of the old ones.
"""

from dropnode.saving.document import MODEL
from dropnode.saving.model import (
    SavedModel,
    feature_names,
    load_encoders,
    load_model,
    load_trust,
    save_model,
    saved_versions,
)

__all__ = [
    "MODEL",
    "SavedModel",
    "feature_names",
    "load_encoders",
    "load_model",
    "load_trust",
    "save_model",
    "saved_versions",
]
