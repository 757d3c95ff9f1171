"""The Method contract: what the loop trains, its phases, and the outcome of training."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch

from dropnode.engines.team import ALONE, Team
from dropnode.graph import Graph, Split
from dropnode.ops.kernels.threads import Threads
from dropnode.ops.randomness import Stream
from dropnode.training.stopping import Stopping

State = dict[str, torch.Tensor]
"""Everything a method has learnt, by name."""


@dataclass(frozen=True)
class Phase:
    """One stage of a method's training, with its own optimiser."""

    name: str
    optimiser: torch.optim.Optimizer
    max_epochs: int
    stopping: Stopping


class Method(ABC):
    """A model that the loop can train.

    Attributes
    ----------
    threads : Threads
        How many threads to use in an epoch; by default all that torch may use.
    revision : int
        Increased when a change of code changes the results of the same configuration and seed.
        Stored results of another revision are not reused.
    draws_from_torch : bool
        Whether training draws from torch's global generator, as most library layers do. If so, the
        loop seeds that generator around every step.
    team : Team
        The processes that train the method together. The losses that they return for a batch add
        up to the loss of the batch. By default, one process trains alone.
    """

    threads: Threads = Threads()
    revision: int = 1
    draws_from_torch: bool = True
    team: Team = ALONE

    def check(self, graph: Graph, split: Split | None) -> None:
        """Raise :class:`~dropnode.errors.GraphError` unless a split can be trained on."""
        graph.check_trainable(split)

    @abstractmethod
    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Precompute, and draw the initial weights. A closed-form method is fitted here."""

    @abstractmethod
    def phases(self) -> list[Phase]:
        """Return the stages of training in order; an empty list for a closed-form method."""

    def begin(self, phase: Phase, stream: Stream) -> None:  # noqa: B027 (rarely needed)
        """Compute what a phase starts from, such as the predictions of the phase before.

        A resumed run calls it before :meth:`load_state`, so the result belongs to the state.
        """

    def batches(self, phase: Phase, stream: Stream) -> Iterable[Any]:
        """Return the batches of one epoch; by default one full batch."""
        return [None]

    def loss(self, batch: Any, stream: Stream) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Return the loss to minimise, and its parts for the history."""
        raise NotImplementedError(f"{type(self).__name__} has phases, but no loss")

    @abstractmethod
    def logits(self, graph: Graph | None = None, rows: np.ndarray | None = None) -> torch.Tensor:
        """Return deterministic logits of some nodes (all by default), of another graph if given."""

    def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
        """Return a function that returns the current logits of some training-graph nodes.

        The loop validates with it after every epoch, so a method can prepare once what does not
        depend on the weights. By default it classifies the whole graph.
        """
        wanted = torch.from_numpy(rows.copy())
        return lambda: self.logits()[wanted]

    @abstractmethod
    def state(self) -> State:
        """Return everything learnt, by reference."""

    @abstractmethod
    def load_state(self, state: State) -> None:
        """Restore what :meth:`state` returned."""


@dataclass
class Outcome:
    """The outcome of a training.

    Attributes
    ----------
    history : list of dict
        Losses and accuracies of every epoch, over all phases.
    best_epoch : int
        The epoch whose weights were kept, counted from 1 over all phases.
    seconds : float
        The duration of training.
    interrupted : bool
        Whether the user interrupted it.
    """

    history: list[dict[str, float]] = field(default_factory=list)
    best_epoch: int = 0
    seconds: float = 0.0
    interrupted: bool = False

    @property
    def epochs(self) -> int:
        """The number of epochs run, over all phases."""
        return len(self.history)

    @property
    def best(self) -> dict[str, float]:
        """The history of the epoch whose weights were kept."""
        return self.history[self.best_epoch - 1] if self.history else {}

    @property
    def measured(self) -> list[dict[str, float]]:
        """The history without the values that were not measured (NaN)."""
        return [{k: v for k, v in line.items() if v == v} for line in self.history]


class Callback(Protocol):
    """An object that the loop calls after every epoch."""

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Handle the epoch that ``outcome.history[-1]`` describes."""
        ...
