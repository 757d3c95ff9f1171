"""Old and new: two models judged on the same labels, each without the label that it judges."""

from __future__ import annotations

from typing import Any

import numpy as np

from dropnode.assessment import share_interval
from dropnode.graph.labels import UNKNOWN
from dropnode.serve.served import Served

LISTED = 100
"""The most nodes that are listed whose prediction differs."""


def compare(old: Served, new: Served) -> dict[str, Any]:
    """Compare a model with a candidate that was trained on more labels.

    A label that both models have was judged by their held-out models. A label that is new was never
    seen by the old model, whose prediction judges it. So both are judged on the same nodes, and
    neither by a label that it was trained on.

    Returns
    -------
    dict
        ``old`` and ``new``, the accuracy of each with its 95 % interval; ``only_old`` and
        ``only_new``, the labels that one of them alone predicts; and nodes whose predicted class
        differs.
    """
    before = np.where(old.labels == UNKNOWN, old.predicted, old.judged)
    judged = np.flatnonzero((new.judged != UNKNOWN) & (before != UNKNOWN))
    labels = new.labels[judged]
    hits = [before[judged] == labels, new.judged[judged] == labels]
    changed = np.flatnonzero(old.predicted != new.predicted)
    # Those first that the candidate is surest about.
    changed = changed[np.argsort(-new.confidence[changed], kind="stable")]
    return {
        "labels_before": int((old.labels != UNKNOWN).sum()),
        "labels_now": int((new.labels != UNKNOWN).sum()),
        "judged": len(judged),
        "old": _accuracy(hits[0]),
        "new": _accuracy(hits[1]),
        "only_old": int((hits[0] & ~hits[1]).sum()),
        "only_new": int((hits[1] & ~hits[0]).sum()),
        "mean_confidence": {
            "old": round(float(old.confidence.mean()), 4),
            "new": round(float(new.confidence.mean()), 4),
        },
        "changed": len(changed),
        "nodes": [
            {
                "id": new.ids[at],
                "old": old.classes[old.predicted[at]],
                "new": new.classes[new.predicted[at]],
                "old_confidence": round(float(old.confidence[at]), 4),
                "new_confidence": round(float(new.confidence[at]), 4),
            }
            for at in changed[:LISTED].tolist()
        ],
    }


def _accuracy(hits: np.ndarray) -> dict[str, float] | None:
    if not len(hits):
        return None
    low, high = share_interval(int(hits.sum()), len(hits))
    return {"accuracy": float(hits.mean()), "low": low, "high": high}
