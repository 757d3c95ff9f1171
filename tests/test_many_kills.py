"""Twenty kills of every long command, by TERM, INT and KILL: each goes on to the same results."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch

from dropnode.experiments.results import read_results
from dropnode.files import unseal
from dropnode.saving import load_model

pytestmark = pytest.mark.slow

KILLS = 20
SPEC = """
title: Two rows
datasets: [sbm]
seeds: 40
set: {max_epochs: 60, hidden: 8, order: 2}
rows:
  - {method: grand}
"""
LONG = ["--set", "max_epochs=1500", "--set", "patience=1500", "--set", "hidden=8"]
COMMANDS = {
    "train": ["train", "sbm", *LONG, "--checkpoint-every", "0.2", "--resume", "--out"],
    "seeds": [
        *["train", "sbm", *LONG, "--checkpoint-every", "0.2", "--resume"],
        *["--seeds", "2", "--jobs", "1", "--out"],
    ],
    "reproduce": ["reproduce", "{spec}", "--jobs", "1", "--out"],
    "graphnas": [
        *["tune", "sbm", "--method", "graphnas", "--trials", "40", "--set", "max_epochs=20"],
        "--out",
    ],
    "tune": [
        *["tune", "sbm", "--set", "max_epochs=300", "--set", "hidden=8", "--jobs", "1"],
        *["--try", "order=1,2,3", "--try", "temperature=0.2,0.5", "--out"],
    ],
}
BEGUN = {
    "train": "run.json",
    "seeds": "seed-0/run.json",
    "reproduce": "experiment.json",
    "graphnas": "search.json",
    "tune": "tuning.json",
}
"""The first file of each; before that, there is nothing to interrupt."""


def start(arguments: list[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "dropnode", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def outcome(command: str, out: Path) -> Any:
    """Return what a finished command has found, without times."""
    if command in ("train", "seeds"):
        folders = [out] if command == "train" else [out / "seed-0", out / "seed-1"]
        found = []
        for folder in folders:
            result = unseal(json.loads((folder / "result.json").read_text()))
            assert result["interrupted"] is False
            kept = ("test_accuracy", "val_loss", "best_epoch", "epochs")
            model = load_model(folder / "model").method.logits().numpy().tobytes()
            found.append(([result[name] for name in kept], model))
        return found
    if command == "reproduce":
        return [(row.accuracy, row.trials) for row in read_results(out / "results.json").rows]
    return (out / ("children.jsonl" if command == "graphnas" else "best.yaml")).read_text()


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_killed_again_and_again_ends_with_the_same_results(
    command: str, tmp_path: Path
) -> None:
    (tmp_path / "rows.yaml").write_text(SPEC)
    arguments = [word.format(spec=tmp_path / "rows.yaml") for word in COMMANDS[command]]
    whole = start([*arguments, str(tmp_path / "whole")])
    _, errors = whole.communicate(timeout=600)
    assert whole.returncode == 0, errors
    moments, out, kills = random.Random(20261117), tmp_path / "out", 0
    for turn in range(KILLS):
        number = (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)[turn % 3]
        began = time.time()
        process = start([*arguments, str(out)])
        while process.poll() is None and not (
            (out / BEGUN[command]).exists() and time.time() - began > 2.5
        ):
            time.sleep(0.01)
        time.sleep(moments.uniform(0.0, 0.5))
        process.send_signal(number)
        _, errors = process.communicate(timeout=120)
        if process.returncode == 0:
            break
        kills += 1
        expected = 1 if number == signal.SIGINT else -number
        assert process.returncode == expected, (number, errors)
        assert number != signal.SIGINT or "Traceback" not in errors, errors
    assert kills > 3
    last = start([*arguments, str(out)])
    _, errors = last.communicate(timeout=600)
    assert last.returncode == 0, errors
    assert outcome(command, out) == outcome(command, tmp_path / "whole")
    assert not list(out.rglob(".dropnode-*"))


SAVES = """
import sys
from pathlib import Path
from dropnode.saving import load_model, save_model
models = [load_model(Path(sys.argv[1]) / name) for name in ("0", "1")]
print("ready", flush=True)
turn = 0
while True:
    turn += 1
    save_model(Path(sys.argv[1]) / "out", models[turn % 2].method, models[turn % 2].graph)
"""


def test_a_save_killed_again_and_again_leaves_a_whole_model(tmp_path: Path) -> None:
    for name in ("0", "1"):
        made = ["train", "sbm", "--seed", name, "--set", "max_epochs=3", "--out", tmp_path / name]
        subprocess.run([sys.executable, "-m", "dropnode", *map(str, made)], check=True)
        (tmp_path / name / "model").rename(tmp_path / f"model-{name}")
        os.rename(tmp_path / name, tmp_path / f"run-{name}")
        os.rename(tmp_path / f"model-{name}", tmp_path / name)
    expected = [load_model(tmp_path / name).method.logits() for name in ("0", "1")]
    moments = random.Random(20261117)
    for _ in range(KILLS):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVES, tmp_path], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0.1, 0.4))
        process.kill()
        process.communicate()
        found = load_model(tmp_path / "out").method.logits()
        assert any(torch.equal(found, one) for one in expected)
