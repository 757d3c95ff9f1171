"""The one loop that trains every method.

Early stopping, best weights, history, callbacks, checkpoints, interruption and divergence are
handled here and nowhere else.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import numpy as np
import torch

from dropnode.errors import CheckpointError, TrainingError
from dropnode.graph import Graph, Split
from dropnode.ops.kernels.memory import release_scratch
from dropnode.ops.kernels.threads import at_most, settle
from dropnode.ops.randomness import Stream
from dropnode.training.checkpoint import Checkpoint, resume_point, write_checkpoint
from dropnode.training.interruption import Interruption
from dropnode.training.method import Callback, Method, Outcome, Phase, State
from dropnode.training.stopping import Progress


def train(
    method: Method,
    graph: Graph,
    split: Split | None = None,
    *,
    seed: int = 0,
    callbacks: Sequence[Callback] = (),
    checkpoint: Path | None = None,
    checkpoint_every: float = 5.0,
    on_checkpoint: Callable[[], None] | None = None,
) -> Outcome:
    """Train a method and leave it with its best weights.

    Parameters
    ----------
    method : Method
    graph : Graph
    split : Split, optional
        The graph's own by default. Labels of test nodes are never read.
    seed : int
        Determines everything random.
    callbacks : sequence of Callback
    checkpoint : Path, optional
        A file to write progress to, and to resume from if it exists. A resumed run is
        bit-identical to one that was never interrupted. With it, Ctrl-C waits for the end of the
        epoch, and the checkpoint is written; a second Ctrl-C does not wait.
    checkpoint_every : float
        Seconds between checkpoints.
    on_checkpoint : callable, optional
        Called after every checkpoint that was written.

    Returns
    -------
    Outcome
    """
    run = _Run(method, graph, split, seed, callbacks, checkpoint, checkpoint_every, on_checkpoint)
    try:
        with run.interruption:
            for _ in run.epochs():
                pass
    except KeyboardInterrupt:
        if run.best_state is None:
            raise
        run.outcome.interrupted = True
        method.load_state(run.best_state)
    finally:
        release_scratch()
    run.outcome.seconds = run.elapsed()
    return run.outcome


def epochs(
    method: Method, graph: Graph, split: Split | None = None, *, seed: int = 0
) -> Iterator[dict[str, float]]:
    """Train as :func:`train` does, but yield after every epoch, so that the caller can time them.

    Yields
    ------
    dict
        The epoch's record in the history. After the last one, the method has its best weights.
    """
    return _Run(method, graph, split, seed).epochs()


class _Run:
    """The state of one call of :func:`train`."""

    def __init__(
        self,
        method: Method,
        graph: Graph,
        split: Split | None,
        seed: int,
        callbacks: Sequence[Callback] = (),
        checkpoint: Path | None = None,
        checkpoint_every: float = 0.0,
        on_checkpoint: Callable[[], None] | None = None,
    ) -> None:
        settle()
        split = split or graph.split
        method.check(graph, split)
        assert split is not None
        self.method, self.seed, self.callbacks = method, seed, callbacks
        self.checkpoint, self.checkpoint_every = checkpoint, checkpoint_every
        self.on_checkpoint = on_checkpoint
        self.stream = Stream(seed)
        with self.seeded(self.stream.at("prepare")):
            method.prepare(graph, split, self.stream.at("initialisation"))
        watched = np.concatenate([split.train, split.val])
        self.targets = torch.from_numpy(graph.labels[watched])
        self.num_train, self.num_val = len(split.train), len(split.val)
        self.outcome = Outcome()
        self.best_state: State | None = None
        self.spare_state: State | None = None
        self.interruption = Interruption(active=checkpoint is not None)
        self.resumed = resume_point(checkpoint, seed)
        if checkpoint:
            checkpoint.parent.mkdir(parents=True, exist_ok=True)
        spent = self.resumed.seconds if self.resumed else 0.0
        self.started = time.perf_counter() - spent
        with at_most(method.threads):
            self.watched_logits = method.watch(watched)

    def seeded(self, stream: Stream) -> AbstractContextManager[None]:
        """Seed torch's global generator, if the method draws from it."""
        return stream.torch_global() if self.method.draws_from_torch else nullcontext()

    def elapsed(self) -> float:
        """Return the seconds of training, including those before an interruption."""
        return time.perf_counter() - self.started

    def epochs(self) -> Iterator[dict[str, float]]:
        """Run every phase, yielding after every epoch.

        A method without phases has a history of one record.
        """
        phases = self.method.phases()
        if not phases:
            self.outcome.history.append({"epoch": 1.0, **self.validate()})
            self.outcome.best_epoch = 1
            yield self.outcome.history[-1]
        for number, phase in enumerate(phases):
            yield from self.phase(number, phase, self.stream.at("phase", number))

    def phase(self, number: int, phase: Phase, stream: Stream) -> Iterator[dict[str, float]]:
        """Run one phase, yielding after every epoch, and restore its best weights."""
        saved = self.resumed
        if saved and number < saved.phase:
            return
        with self.seeded(stream.at("begin")):
            self.method.begin(phase, stream.at("begin"))
        progress = Progress(phase.stopping)
        epoch = 0
        if saved and number == saved.phase:
            self.load(saved, phase)
            self.best_state = saved.best_state
            progress = Progress(phase.stopping, **saved.progress)
            self.outcome.history = saved.history
            self.outcome.best_epoch = saved.best_epoch
            epoch = saved.epoch
        last_write = time.monotonic()
        while epoch < phase.max_epochs and not progress.finished:
            epoch += 1
            with at_most(self.method.threads):
                record = self.epoch(phase, epoch, stream.at("epoch", epoch))
                self.outcome.history.append(record)
                if progress.update(record["val_loss"], record["val_accuracy"]):
                    self.keep_state()
            for callback in self.callbacks:
                callback.on_epoch(phase, self.outcome)
            over = progress.finished or epoch == phase.max_epochs
            due = time.monotonic() - last_write >= self.checkpoint_every
            # The members of a team have the same state, and it is enough that one writes it.
            writes = self.checkpoint is not None and self.method.team.rank == 0
            if writes and (due or over or self.interruption.pending):
                self.write(number, phase, epoch, progress)
                last_write = time.monotonic()
            self.interruption.check()
            yield record
        if self.best_state is not None:
            self.method.load_state(self.best_state)

    def load(self, saved: Checkpoint, phase: Phase) -> None:
        """Load the weights and the optimiser of a checkpoint."""
        try:
            self.method.load_state(saved.state)
            phase.optimiser.load_state_dict(saved.optimiser)
        except (RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"{self.checkpoint} belongs to another method or graph ({error}); give this run "
                "another checkpoint path"
            ) from error

    def keep_state(self) -> None:
        """Keep a copy of the current weights as the best so far."""
        state, copy = self.method.state(), self.spare_state
        if copy is None or copy.keys() != state.keys():
            copy = {name: tensor.clone() for name, tensor in state.items()}
        else:
            # Reuses memory, since most epochs of a training are the best so far.
            for name, tensor in state.items():
                copy[name].copy_(tensor)
        # Assigned last, so that an interruption finds a complete copy.
        self.best_state, self.spare_state = copy, self.best_state
        self.outcome.best_epoch = self.outcome.epochs

    def epoch(self, phase: Phase, epoch: int, stream: Stream) -> dict[str, float]:
        """Take the steps of an epoch, validate, and return its record in the history."""
        parts: dict[str, float] = {}
        batches = 0
        for index, batch in enumerate(self.method.batches(phase, stream.at("batches"))):
            step = stream.at("batch", index)
            with self.seeded(step):
                phase.optimiser.zero_grad()
                loss, terms = self.method.loss(batch, step)
                whole = self.whole({"loss": loss} | terms)
                if not math.isfinite(whole["loss"]):
                    shown = ", ".join(f"{name} {whole[name]:g}" for name in terms)
                    told = f"loss is {whole['loss']} ({shown})"
                    raise TrainingError(_diverged(epoch, told, phase))
                loss.backward()
                self.method.team.add_up(_gradients(phase.optimiser))
                phase.optimiser.step()
            for name, term in whole.items():
                parts[name] = parts.get(name, 0.0) + term
            batches += 1
        record = {"epoch": float(epoch)}
        record |= {name: total / batches for name, total in parts.items()}
        record |= self.validate()
        for name in ("train_loss", "val_loss"):
            if math.isnan(record[name]) and (name == "train_loss" or self.num_val):
                # The step's loss was finite, but the weights after it are not. Without this check
                # the last epoch could diverge unnoticed.
                raise TrainingError(_diverged(epoch, f"{name} after it is nan", phase))
        return record

    def whole(self, terms: dict[str, torch.Tensor]) -> dict[str, float]:
        """Return terms of a loss, added up over the team."""
        values = [term.detach() for term in terms.values()]
        if self.method.team.size > 1:
            values = list(self.method.team.total(torch.stack(values)))
        return dict(zip(terms, map(float, values), strict=True))

    def validate(self) -> dict[str, float]:
        """Return losses and accuracies of the training and of the validation nodes.

        The first member of a team decides: on other processors, the same might be rounded in
        another way, and some members would stop while others go on.
        """
        names = ["train_loss", "train_accuracy", "val_loss", "val_accuracy"]
        first = self.method.team.rank == 0
        record = self.measured() if first else dict.fromkeys(names, 0.0)
        return dict(
            zip(names, self.method.team.of_first([record[name] for name in names]), strict=True)
        )

    def measured(self) -> dict[str, float]:
        """Return the same, as this process finds it."""
        with torch.no_grad():
            logits = self.watched_logits().cpu()
        losses = torch.nn.functional.cross_entropy(logits, self.targets, reduction="none").numpy()
        correct = (logits.argmax(dim=1) == self.targets).numpy()
        record = {}
        for part, chosen in (
            ("train", slice(0, self.num_train)),
            ("val", slice(self.num_train, None)),
        ):
            record[f"{part}_loss"] = _mean(losses[chosen])
            record[f"{part}_accuracy"] = _mean(correct[chosen])
        return record

    def write(self, number: int, phase: Phase, epoch: int, progress: Progress) -> None:
        """Write a checkpoint."""
        assert self.checkpoint is not None
        write_checkpoint(
            self.checkpoint,
            Checkpoint(
                seed=self.seed,
                phase=number,
                epoch=epoch,
                progress=progress.marks(),
                best_epoch=self.outcome.best_epoch,
                seconds=self.elapsed(),
                history=self.outcome.history,
                state=self.method.state(),
                best_state=self.best_state,
                optimiser=phase.optimiser.state_dict(),
            ),
        )
        if self.on_checkpoint is not None:
            self.on_checkpoint()


def _gradients(optimiser: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    """Yield the gradients of all parameters that have one."""
    for group in optimiser.param_groups:
        yield from (each.grad for each in group["params"] if each.grad is not None)


def _mean(values: np.ndarray) -> float:
    return float(values.mean(dtype=np.float64)) if len(values) else math.nan


def _diverged(epoch: int, what: str, phase: Phase) -> str:
    rate = phase.optimiser.param_groups[0]["lr"]
    return (
        f"training diverged in epoch {epoch}: the {what}; lower learning_rate "
        f"(it is {rate:g}), or scale the features (feature_scaling)"
    )
