"""A run that was cut short goes on to the same bits; a broken file is said to be broken."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from test_loop import Slope, fingerprint

import damage
from dropnode.errors import CheckpointError
from dropnode.graph import Graph
from dropnode.methods.grand.config import GrandConfig
from dropnode.methods.grand.model import Grand
from dropnode.training import Method, Outcome, Phase, train
from dropnode.training.checkpoint import Checkpoint, read_checkpoint, write_checkpoint

Configure = Callable[..., GrandConfig]


class Killed(Exception):  # noqa: N818
    """The process ends here, as far as the loop can tell."""


class KillAfter:
    """Kill the run as soon as an epoch is over, before its checkpoint is written."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
        if outcome.epochs == self.epoch:
            raise Killed


def killed(method: Method, graph: Graph, path: Path, epoch: int) -> None:
    """Train with a checkpoint every epoch; the last one written is that of ``epoch - 1``."""
    with pytest.raises(Killed):
        train(method, graph, checkpoint=path, checkpoint_every=0.0, callbacks=[KillAfter(epoch)])


CASES: dict[str, dict[str, Any]] = {
    "mlp": {},
    "input-dropout": {"input_dropout": 0.3},
    "batch-norm": {"batch_norm": True, "input_dropout": 0.3},
    "gcn": {"head": "gcn", "perturbation": "dropedge"},
    "gat": {"head": "gat"},
    "loss": {"stopping": "loss", "learning_rate": 0.5, "patience": 3, "perturbation": "dropout"},
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_resumed_at_any_epoch_ends_with_the_same_bits(
    community: Graph, configure: Configure, tmp_path: Path, case: str
) -> None:
    config = configure(max_epochs=7, **CASES[case])
    whole = Grand(config)
    outcome = train(whole, community)
    expected = fingerprint(whole, outcome)
    for epoch in range(1, outcome.epochs + 1):
        path = tmp_path / f"{epoch}.safetensors"
        killed(Grand(config), community, path, epoch)
        assert path.exists() is (epoch > 1)
        # The state of torch's generator at the time of resuming must not matter.
        torch.manual_seed(epoch)
        resumed = Grand(config)
        assert fingerprint(resumed, train(resumed, community, checkpoint=path)) == expected


def test_a_run_killed_again_and_again_ends_with_the_same_bits(
    community: Graph, configure: Configure, tmp_path: Path
) -> None:
    config = configure(max_epochs=7, batch_norm=True)
    whole = Grand(config)
    expected = fingerprint(whole, train(whole, community))
    path = tmp_path / "run.safetensors"
    for epoch in range(2, 8):
        killed(Grand(config), community, path, epoch)
        saved = read_checkpoint(path)
        assert saved is not None
        assert saved.epoch == len(saved.history) == epoch - 1
    resumed = Grand(config)
    assert fingerprint(resumed, train(resumed, community, checkpoint=path)) == expected


def test_two_phases_resume_in_either(community: Graph, tmp_path: Path) -> None:
    whole = Slope(phases=2, batches=2)
    expected = fingerprint(whole, train(whole, community))
    for epoch in range(1, 10):
        path = tmp_path / f"{epoch}.safetensors"
        killed(Slope(phases=2, batches=2), community, path, epoch)
        resumed = Slope(phases=2, batches=2)
        outcome = train(resumed, community, checkpoint=path)
        assert fingerprint(resumed, outcome) == expected
        assert torch.equal(resumed.anchor, whole.anchor)
        # A phase that is over is not begun again; the one that was under way is.
        assert resumed.began == (["phase 1"] if epoch > 5 else ["phase 0", "phase 1"])


@pytest.mark.parametrize("stopping", [{}, {"stopping": "loss", "patience": 2, "max_epochs": 90}])
def test_resuming_a_finished_run_trains_no_more(
    community: Graph, configure: Configure, tmp_path: Path, stopping: dict[str, Any]
) -> None:
    config = configure(learning_rate=0.5, **stopping)
    path = tmp_path / "run.safetensors"
    first = Grand(config)
    expected = fingerprint(first, train(first, community, checkpoint=path))
    written = path.read_bytes()

    class Unwanted:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            raise AssertionError("there was nothing left to train")

    again = Grand(config)
    outcome = train(again, community, checkpoint=path, callbacks=[Unwanted()])
    assert fingerprint(again, outcome) == expected
    assert path.read_bytes() == written


def test_an_interrupted_run_goes_on(community: Graph, configure: Configure, tmp_path: Path) -> None:
    """Ctrl-C returns the best so far; the same call again finishes the run."""
    config = configure(max_epochs=7)
    path = tmp_path / "run.safetensors"

    class Interrupt:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            if outcome.epochs == 4:
                raise KeyboardInterrupt

    options = {"checkpoint": path, "checkpoint_every": 0.0}
    first = Grand(config)
    outcome = train(first, community, callbacks=[Interrupt()], **options)  # type: ignore[arg-type]
    assert outcome.interrupted
    resumed, whole = Grand(config), Grand(config)
    finished = train(resumed, community, **options)  # type: ignore[arg-type]
    assert not finished.interrupted
    assert fingerprint(resumed, finished) == fingerprint(whole, train(whole, community))


def test_a_programs_own_handler_of_ctrl_c_stays(
    community: Graph, configure: Configure, tmp_path: Path
) -> None:
    received: list[int] = []

    def own(number: int, frame: FrameType | None) -> None:
        received.append(number)

    class Press:
        def on_epoch(self, phase: Phase, outcome: Outcome) -> None:
            signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, own)
    try:
        method = Grand(configure(max_epochs=3))
        outcome = train(method, community, checkpoint=tmp_path / "run", callbacks=[Press()])
        assert signal.getsignal(signal.SIGINT) is own
    finally:
        signal.signal(signal.SIGINT, before)
    assert not outcome.interrupted
    assert received == [signal.SIGINT] * 3


