"""A figure of one training run: losses and accuracies against epochs."""

from __future__ import annotations

from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dropnode.files import atomic_write
from dropnode.training import Outcome

# Colours that remain distinct for colour-blind readers and in grey print.
_COLOURS = {
    "supervised": "#0072B2",
    "consistency": "#E69F00",
    "train_loss": "#56B4E9",
    "val_loss": "#D55E00",
    "train_accuracy": "#56B4E9",
    "val_accuracy": "#D55E00",
}
_NAMES = {
    "supervised": "supervised (training, perturbed)",
    "consistency": "consistency (all nodes)",
    "train_loss": "training nodes, unperturbed",
    "val_loss": "validation nodes",
    "train_accuracy": "training nodes",
    "val_accuracy": "validation nodes",
}


def save_curves(path: Path, outcome: Outcome, title: str) -> None:
    """Draw the history of a run as a PNG file."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    losses, accuracies = figure.subplots(1, 2)
    figure.suptitle(title)
    _draw(losses, outcome, ("supervised", "consistency", "train_loss", "val_loss"), 1.0)
    losses.set_ylabel("loss")
    losses.set_ylim(bottom=0)
    _draw(accuracies, outcome, ("train_accuracy", "val_accuracy"), 100.0)
    accuracies.set_ylabel("accuracy (%)")
    with atomic_write(path) as file:
        figure.savefig(file, format="png", dpi=130)


def _draw(axes: Axes, outcome: Outcome, names: tuple[str, ...], factor: float) -> None:
    epochs = range(1, outcome.epochs + 1)
    for name in names:
        values = [factor * line.get(name, float("nan")) for line in outcome.history]
        if any(value == value for value in values):
            axes.plot(epochs, values, color=_COLOURS[name], label=_NAMES[name], linewidth=1.3)
    axes.axvline(
        outcome.best_epoch,
        color="0.35",
        linestyle="--",
        linewidth=1,
        label=f"weights kept (epoch {outcome.best_epoch:,})",
    )
    axes.set_xlabel("epoch")
    axes.grid(alpha=0.25)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8)
