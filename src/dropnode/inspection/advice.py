"""Plain advice from what a graph has and from how methods compare on its labels."""

from __future__ import annotations

from dropnode.inspection.comparison import Comparison
from dropnode.inspection.structure import Structure

UNBALANCED = 5
"""The largest class has so many times the labels of the smallest: weights are worth a try."""

MANY = 0.2
"""The share of nodes from which on a lack of edges is mentioned."""

TO_VALIDATE = 5
"""The fewest labels of a class of which one can be held out without much loss."""


def advice(structure: Structure, comparison: Comparison | None) -> list[str]:
    """Return sentences, the most important first; none if there is nothing to say."""
    return [*_about_methods(comparison), *_about_labels(structure), *_about_edges(structure)]


def _about_methods(comparison: Comparison | None) -> list[str]:
    if comparison is None:
        return ["methods cannot be compared: fewer than two classes have two labels; label more"]
    shares = {name: f"{100 * comparison.accuracy(name):.0f} %" for name in comparison.held}
    best = max(("grand", "grand-no-cr"), key=comparison.accuracy)
    found = []
    if comparison.better("logistic", best):
        found.append(
            f"features alone predict {shares['logistic']} of held-out labels, with edges "
            f"{shares[best]}: neighbours mislead here; use --method mlp, or --method logistic "
            "--set order=0"
        )
    if comparison.better("label-propagation", best):
        found.append(
            f"edges alone predict {shares['label-propagation']} of held-out labels, with features "
            f"{shares[best]}: the features mislead here; use --method label-propagation, or drop "
            "columns"
        )
    if comparison.better("grand-no-cr", "grand"):
        found.append(
            f"without agreement of views, {shares['grand-no-cr']} of held-out labels instead of "
            f"{shares['grand']}: set consistency_weight=0"
        )
    return found


def _about_labels(structure: Structure) -> list[str]:
    counts = structure.label_counts
    if not counts:
        return []
    rarest, most = min(counts, key=lambda name: counts[name]), max(counts.values())
    fewest = counts[rarest]
    found = []
    if fewest < 2:
        found.append(
            f"class {rarest!r} has {_labels(fewest)}, so nothing can be held out to validate: "
            "label at least two nodes of every class"
        )
    elif fewest < TO_VALIDATE:
        found.append(
            f"class {rarest!r} has {fewest} labels: too few to validate well, so that held-out "
            "accuracies are rough"
        )
    if fewest and most > UNBALANCED * fewest:
        found.append(
            f"classes have {fewest:,} to {most:,} labels: give classes weights "
            "(class_weight='balanced') if the rare ones matter, and look at macro F1"
        )
    return found


def _about_edges(structure: Structure) -> list[str]:
    found = []
    if structure.isolated > MANY * structure.nodes:
        found.append(
            f"{structure.isolated:,} of {structure.nodes:,} nodes have no edge: for them, only "
            "features count"
        )
    elif structure.unreached > MANY * structure.nodes:
        found.append(
            f"{structure.unreached:,} of {structure.nodes:,} nodes have no path to a labelled one: "
            "label a node in each large component"
        )
    return found


def _labels(count: int) -> str:
    return f"{count} label" if count == 1 else f"{count} labels"