def test_checkpoints_change_no_bit(community: Graph, configure: Configure, tmp_path: Path) -> None:
    runs = []
    for options in ({}, {"checkpoint": tmp_path / "run", "checkpoint_every": 0.0}):
        method = Grand(configure())
        runs.append(fingerprint(method, train(method, community, **options)))  # type: ignore[arg-type]
    assert runs[0] == runs[1]


def test_checkpoints_are_written_as_often_as_asked_and_at_the_end(
    community: Graph, configure: Configure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def recorded(path: Path, checkpoint: Checkpoint) -> None:
        written.append(checkpoint.epoch)

    monkeypatch.setattr("dropnode.training.loop.write_checkpoint", recorded)
    config = configure(max_epochs=5)
    train(Grand(config), community, checkpoint=tmp_path / "a", checkpoint_every=0.0)
    train(Grand(config), community, checkpoint=tmp_path / "b", checkpoint_every=3600.0)
    assert written == [1, 2, 3, 4, 5, 5]


def test_time_before_an_interruption_counts(
    community: Graph, configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    killed(Grand(configure()), community, path, 4)
    saved = read_checkpoint(path)
    assert saved is not None
    earlier = Checkpoint(**(vars(saved) | {"seconds": 1000.0}))
    write_checkpoint(path, earlier)
    assert 1000.0 < train(Grand(configure()), community, checkpoint=path).seconds < 1500.0


@pytest.fixture
def checkpoint() -> Checkpoint:
    generator = torch.Generator().manual_seed(0)
    weights = {"weight": torch.randn(3, 2, generator=generator), "count": torch.tensor(7)}
    moments = {"step": torch.tensor(4.0), "exp_avg": torch.randn(3, 2, generator=generator)}
    return Checkpoint(
        seed=7,
        phase=1,
        epoch=4,
        progress={"best_loss": 0.1 + 0.2, "least_loss": float("inf"), "waited": 2},
        best_epoch=3,
        seconds=1.5,
        history=[{"epoch": 1.0, "loss": 0.1 + 0.2, "val_loss": float("inf")}],
        state=weights,
        best_state={name: value + 1 for name, value in weights.items()},
        optimiser={"state": {0: moments}, "param_groups": [{"lr": 0.01, "params": [0]}]},
    )


def test_every_bit_comes_back(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    write_checkpoint(path, checkpoint)
    read = read_checkpoint(path)
    assert read is not None
    assert read.best_state is not None
    assert checkpoint.best_state is not None
    for name in ("phase", "epoch", "progress", "best_epoch", "seconds", "history"):
        assert getattr(read, name) == getattr(checkpoint, name), name
    for one, other in (
        (read.state, checkpoint.state),
        (read.best_state, checkpoint.best_state),
        (read.optimiser["state"][0], checkpoint.optimiser["state"][0]),
    ):
        assert set(one) == set(other)
        for name, value in one.items():
            assert value.dtype == other[name].dtype
            assert torch.equal(value, other[name])
    assert read.optimiser["param_groups"] == checkpoint.optimiser["param_groups"]


def test_a_file_that_is_not_there_is_no_error(tmp_path: Path) -> None:
    assert read_checkpoint(tmp_path / "run.safetensors") is None


def assert_refused(path: Path) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "delete it to start again" in str(caught.value)


def test_a_truncated_file_is_refused(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "run.safetensors"
    write_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    for length in [0, 1, 7, 8, 9, 100, len(whole) // 2, len(whole) - 1]:
        path.write_bytes(whole[:length])
        assert_refused(path)


@pytest.mark.parametrize("flips", [10, pytest.param(200, marks=pytest.mark.slow)])
def test_a_flipped_bit_is_refused_or_harmless(
    community: Graph, configure: Configure, tmp_path: Path, flips: int
) -> None:
    """A damaged checkpoint that is accepted resumes to the weights of a whole one."""
    path, config = tmp_path / "run.safetensors", configure(max_epochs=4)
    whole = Grand(config)
    expected = fingerprint(whole, train(whole, community))
    killed(Grand(config), community, path, 3)
    refused = 0
    for seed in range(flips):
        with damage.restored(path):
            told = damage.flip_bit(path, seed)
            resumed = Grand(config)
            error = damage.error_of(lambda: read_checkpoint(path), CheckpointError)
            if error is None:
                outcome = train(resumed, community, checkpoint=path)
                assert fingerprint(resumed, outcome) == expected, told
            else:
                assert str(path) in error, told
                assert "delete it to start again" in error, told
                refused += 1
    assert refused > flips / 2


def test_exchanged_and_zeroed_checkpoints_are_refused(
    checkpoint: Checkpoint, tmp_path: Path
) -> None:
    path, other = tmp_path / "run.safetensors", tmp_path / "other"
    write_checkpoint(path, checkpoint)
    with damage.restored(path):
        damage.zero(path, path.stat().st_size - 8, 8)
        assert_refused(path)
    other.write_bytes(b"{}")
    damage.exchange(path, other)
    assert_refused(path)


@pytest.mark.parametrize("content", [b"garbage", b"\x00" * 4096, b"\xff" * 4096, b"{}" * 50])
def test_garbage_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "run.safetensors"
    path.write_bytes(content)
    assert_refused(path)


@pytest.mark.parametrize(
    "metadata",
    [
        None,
        {"other": "1"},
        {"position": "not json"},
        {"position": "[]"},
        {"position": "{}"},
        {"position": json.dumps({"phase": 0, "epoch": 1})},
    ],
)
def test_tensors_without_a_position_are_refused(
    tmp_path: Path, metadata: dict[str, str] | None
) -> None:
    """A model file, or a checkpoint of another version, is told apart from one of ours."""
    path = tmp_path / "run.safetensors"
    save_file({"weight": torch.ones(2)}, path, metadata=metadata)
    assert_refused(path)


def test_the_loop_refuses_a_broken_checkpoint_and_leaves_it(
    community: Graph, configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "run.safetensors"
    path.write_bytes(b"garbage")
    with pytest.raises(CheckpointError, match=r"run\.safetensors is not a checkpoint"):
        train(Grand(configure()), community, checkpoint=path)
    assert path.read_bytes() == b"garbage"


def test_the_loop_refuses_the_checkpoint_of_another_run(
    community: Graph, configure: Configure, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.safetensors"
    train(Grand(configure(max_epochs=2)), community, seed=1, checkpoint=path)
    before = path.read_bytes()

    with pytest.raises(CheckpointError, match="seed 1, but this run has seed 2"):
        train(Grand(configure(max_epochs=2)), community, seed=2, checkpoint=path)
    with pytest.raises(CheckpointError, match="another method or graph"):
        train(Grand(configure(max_epochs=2, hidden=5)), community, seed=1, checkpoint=path)
    assert path.read_bytes() == before


@pytest.mark.parametrize("function", ["replace", "fsync"])
def test_a_failed_write_leaves_the_old_checkpoint_whole(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    path = tmp_path / "run.safetensors"
    write_checkpoint(path, checkpoint)
    before = path.read_bytes()

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    later = Checkpoint(**(vars(checkpoint) | {"epoch": 5}))
    with monkeypatch.context() as patch:
        patch.setattr(os, function, full)
        with pytest.raises(OSError, match="No space left"):
            write_checkpoint(path, later)
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.safetensors"]
    write_checkpoint(path, later)
    read = read_checkpoint(path)
    assert read is not None
    assert read.epoch == 5


def test_what_is_moved_into_place_is_complete_and_on_the_disk(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[str] = []
    replace, fsync = os.replace, os.fsync

    def synced(descriptor: int) -> None:
        calls.append("fsync")
        fsync(descriptor)

    def replaced(source: Path, target: Path) -> None:
        calls.append("replace")
        assert Path(source).parent == Path(target).parent, "a move across disks is not atomic"
        assert read_checkpoint(Path(source)) is not None
        replace(source, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(os, "replace", replaced)
    write_checkpoint(tmp_path / "run.safetensors", checkpoint)
    assert calls[:2] == ["fsync", "replace"]
