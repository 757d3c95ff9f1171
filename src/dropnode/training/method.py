"""The Method contract: what the loop trains, in which phases, and the outcome of training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from dropnode.graph import Graph, Split
from dropnode.ops.kernels.threads import Threads
from dropnode.ops.randomness import Stream
from dropnode.training.stopping import Stopping

State = dict[str, torch.Tensor]
"""Everything a method has learnt, by name."""


@dataclass(frozen=True)
class Phase:
    """One stage of a method's training, with an optimiser of its own."""

    name: str
    optimiser: torch.optim.Optimizer
    max_epochs: int
    stopping: Stopping


class Method(ABC):
    """What the loop trains.

    Attributes
    ----------
    threads : Threads
        How many threads pay in an epoch; all that torch has been given, unless a method knows
        better.
    revision : int
        Raised when a change of code changes what the same configuration and seed come to: stored
        results of another revision are not reused.
    """

    threads: Threads = Threads()
    revision: int = 1

    @abstractmethod
    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Precompute, and draw the initial weights. A closed-form method is done here."""

    @abstractmethod
    def phases(self) -> list[Phase]:
        """Return the stages of training in order; none for a closed-form method."""

    def begin(self, phase: Phase, stream: Stream) -> None:  # noqa: B027 (rarely needed)
        """Get ready for a phase: what it starts from, such as another phase's predictions.

        A resume calls it before :meth:`load_state`, so what it computes belongs to the state.
        """

    def batches(self, phase: Phase, stream: Stream) -> Iterable[Any]:
        """Return what one epoch consists of; by default one full batch."""
        return [None]

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to step on, and its parts for the history; asked for in phases only."""
        raise NotImplementedError(f"{type(self).__name__} has phases, but no loss")

    @abstractmethod
    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return deterministic logits of some nodes (all by default), of another graph if given."""

    @abstractmethod
    def state(self) -> State:
        """Return everything learnt, by reference."""

    @abstractmethod
    def load_state(self, state: State) -> None:
        """Take over what :meth:`state` returned."""


@dataclass
class Outcome:
    """What training came to."""

    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def epochs(self) -> int:
        """Epochs run, over all phases."""
        return len(self.history)

    @property
    def best(self) -> dict[str, float]:
        """The history of the epoch whose weights were kept."""
        return self.history[self.best_epoch - 1] if self.history else {}

    @property
    def measured(self) -> list[dict[str, float]]:
        """The history without what was not measured (NaN), so that it holds numbers only."""
        return [{k: v for k, v in line.items() if v == v} for line in self.history]


class Callback(Protocol):
    """Watches training; told of every epoch after it is over."""

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Look at ``outcome.history[-1]``."""
        ...
