"""GRAND+ on a Ray cluster: rows are pushed in blocks, and a team trains the head on them.

The driver has the graph. Its engine pushes the rows that training needs. These rows, with the
features that they reach, are all that the workers get, from Ray's object store. Every worker runs
the package's one training loop on its share of every batch.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch

from dropnode.engines.ray_cluster import run_ray
from dropnode.engines.ray_team import TeamFile, room_for_team, run_team
from dropnode.engines.team import Team
from dropnode.errors import ConfigError
from dropnode.graph import Graph, Split
from dropnode.methods.base import Sizes
from dropnode.methods.grand_plus.config import GrandPlusConfig
from dropnode.methods.grand_plus.inference import exact_rows, watch_propagated
from dropnode.methods.grand_plus.model import GrandPlus
from dropnode.methods.grand_plus.pushed import PushedRows
from dropnode.ops.randomness import Stream
from dropnode.ops.sparse_matrix import shared
from dropnode.training import Callback, Method, Outcome, Phase, train
from dropnode.training.checkpoint import Checkpoint, read_checkpoint, resume_point


def train_on_ray(
    method: Method,
    graph: Graph,
    split: Split | None = None,
    *,
    workers: int,
    address: str | None = None,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    checkpoint_every: float = 5.0,
) -> Outcome:
    """Train GRAND+ on a Ray cluster, and leave it with its best weights.

    The counterpart of :func:`dropnode.training.train`. Every worker takes its share of every batch,
    and the gradients of all are added. So the loss is that of one process, however many there are;
    another number of workers only rounds in another way. With the same number, weights are
    bit-identical from run to run, also if workers die on the way.

    Parameters
    ----------
    method : GrandPlus
    graph, split, seed, callbacks, checkpoint, checkpoint_every
        As for ``train``. The checkpoint is a file of this machine.
    workers : int
        How many processes train together, each on one CPU, and with a GPU if the method's device
        is one.
    address : str, optional
        A running cluster that this machine belongs to: ``auto`` or ``host:port``. By default, Ray
        is started on this machine and stopped at the end.

    Returns
    -------
    Outcome

    Raises
    ------
    ConfigError
        If the method is not GRAND+, or no cluster with so many CPUs answers.
    """
    if not isinstance(method, GrandPlus):
        raise ConfigError("only grand-plus can be trained by several workers; use that method")
    split = split or graph.split
    method.check(graph, split)
    assert split is not None
    # Here, where its path is that of the caller, and before rows are pushed.
    resumed = resume_point(checkpoint, seed)
    with ExitStack() as stack:
        # Both engines below take part in this connection.
        gpu = method.device.type == "cuda"
        stack.enter_context(room_for_team(workers, address, gpu))
        method.run = partial(run_ray, address=address)
        try:
            method.prepare(graph, split, Stream(seed).at("initialisation"))
        finally:
            del method.run
        if checkpoint is None:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="dropnode-"))
            checkpoint = Path(folder) / "checkpoint.safetensors"
        checkpoint.parent.mkdir(parents=True, exist_ok=True)
        news = _News(method.phases()[0], callbacks, resumed)
        interrupted = False
        try:
            run_team(
                _train_share,
                workers,
                checkpoint,
                address=address,
                shared=_Task(_StoredRows.of(method, graph, split), seed, checkpoint_every),
                gpu=gpu,
                on_news=news.take,
            )
        except KeyboardInterrupt:
            interrupted = True
            if not checkpoint.exists():
                raise
        saved = read_checkpoint(checkpoint)
    assert saved is not None
    assert saved.best_state is not None
    method.load_state(saved.best_state)
    return Outcome(saved.history, saved.best_epoch, saved.seconds, interrupted)


@dataclass(frozen=True)
class _StoredRows:
    """All that training needs of a graph, once rows are pushed.

    Attributes
    ----------
    watched : Graph
        The training and the validation nodes, without edges. Their features are their rows of ΠX.
    """

    config: GrandPlusConfig
    sizes: Sizes
    shares: np.ndarray
    rows: PushedRows
    labelled: int
    unlabelled: int
    train_weights: np.ndarray | None
    watched: Graph

    @classmethod
    def of(cls, method: GrandPlus, graph: Graph, split: Split) -> _StoredRows:
        """Return what a prepared method needs to train."""
        nodes = np.concatenate([split.train, split.val])
        places = np.arange(len(nodes))
        watched = Graph.from_edges(
            np.empty((0, 2), dtype=np.int64),
            exact_rows(method.tensors, nodes, method.shares).cpu().numpy(),
            graph.labels[nodes],
            class_names=graph.class_names,
            split=Split(places[: len(split.train)], places[len(split.train) :], places[:0]),
        )
        weights = method.train_weights
        return cls(
            method.config,
            method.sizes,
            method.head.shares.cpu().numpy(),
            method.rows,
            method.labelled,
            method.unlabelled,
            None if weights is None else weights.cpu().numpy(),
            watched,
        )


@dataclass(frozen=True)
class _Task:
    """What all workers are given."""

    stored: _StoredRows
    seed: int
    checkpoint_every: float


def _train_share(task: _Task, team: Team, file: TeamFile) -> None:
    """Train as a member of a team; this runs in its process."""
    torch.set_num_threads(1)
    method = _StoredGrandPlus(task.stored, team)
    with tempfile.TemporaryDirectory(prefix="dropnode-") as folder:
        checkpoint = Path(folder) / "checkpoint.safetensors"
        written = file.read()
        if written is not None:
            checkpoint.write_bytes(written)
        train(
            method,
            task.stored.watched,
            seed=task.seed,
            callbacks=[_Reporter(file)] if team.rank == 0 else [],
            checkpoint=checkpoint,
            checkpoint_every=task.checkpoint_every,
            on_checkpoint=lambda: file.write(checkpoint.read_bytes()),
        )


class _StoredGrandPlus(GrandPlus):
    """GRAND+ that is trained on stored rows, in a process that does not have the graph."""

    def __init__(self, stored: _StoredRows, team: Team) -> None:
        super().__init__(stored.config, device=team.device)
        self.stored, self.team = stored, team

    def check(self, graph: Graph, split: Split | None) -> None:
        """Do nothing: the driver has checked the split, of which the test part is not here."""

    def prepare(self, graph: Graph, split: Split, stream: Stream) -> None:
        """Draw the weights, and take the rows as they are."""
        stored = self.stored
        self.sizes = stored.sizes
        self.network = self.make_network(stored.sizes).to(self.device)
        self.start_head(stored.shares.copy(), stream)
        self.rows, self.labelled, self.unlabelled = stored.rows, stored.labelled, stored.unlabelled
        self.rows.to(self.device)
        self.train_targets = torch.from_numpy(graph.labels[split.train]).to(self.device)
        weights = stored.train_weights
        self.train_weights = None if weights is None else shared(weights).to(self.device)
        self.validates = len(split.val) > 0

    def watch(self, rows: np.ndarray) -> Callable[[], torch.Tensor]:
        """Return a function that returns the current exact logits of all nodes.

        The loop watches the training and the validation nodes; here are no others.
        """
        features = shared(np.asarray(self.stored.watched.features))
        return watch_propagated(self.head, features.to(self.device))


class _Reporter:
    """The callback of the first member, which tells the driver of every epoch."""

    def __init__(self, file: TeamFile) -> None:
        self.file = file

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        """Tell the record of the last epoch."""
        self.file.tell((outcome.history[-1], outcome.best_epoch))


class _News:
    """The driver's view of a training elsewhere, for its callbacks."""

    def __init__(
        self, phase: Phase, callbacks: Sequence[Callback], resumed: Checkpoint | None
    ) -> None:
        self.phase, self.callbacks = phase, callbacks
        self.outcome = Outcome(list(resumed.history)) if resumed else Outcome()

    def take(self, news: tuple[dict[str, float], int]) -> None:
        """Call all callbacks with an epoch; one that was lost with a worker comes again."""
        record, best = news
        self.outcome.history = [
            *(line for line in self.outcome.history if line["epoch"] < record["epoch"]),
            record,
        ]
        self.outcome.best_epoch = best
        for callback in self.callbacks:
            callback.on_epoch(self.phase, self.outcome)
