"""When training stops, and which epoch's weights are kept."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Stopping:
    """When to stop, and which epoch's weights to keep.

    Training stops after ``patience`` epochs without progress. ``rule`` defines progress:

    - ``"loss"``: a lower validation loss. The epoch of the lowest loss is kept.
    - ``"loss-or-accuracy"``, as in GRAND's released code: a validation loss no higher, or an
      accuracy no lower, than in any epoch before. The weights are kept by loss alone.
    - ``"accuracy"``: as before, but the latest epoch of the highest accuracy is kept.
    - ``"accuracy-and-loss"``, as in GRAND+'s released code: an accuracy no lower than in any epoch
      before. Such an epoch is kept if its loss is no higher than that of the epoch kept so far.
    - ``"never"``: all epochs are run, and the last one is kept.
    """

    rule: str
    patience: int = 0


@dataclass
class Progress:
    """The progress of a phase, measured by its stopping rule."""

    stopping: Stopping
    best_loss: float = math.inf
    least_loss: float = math.inf
    top_accuracy: float = 0.0
    waited: int = 0

    def update(self, loss: float, accuracy: float) -> bool:
        """Record the validation of an epoch; return whether to keep its weights."""
        rule = self.stopping.rule
        if rule == "never":
            return True
        if rule == "loss":
            keep = loss < self.best_loss
            self.waited = 0 if keep else self.waited + 1
        elif rule == "accuracy-and-loss":
            renewed = accuracy >= self.top_accuracy
            keep = renewed and loss <= self.best_loss
            self.waited = 0 if renewed else self.waited + 1
            self.top_accuracy = max(accuracy, self.top_accuracy)
        else:
            renewed = loss <= self.least_loss or accuracy >= self.top_accuracy
            keep = accuracy >= self.top_accuracy if rule == "accuracy" else loss <= self.least_loss
            self.waited = 0 if renewed else self.waited + 1
            self.least_loss = min(loss, self.least_loss)
            self.top_accuracy = max(accuracy, self.top_accuracy)
        if keep:
            self.best_loss = loss
        return keep

    def marks(self) -> dict[str, Any]:
        """Return the values that a checkpoint stores."""
        marks = dataclasses.asdict(self)
        del marks["stopping"]
        return marks

    @property
    def finished(self) -> bool:
        """Whether training should stop."""
        return self.stopping.rule != "never" and self.waited >= self.stopping.patience
