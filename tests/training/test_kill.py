"""A run that is killed, at any moment, goes on to the same bits."""

from __future__ import annotations

import filecmp
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

EPOCHS = 40
ARTIFACTS = [
    "history.csv",
    "predictions.csv",
    "model/weights.safetensors",
    "model/graph.safetensors",
]
# Dies by SIGKILL inside the n-th call of an operating-system function: while the bytes of a
# checkpoint are on their way to the disk (fsync), or between writing and naming it (replace).
DIES_INSIDE = """
import os, signal, sys
name, fatal = sys.argv[1], int(sys.argv[2])
real, calls = getattr(os, name), 0
def counting(*arguments):
    global calls
    calls += 1
    if calls == fatal:
        os.kill(os.getpid(), signal.SIGKILL)
    return real(*arguments)
setattr(os, name, counting)
sys.argv = ["dropnode", *sys.argv[3:]]
from dropnode.cli import main
main()
"""


def command(out: Path) -> list[str]:
    settings = "batch_norm=true order=1 input_dropout=0.2 hidden=8 augmentations=2".split()
    settings.append(f"max_epochs={EPOCHS}")
    changes = [word for setting in settings for word in ("--set", setting)]
    return ["train", "digits", "--out", str(out), "--resume", "--checkpoint-every", "0", *changes]


def start(out: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "dropnode", *command(out)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def finish(out: Path) -> None:
    process = start(out)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors.decode()


def assert_same_bits(out: Path, reference: Path) -> None:
    for name in ARTIFACTS:
        assert filecmp.cmp(out / name, reference / name, shallow=False), f"{name} differs"
    assert not list(out.rglob("*.tmp")), "half-written files were left behind"


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("reference") / "run"
    finish(out)
    return out


@pytest.mark.parametrize("wanted", [1, pytest.param(6, marks=pytest.mark.slow)])
def test_killed_at_random_moments_ends_with_the_same_bits(
    tmp_path: Path, reference: Path, wanted: int
) -> None:
    """Killed several times, each at a random moment after the run has begun to make progress."""
    moments = random.Random(20261115)
    out = tmp_path / "run"
    kills = 0
    while kills < wanted and not (out / "result.json").exists():
        process = start(out)
        wait_for_progress(out, process)
        time.sleep(moments.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert process.returncode == -signal.SIGKILL, "the run was over before it could be killed"
        kills += 1
    assert kills == wanted
    finish(out)
    assert_same_bits(out, reference)


def wait_for_progress(out: Path, process: subprocess.Popen[bytes]) -> None:
    """Return as soon as the process has written a checkpoint of its own."""
    checkpoint = out / "checkpoint.safetensors"
    before = checkpoint.stat().st_mtime_ns if checkpoint.exists() else 0
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if checkpoint.exists() and checkpoint.stat().st_mtime_ns != before:
            return
        time.sleep(0.002)
    pytest.fail("no checkpoint was written")


@pytest.mark.parametrize(
    ("function", "fatal"),
    [
        pytest.param("fsync", 2, marks=pytest.mark.slow),
        pytest.param("replace", 2, marks=pytest.mark.slow),
        pytest.param("fsync", 20, marks=pytest.mark.slow),
        pytest.param("replace", 29, marks=pytest.mark.slow),
    ],
)
def test_killed_while_writing_a_checkpoint_ends_with_the_same_bits(
    tmp_path: Path, reference: Path, function: str, fatal: int
) -> None:
    out = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", DIES_INSIDE, function, str(fatal), *command(out)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert not (out / "result.json").exists()
    finish(out)
    assert_same_bits(out, reference)


@pytest.mark.slow
def test_killed_before_anything_was_written_starts_anew(tmp_path: Path, reference: Path) -> None:
    out = tmp_path / "run"
    killed = subprocess.run(
        [sys.executable, "-c", DIES_INSIDE, "replace", "1", *command(out)],
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL
    assert os.listdir(out), "the kill came too early to be of interest"
    finish(out)
    assert_same_bits(out, reference)
